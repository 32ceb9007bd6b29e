"""The chain of one agent: replay it, own it, append to it. The rules R1 to R8 are those of docs/PROTOCOL.md.

Everything here is a generator of steps (see `steps`): no store, no clock and no thread of its own, so that the same
code runs under the synchronous driver, the asynchronous one and the simulation.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import msgspec

from ..errors import Corrupt, LeaseHeld, LeaseLost, LeaseNotHeld, StoreDenied, StoreUnavailable, WriteUnknown
from ..stores.base import Blob, Outcome, Stat
from .entries import FORMAT, Entry, Host, Kind, Lease, Link, Snapshot, open_entry, open_snapshot, seal
from .keys import Listing, entry_key, history_range, sort_listing
from .lease import GRACE, boot_clock, certainly_dead
from .steps import Create, Get, GetMany, List, Now, Sleep, Step, Steps, T

ATTEMPTS = 12
"""Tries of one step before giving up, about 6 s in all: ten refusals in a row are survived."""
RESTARTS = 10
"""Times a replay starts again when the chain moves underneath it, about 1 s in all."""
POLL = 1.0
"""Seconds between two looks at a held lease while waiting for it."""


def rfc3339() -> str:
    """The time now, UTC, with milliseconds."""
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{_to_the_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=1)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def new_put() -> str:
    """An id for a write: 128 random bits."""
    return os.urandom(16).hex()


@dataclass(slots=True)
class Env:
    """What the chain needs of its surroundings besides the store; the simulation brings its own."""

    clock: Callable[[], float] = boot_clock
    wall: Callable[[], str] = rfc3339
    rng: random.Random = field(default_factory=random.Random)
    new_put: Callable[[], str] = new_put
    dead: Callable[[Host | None], bool] = certainly_dead

    def pause(self, attempt: int, base: float = 0.02, cap: float = 1.0) -> Sleep:
        """Exponential back-off with jitter."""
        return Sleep(min(cap, base * 2**attempt) * self.rng.uniform(0.5, 1.0))


@dataclass(slots=True)
class Replay:
    """What reading the chain found: the newest snapshot, if any, and the entries above it."""

    snapshot: Snapshot | None
    links: list[Link]
    lease: Lease
    claims: list[int]
    modified: float = 0.0
    """The store's time of the newest entry."""

    @classmethod
    def above(cls, snapshot: Snapshot | None) -> Replay:
        """A replay that has only the snapshot yet."""
        return cls(snapshot, [], snapshot.lease, list(snapshot.claims)) if snapshot else cls(None, [], Lease(), [])

    @property
    def base(self) -> int:
        """Seq of the snapshot, 0 without one."""
        return self.snapshot.seq if self.snapshot else 0

    @property
    def seq(self) -> int:
        """Seq of the newest entry, 0 for an empty chain."""
        return self.links[-1].entry.seq if self.links else self.base

    @property
    def digest(self) -> str:
        """Digest of the newest entry, empty for an empty chain."""
        return self.links[-1].digest if self.links else self.snapshot.digest if self.snapshot else ""

    @property
    def kind(self) -> Kind | Literal[""]:
        """Kind of the newest entry."""
        return self.links[-1].entry.kind if self.links else self.snapshot.kind if self.snapshot else ""

    @property
    def put(self) -> str:
        """Put id of the newest entry."""
        return self.links[-1].entry.put if self.links else self.snapshot.put if self.snapshot else ""

    @property
    def origin(self) -> int:
        """Seq of the newest `erase`: what lies below it is deleted. 0 unless the agent was deleted once."""
        erased = (link.entry.seq for link in self.links if link.entry.kind == "erase")
        return max(erased, default=self.snapshot.origin if self.snapshot else 0)

    def add(self, link: Link) -> None:
        """Take one more entry in."""
        self.links.append(link)
        entry = link.entry
        if entry.kind == "claim":
            self.claims.append(entry.seq)
            self.lease = Lease(entry.holder, entry.epoch, entry.ttl or 0.0, entry.at, entry.host)


@dataclass(slots=True)
class Pending:
    """A write that was begun. `clean` while every attempt so far is known not to have been applied."""

    link: Link
    sent: float
    clean: bool = True


