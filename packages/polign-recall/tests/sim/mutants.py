"""Mutants: the product's chain with one rule of the protocol broken, for `test_mutants`.

They are subclasses of the chain and replacements of the folding's functions; the product itself has no switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import msgspec
from polign_recall.chain import Chain, Entry, Env, FoldJob, folding, protocol
from polign_recall.chain.entries import Link, encode_snapshot, open_entry, open_snapshot, seal
from polign_recall.chain.keys import Listing, entry_key, history_key, snapshot_key, sort_listing
from polign_recall.chain.protocol import Pending, Replay
from polign_recall.chain.steps import Create, Delete, GetMany, List, Steps
from polign_recall.errors import StoreUnavailable
from polign_recall.stores.base import Outcome


def send(chain: Chain, pending: Pending) -> Steps[Outcome]:
    """One attempt of a write, with an honest account of what is known of it."""
    clean, pending.clean = pending.clean, False
    key = entry_key(chain.prefix, pending.link.entry.seq)
    try:
        outcome: Outcome = yield Create(key, pending.link.raw)
    except StoreUnavailable:
        pending.clean = clean
        raise
    pending.clean = clean and outcome is Outcome.CREATED
    return outcome


def moved(link: Link) -> Link:
    """The same write, for the slot above."""
    return seal(msgspec.structs.replace(link.entry, seq=link.entry.seq + 1))


# ---- R2 --------------------------------------------------------------------------------------------------------------


class NoListAfterClaim(Chain):
    """A claim counts as soon as it is in its slot."""

    def _confirm_claim(self, replay: Replay, link: Link) -> Steps[bool]:
        replay.add(link)
        self.replay = replay
        return True
        yield


class EntriesOnly(Chain):
    """(a) misread: the claim must be the newest entry, and snapshots above it do not matter."""

    def _confirm_claim(self, replay: Replay, link: Link) -> Steps[bool]:
        replay.add(link)
        self.replay = replay
        return (yield from self._list()).top == link.entry.seq


# ---- R3, R4 ----------------------------------------------------------------------------------------------------------


class NextSlot(Chain):
    """EXISTS means that the next slot is tried."""

    def _put(self, pending: Pending) -> Steps[Entry]:
        while (landed := (yield from super()._put(pending))).put != pending.link.entry.put:
            pending.link = moved(pending.link)
        return landed


class SkipUnknown(Chain):
    """A slot of unknown outcome is stepped past: the same records go into the next one."""

    def _put(self, pending: Pending) -> Steps[Entry]:
        while (outcome := (yield from send(self, pending))) is Outcome.UNKNOWN:
            pending.link = moved(pending.link)
        return pending.link.entry if outcome is Outcome.CREATED else (yield from super()._put(pending))


class ExistsIsLost(Chain):
    """No put id: whatever is in the slot is somebody else's."""

    def _put(self, pending: Pending) -> Steps[Entry]:
        while (outcome := (yield from send(self, pending))) is Outcome.UNKNOWN:
            yield self.env.pause(0)
        mine = pending.link.entry
        return mine if outcome is Outcome.CREATED else msgspec.structs.replace(mine, put="somebody else's")


class ExistsIsMine(Chain):
    """No put id: whatever is in the slot is one's own."""

    def _put(self, pending: Pending) -> Steps[Entry]:
        while (yield from send(self, pending)) is Outcome.UNKNOWN:
            yield self.env.pause(0)
        return pending.link.entry


class NoListAfterUnknown(Chain):
    """A write that had to be resolved counts without a LIST."""

    def _on_top(self, seq: int) -> Steps[bool]:
        return True
        yield


class NeverLanded(Chain):
    """A lost write is said never to have landed when its slot holds something else, whatever was folded."""

    def _landed(self, entry: Entry) -> Steps[bool | None]:
        listing = yield from self._list()
        if entry.seq not in listing.entries:
            return False
        blobs = yield from self._retry(GetMany([listing.entries[entry.seq].key]))
        return blobs[0] is not None and open_entry(blobs[0].data, "").entry.put == entry.put


# ---- R5 --------------------------------------------------------------------------------------------------------------


class NotFoundIsTheEnd(Chain):
    """What was listed and is gone is taken for the end of the chain; no version tags, no links."""

    def _read(self, listing: Listing) -> Steps[Replay | str]:
        base, seqs = listing.base, [seq for seq in listing.entries if seq > listing.base]
        stats = [*([listing.snapshots[base]] if base else []), *(listing.entries[seq] for seq in seqs)]
        blobs = (yield from self._retry(GetMany([stat.key for stat in stats]))) if stats else []
        replay = Replay.above(open_snapshot(blobs[0].data, "") if base and blobs[0] else None)
        for blob in blobs[bool(base) :]:
            if blob is None:
                break
            replay.add(open_entry(blob.data, ""))
        replay.modified = stats[-1].modified if stats else 0.0
        return replay


# ---- the lease -------------------------------------------------------------------------------------------------------


class DeadlineFromAnswer(Chain):
    """The holder counts its deadline from the answer, not from before it sent the entry."""

    def settle(self) -> Steps[Link]:
        link = yield from super().settle()
        self.deadline = self.env.clock() + self.replay.lease.ttl
        return link


