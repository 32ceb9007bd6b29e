"""Folding (R6): entries become history and a snapshot, then go. It runs beside the holder's appends.

Every step is idempotent and a crash between any two loses nothing: history is written first, then the snapshot, and
only then are entries deleted, claims and the snapshot's own entry never.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from ..errors import StoreUnavailable
from ..stores.base import Outcome, Stat
from .entries import FORMAT, Snapshot, encode_snapshot
from .keys import history_key, snapshot_key, sort_listing
from .protocol import ATTEMPTS, Chain, Env
from .steps import Create, Delete, List, Steps

KEEP_SNAPSHOTS = 2


@dataclass(frozen=True, slots=True)
class FoldJob:
    """All that folding needs, taken at one moment from a chain that this process holds or held.

    `history` has the entries' bytes, a line each; renewals, which say nothing, are left out.
    """

    prefix: str
    first: int
    last: int
    history: bytes
    snapshot: Snapshot


def fold_job(chain: Chain, state: bytes) -> FoldJob | None:
    """What to fold now: everything up to our last acknowledged entry. `state` is its fold, as JSON.

    None when there is nothing above the newest snapshot.
    """
    replay = chain.replay
    if not replay.links:
        return None
    last = replay.links[-1]
    snapshot = Snapshot(
        v=FORMAT, seq=replay.seq, epoch=last.entry.epoch, digest=replay.digest, kind=last.entry.kind,
        put=last.entry.put, lease=replay.lease, claims=list(replay.claims), state=msgspec.Raw(state),
        origin=replay.origin,
    )  # fmt: skip
    first = max(replay.base, replay.origin) + 1
    kept = [link.raw + b"\n" for link in replay.links if link.entry.seq >= first and link.entry.kind != "renew"]
    return FoldJob(chain.prefix, first, replay.seq, b"".join(kept), snapshot)


def fold(job: FoldJob, env: Env) -> Steps[list[str]]:
    """Carry a fold out; gives the keys whose deletion was refused. A StoreError leaves it for the next fold."""
    if job.history:
        yield from create_once(history_key(job.prefix, job.first, job.last), job.history, env)
    yield from create_once(snapshot_key(job.prefix, job.last), encode_snapshot(job.snapshot), env)
    return (yield from _sweep(job, env))


def folded(chain: Chain, job: FoldJob) -> None:
    """Tell the chain that the job's snapshot is written: what it covers is not carried along any more.

    A job from before the chain was lost and acquired again changes nothing: the replay may begin above it.
    """
    replay = chain.replay
    if job.last <= replay.base:
        return
    replay.links = [link for link in replay.links if link.entry.seq > job.last]
    replay.snapshot = job.snapshot


def erase(chain: Chain, empty: bytes) -> Steps[tuple[int, list[str]]]:
    """Delete everything of an agent that this process holds; gives (how many were deleted, the keys refused).

    An `erase` entry decides it: a process that was taken over meanwhile deletes nothing, and one that dies after it has
    deleted the agent, though not yet the objects. `empty` is the state after it. The claims stay for ever (R1), so a
    process that was stalled since before stays fenced; they carry no user text.
    """
    listed: list[Stat] = yield List(chain.prefix)  # a later holder's outputs cannot be among these
    last = (yield from chain.append("erase")).entry.seq
    job = fold_job(chain, empty)
    if job is None:
        raise AssertionError("the erase entry itself is above the newest snapshot")
    yield from create_once(snapshot_key(job.prefix, last), encode_snapshot(job.snapshot), chain.env)
    folded(chain, job)
    log = sort_listing((yield List(f"{job.prefix}log/")))
    victims = [stat.key for seq, stat in log.entries.items() if seq < last and seq not in job.snapshot.claims]
    victims += [stat.key for seq, stat in log.snapshots.items() if seq < last]
    victims += [stat.key for stat in listed if not stat.key.startswith(f"{job.prefix}log/")]
    refused: list[str] = (yield Delete(victims)) if victims else []
    return len(victims) - len(refused), refused


def create_once(key: str, data: bytes | BinaryIO, env: Env) -> Steps[None]:
    """Create, where EXISTS is as good as CREATED because the name decides the content (folds, outputs).

    A stream is stored from its beginning. Raises StoreUnavailable when no answer comes.
    """
    for attempt in range(ATTEMPTS):
        if not isinstance(data, bytes):
            data.seek(0)
        try:
            if (yield Create(key, data)) is not Outcome.UNKNOWN:
                return
        except StoreUnavailable:
            if attempt == ATTEMPTS - 1:
                raise
        yield env.pause(attempt)
    raise StoreUnavailable(f"no answer says whether {key} was written")


def _sweep(job: FoldJob, env: Env) -> Steps[list[str]]:
    listing = sort_listing((yield List(f"{job.prefix}log/")))
    spared = {*job.snapshot.claims, job.last}
    victims = [stat.key for seq, stat in listing.entries.items() if seq <= job.last and seq not in spared]
    victims += [listing.snapshots[seq].key for seq in sorted(listing.snapshots)[:-KEEP_SNAPSHOTS]]
    return (yield Delete(victims)) if victims else []