class Chain:
    """One process's view of one agent's chain, and its lease while it has one.

    The methods are generators for a driver. One call at a time: the chain has no locks.
    """

    def __init__(self, prefix: str, agent_id: str, env: Env | None = None) -> None:
        self.prefix = prefix
        self.agent_id = agent_id
        self.env = env or Env()
        self.replay = Replay.above(None)
        self.epoch = 0
        self.holder = ""
        self.deadline = 0.0
        self.pending: Pending | None = None
        self.lost: LeaseLost | None = None

    # ---- reading ---------------------------------------------------------------------------------------------------

    def load(self) -> Steps[Replay]:
        """Read the chain: LIST, then the snapshot and the entries above it. Never needs the lease.

        Raises Corrupt or FormatTooNew naming the key, or a StoreError; nothing is ever replaced by defaults.
        """
        why = ""
        for attempt in range(RESTARTS):
            listing = yield from self._list()
            found = yield from self._read(listing)
            if isinstance(found, Replay):
                return found
            why = found
            yield self.env.pause(attempt, base=0.005, cap=0.25)
        raise Corrupt(
            f"the chain does not hold together after {RESTARTS} reads: {why}",
            agent_id=self.agent_id,
            hint="nothing was changed; was an object deleted or restored by hand?",
        )

    def _read(self, listing: Listing) -> Steps[Replay | str]:
        """Read what was listed (R5). A text says why it must start again from LIST."""
        base = listing.base
        seqs = sorted(seq for seq in listing.entries if seq > base)
        if seqs != list(range(base + 1, base + 1 + len(seqs))):
            missing = next(seq for seq in range(base + 1, seqs[-1]) if seq not in listing.entries)
            return f"entry {missing} is missing"
        stats = ([listing.snapshots[base]] if base else []) + [listing.entries[seq] for seq in seqs]
        if not stats:
            return (yield from self._read_nothing())
        blobs: list[Blob | None] = yield from self._retry(GetMany([stat.key for stat in stats]))
        whole = [blob.data for stat, blob in zip(stats, blobs, strict=True) if blob and blob.version == stat.version]
        if len(whole) < len(stats):
            return "what was listed changed while it was read"
        snapshot = open_snapshot(whole.pop(0), stats.pop(0).key) if base else None
        replay = Replay.above(snapshot)
        for seq, stat, raw in zip(seqs, stats, whole, strict=True):
            link = open_entry(raw, stat.key)
            if link.entry.prev != replay.digest or link.entry.seq != seq:
                return f"entry {seq} does not follow the one before it"
            replay.add(link)
        replay.modified = (listing.entries.get(replay.seq) or listing.snapshots[base]).modified
        return replay

    def _read_nothing(self) -> Steps[Replay | str]:
        """An empty log is a new agent only if nothing else of it is there either."""
        rest: list[Stat] = yield from self._retry(List(self.prefix))
        if any(stat.key.startswith(f"{self.prefix}log/") for stat in rest):
            return "its first entry was just written"
        return f"its log is empty but {rest[0].key} is there" if rest else Replay.above(None)

    def _list(self) -> Steps[Listing]:
        return sort_listing((yield from self._retry(List(f"{self.prefix}log/"))))

    def _retry(self, step: Step) -> Steps[T]:
        """Carry out a step that is safe to repeat, for as long as the store is merely unavailable."""
        for attempt in range(ATTEMPTS):
            try:
                answer: T = yield step
                return answer
            except StoreUnavailable:
                if attempt == ATTEMPTS - 1:
                    raise
            yield self.env.pause(attempt)
        raise AssertionError("unreachable")

    # ---- the lease -------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> bool:
        """Whether this process claimed the chain and has neither released nor lost it."""
        return self.epoch > 0 and self.lost is None

    @property
    def current(self) -> bool:
        """Whether the lease also runs still by our own clock; past it, append before acting.

        A release that was sent ends it, whether or not an answer came: anybody may claim then.
        """
        releasing = self.pending is not None and self.pending.link.entry.kind == "release"
        return self.owned and not releasing and self.env.clock() < self.deadline

    def acquire(
        self, *, ttl: float, holder: str, host: Host, wait: float = 0.0, takeover: bool = False,
        on_wait: Callable[[LeaseHeld], None] | None = None,
    ) -> Steps[Replay]:  # fmt: skip
        """Own the chain: replay it, claim the next slot, confirm the claim (R2).

        A lease that is held is waited for up to `wait` seconds; `takeover` takes it at once. Raises LeaseHeld.
        """
        until = self.env.clock() + wait
        while True:
            replay = yield from self.load()
            held = None if takeover else (yield from self.blocker(replay))
            if held is None:
                if (yield from self._claim(replay, ttl, holder, host)):
                    return self.replay
                continue  # somebody was faster: look again who
            left = until - self.env.clock()
            if left <= 0:
                raise held
            if on_wait is not None:
                on_wait(held)
            yield Sleep(min(left, max(0.05, held.expires_in), POLL * self.env.rng.uniform(0.5, 1.0)))

    def blocker(self, replay: Replay) -> Steps[LeaseHeld | None]:
        """Why the chain cannot be claimed now: None when it is free, else who holds it and until when."""
        lease = replay.lease
        if replay.kind in ("", "release") or self.env.dead(lease.host):
            return None
        now: float = yield from self._retry(Now())
        expires_in = lease.ttl + GRACE - (now - replay.modified)
        if expires_in < 0:
            return None
        return LeaseHeld(
            f"held by {lease.holder} since {lease.since}, expires in {expires_in:.0f} s unless renewed",
            agent_id=self.agent_id,
            hint="wait for it (wait=), or take it over (takeover=True)",
            holder=lease.holder,
            since=lease.since,
            expires_in=expires_in,
        )

    def _claim(self, replay: Replay, ttl: float, holder: str, host: Host) -> Steps[bool]:
        """Put a claim into the next slot and confirm it. False when another process was faster."""
        entry = Entry(
            v=FORMAT, seq=replay.seq + 1, epoch=replay.lease.epoch + 1, kind="claim", holder=holder,
            put=self.env.new_put(), prev=replay.digest, at=self.env.wall(), ttl=ttl, host=host,
        )  # fmt: skip
        pending = Pending(seal(entry), self.env.clock())
        try:
            landed = yield from self._put(pending)
        except (StoreUnavailable, StoreDenied) as error:
            if pending.clean:
                raise
            raise self._unknown(entry) from error
        if landed.put != entry.put or not (yield from self._confirm_claim(replay, pending.link)):
            return False
        self.epoch, self.holder, self.lost, self.pending = entry.epoch, holder, None, None
        self.deadline = pending.sent + ttl
        return True

    def _confirm_claim(self, replay: Replay, link: Link) -> Steps[bool]:
        """R2: (a) nothing lies above the claim, entry or snapshot; (b) the newest snapshot is the one replayed from."""
        seq = link.entry.seq
        replay.add(link)
        for attempt in range(RESTARTS):
            listing = yield from self._list()
            if listing.top != seq or listing.base >= seq:
                return False
            if listing.base == replay.base:
                self.replay = replay
                return True
            yield self.env.pause(attempt, base=0.005, cap=0.25)
            replay = yield from self.load()
            if replay.put != link.entry.put:
                return False
        raise StoreUnavailable("the chain kept moving while it was claimed", agent_id=self.agent_id)

    # ---- appending -------------------------------------------------------------------------------------------------

    def append(self, kind: Kind, records: Sequence[msgspec.Raw] = ()) -> Steps[Link]:
        """Append one entry and acknowledge it. Any entry renews the lease.

        Raises LeaseLost when the chain was taken over; WriteUnknown when no answer came: `settle` must then be run
        before the next append (R3); StoreUnavailable or StoreDenied when it is certain that nothing was written.
        """
        self.check()
        if self.pending is not None:
            raise AssertionError("an unresolved write must be settled before the next one (R3)")
        entry = Entry(
            v=FORMAT, seq=self.replay.seq + 1, epoch=self.epoch, kind=kind, holder=self.holder,
            put=self.env.new_put(), prev=self.replay.digest, at=self.env.wall(), records=list(records),
        )  # fmt: skip
        self.pending = Pending(seal(entry), self.env.clock())
        return (yield from self.settle())

    def settle(self) -> Steps[Link]:
        """Send the pending write until it is known what became of it (R3, R4)."""
        pending = self.pending
        if pending is None:
            raise AssertionError("nothing is pending")
        mine = pending.link.entry
        try:
            landed = yield from self._put(pending)
            confirmed = pending.clean or (landed.put == mine.put and (yield from self._on_top(mine.seq)))
        except (StoreUnavailable, StoreDenied) as error:
            if pending.clean:
                self.pending = None
                raise
            raise self._unknown(mine) from error
        if not confirmed:
            raise (yield from self._lose(pending, landed))
        self.pending = None
        self.replay.add(pending.link)
        self.deadline = pending.sent + self.replay.lease.ttl
        if mine.kind == "release":
            self.epoch = 0
        return pending.link

    def check(self) -> None:
        """Raise LeaseLost or LeaseNotHeld unless this process owns the chain."""
        if self.lost is not None:
            raise self.lost
        if not self.epoch:
            raise LeaseNotHeld("the lease is not held", agent_id=self.agent_id, hint="acquire it first")

    def _put(self, pending: Pending) -> Steps[Entry]:
        """Create an entry until there is an answer, and give the entry that is in the slot then, ours or not.

        `pending.clean` stays true only if the one attempt that was applied was answered at once; otherwise a LIST must
        confirm ours. A store error that is raised while it is true means that nothing was written.
        """
        entry, key = pending.link.entry, entry_key(self.prefix, pending.link.entry.seq)
        problem: StoreUnavailable | None = None
        for attempt in range(ATTEMPTS):
            clean, pending.clean = pending.clean, False  # whatever interrupts this attempt leaves it unknown
            try:
                outcome: Outcome = yield Create(key, pending.link.raw)
            except StoreDenied:
                pending.clean = clean
                raise
            except StoreUnavailable as error:
                pending.clean, problem, outcome = clean, error, Outcome.UNKNOWN
            if outcome is Outcome.CREATED:
                pending.clean = clean
                return entry
            if outcome is Outcome.EXISTS:
                blob: Blob | None = yield from self._retry(Get(key))
                if blob is not None:
                    return open_entry(blob.data, key).entry
            yield self.env.pause(attempt)  # no answer, or folded away meanwhile: send the same again
        raise problem or StoreUnavailable("the store does not answer", agent_id=self.agent_id)

    def _on_top(self, seq: int) -> Steps[bool]:
        """Whether nothing lies above the slot: no entry, and no snapshot at or above it."""
        listing = yield from self._list()
        return listing.top <= seq and listing.base < seq

    def _unknown(self, entry: Entry) -> WriteUnknown:
        return WriteUnknown(
            f"entry {entry.seq} was sent and no answer says whether it was saved",
            agent_id=self.agent_id,
            hint="it is tried again before the next write; do not record the same thing twice",
        )

    def _lose(self, pending: Pending, other: Entry) -> Steps[LeaseLost]:
        """The chain was taken over: remember it, and tell what became of the write that met it (I7)."""
        by, epoch, landed = other.holder, other.epoch, None
        try:
            landed = yield from self._landed(pending.link.entry)
            if other.put == pending.link.entry.put:
                newest = (yield from self.load()).lease
                by, epoch = newest.holder, newest.epoch
        except StoreUnavailable:
            pass  # the loss is certain all the same
        self.pending = None
        self.lost = LeaseLost(
            f"{by} took it over with epoch {epoch}; ours was {self.epoch}",
            agent_id=self.agent_id,
            hint="stop working; open the agent again to go on",
            by=by,
            epoch=epoch,
            landed=landed,
        )
        return self.lost

    def _landed(self, entry: Entry) -> Steps[bool | None]:
        """Whether an entry is in the chain: read its slot, or history once a snapshot lies at or above it (R4)."""
        for attempt in range(RESTARTS):
            listing = yield from self._list()
            if listing.base >= entry.seq:
                return (yield from self._in_history(entry))
            stat = listing.entries.get(entry.seq)
            if stat is None:
                return False
            blob: Blob | None = yield from self._retry(Get(stat.key))
            if blob is not None and blob.version == stat.version:
                return open_entry(blob.data, stat.key).entry.put == entry.put
            yield self.env.pause(attempt, base=0.005, cap=0.25)
        raise StoreUnavailable("the chain kept moving while a write was looked up", agent_id=self.agent_id)

    def _in_history(self, entry: Entry) -> Steps[bool | None]:
        """Whether history has an entry. None when it cannot tell: it has no renewals, and deleting an agent ends it."""
        if entry.kind == "renew":
            return None
        stats: list[Stat] = yield from self._retry(List(f"{self.prefix}history/"))
        for stat in stats:
            span = history_range(stat.key)
            if span and span[0] <= entry.seq <= span[1]:
                blob: Blob | None = yield from self._retry(Get(stat.key))
                return None if blob is None else f'"put":"{entry.put}"'.encode() in blob.data
        return None