class CurrentWhileReleasing(Chain):
    """A holder believes that it holds until its release is answered."""

    @property
    def current(self) -> bool:
        return self.owned and self.env.clock() < self.deadline


# ---- R1, R6: folding -------------------------------------------------------------------------------------------------

_sweep = folding._sweep


def sweep_claims_too(job: FoldJob, env: Env) -> Steps[list[str]]:
    """Claims are deleted like everything else."""
    log = sort_listing((yield List(f"{job.prefix}log/")))
    return (yield Delete([stat.key for seq, stat in log.entries.items() if seq < job.last]))


def sweep_own_entry_too(job: FoldJob, env: Env) -> Steps[list[str]]:
    """The entry at the snapshot's own seq goes too."""
    refused: list[str] = yield Delete([entry_key(job.prefix, job.last)])
    return refused + (yield from _sweep(job, env))


def fold_deleting_first(job: FoldJob, env: Env) -> Steps[list[str]]:
    """Entries go before the snapshot is written."""
    refused = yield from _sweep(job, env)
    yield from folding.create_once(history_key(job.prefix, job.first, job.last), job.history, env)
    yield from folding.create_once(snapshot_key(job.prefix, job.last), encode_snapshot(job.snapshot), env)
    return refused


def fold_history_last(job: FoldJob, env: Env) -> Steps[list[str]]:
    """History is written after the snapshot."""
    yield from folding.create_once(snapshot_key(job.prefix, job.last), encode_snapshot(job.snapshot), env)
    yield from folding.create_once(history_key(job.prefix, job.first, job.last), job.history, env)
    return (yield from _sweep(job, env))


def folded_in_any_tenure(chain: Chain, job: FoldJob) -> None:
    """A fold from before the agent was lost and acquired again is taken for one of this tenure."""
    chain.replay.links = [link for link in chain.replay.links if link.entry.seq > job.last]
    chain.replay.snapshot = job.snapshot


def erase_unfenced(chain: Chain, empty: bytes) -> Steps[tuple[int, list[str]]]:
    """An agent is deleted without an entry that says so: also by a process that was taken over since."""
    job = folding.fold_job(chain, empty)
    assert job is not None
    snapshot = msgspec.structs.replace(job.snapshot, origin=job.last)
    own = snapshot_key(job.prefix, job.last)
    yield from folding.create_once(own, encode_snapshot(snapshot), chain.env)
    spared = {own, *(entry_key(job.prefix, seq) for seq in job.snapshot.claims)}
    victims = [stat.key for stat in (yield List(job.prefix)) if stat.key not in spared]
    refused: list[str] = yield Delete(victims)
    return len(victims) - len(refused), refused


@dataclass(frozen=True)
class Mutant:
    """A chain or replaced functions, and the invariants that may be the first to notice.

    `ignored` invariants see the change itself; the mutant must be caught by what it leads to.
    """

    noticed_by: set[str]
    chain_type: type[Chain] = Chain
    patches: tuple[tuple[ModuleType, str, object], ...] = ()
    ignored: frozenset[str] = frozenset()


MUTANTS = {
    "claims are deleted": Mutant({"I6"}, patches=((folding, "_sweep", sweep_claims_too),)),
    "claims are deleted: what it leads to": Mutant(
        {"I1", "I3", "I5", "I8"}, patches=((folding, "_sweep", sweep_claims_too),), ignored=frozenset({"I6"})
    ),
    "no LIST after a claim": Mutant({"I11"}, NoListAfterClaim),
    "no LIST after a claim: what it leads to": Mutant({"I3", "I5"}, NoListAfterClaim, ignored=frozenset({"I11"})),
    "a claim is checked against entries alone, and folding leaves none": Mutant(
        {"I3", "I5"}, EntriesOnly, ((folding, "_sweep", sweep_own_entry_too),), frozenset({"I6"})
    ),
    "EXISTS means next slot": Mutant({"I1", "I4"}, NextSlot),
    "an unknown slot is skipped": Mutant({"I1", "I4"}, SkipUnknown),
    "no put id, EXISTS means lost": Mutant({"I10"}, ExistsIsLost),
    "no put id, EXISTS means mine": Mutant({"I1", "I3", "I5"}, ExistsIsMine),
    "no LIST after an unknown write": Mutant({"I3"}, NoListAfterUnknown),
    "never landed, without a look into history": Mutant({"I7"}, NeverLanded),
    "not found is the end": Mutant({"I1", "I5"}, NotFoundIsTheEnd),
    "deadline counted from the answer": Mutant({"I3"}, DeadlineFromAnswer),
    "holder until the release is answered": Mutant({"I3"}, CurrentWhileReleasing),
    "no grace for coarse stamps": Mutant({"I3"}, patches=((protocol, "GRACE", 0.0),)),
    "the snapshot's own entry is deleted": Mutant({"I6"}, patches=((folding, "_sweep", sweep_own_entry_too),)),
    "entries are deleted before the snapshot": Mutant({"I6"}, patches=((folding, "fold", fold_deleting_first),)),
    "history comes last": Mutant({"I1"}, patches=((folding, "fold", fold_history_last),)),
    "a fold is taken for one of this tenure": Mutant({"I8"}, patches=((folding, "folded", folded_in_any_tenure),)),
    "an agent is deleted without an entry": Mutant({"I6", "I8"}, patches=((folding, "erase", erase_unfenced),)),
}
