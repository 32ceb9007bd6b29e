"""Appending one entry for a holder elsewhere, exactly as it asks, fenced by the core's own `Chain.settle`.

The client decides every byte of the entry, so that a repeat makes the same bytes on any server. What the server adds is
that the entry before is there and is the same holder's: no gap, no fork.
"""

from __future__ import annotations

from polign_recall import LeaseLost, LeaseNotHeld
from polign_recall.chain import Chain, Entry, Link, Replay, agent_prefix
from polign_recall.chain.entries import open_entry, seal
from polign_recall.chain.keys import entry_key
from polign_recall.chain.protocol import Pending
from polign_recall.chain.steps import Get, Steps
from polign_recall.stores import Blob

from .problems import OutOfStep


class Appender(Chain):
    """A chain to which one given entry is appended."""

    def __init__(self, agent_id: str, link: Link) -> None:
        super().__init__(agent_prefix(agent_id), agent_id)
        self.link = link
        self.epoch, self.holder = link.entry.epoch, link.entry.holder

    def write(self, *, known: bool, again: bool) -> Steps[None]:
        """Append the entry and acknowledge it; one that was appended before is acknowledged too.

        `known` tells that the entry before was acknowledged by this server just now; `again` that the write may have
        been applied already. Then, as after an unknown outcome, it counts only once a LIST shows it on top (R3).
        Raises LeaseLost, LeaseNotHeld, OutOfStep for an entry that does not follow the chain, WriteUnknown.
        """
        if not known and (yield from self._is_there()):
            return
        self.pending = Pending(self.link, self.env.clock(), clean=known and not again)
        try:
            yield from self.settle()
        except LeaseLost as lost:
            if not self._went_on(lost.landed, lost.epoch):
                raise self._told(lost) from None

    def _is_there(self) -> Steps[bool]:
        """Check what lies before the entry. True when the entry itself was appended, and even folded, before."""
        entry = self.link.entry
        key = entry_key(self.prefix, entry.seq - 1)
        blob: Blob | None = yield from self._retry(Get(key))
        before = open_entry(blob.data, key) if blob else None
        if before is not None and before.digest == entry.prev:
            if before.entry.kind == "release":
                raise LeaseNotHeld("the lease was given back", agent_id=self.agent_id, hint="acquire it again")
            if (before.entry.epoch, before.entry.holder) == (entry.epoch, entry.holder):
                return False
        replay = yield from self.load()
        return (yield from self._explain(replay))

    def _explain(self, replay: Replay) -> Steps[bool]:
        """What it means that the entry before is not where it should be; True when the entry landed long ago."""
        entry, lease = self.link.entry, replay.lease
        if lease.epoch > entry.epoch or replay.seq >= entry.seq:
            landed = yield from self._landed(entry)
            if self._went_on(landed, lease.epoch):
                return True
            message = f"{lease.holder} took it over with epoch {lease.epoch}; ours was {entry.epoch}"
            hint = "stop working; open the agent again to go on"
            lost = LeaseLost(
                message, agent_id=self.agent_id, hint=hint, by=lease.holder, epoch=lease.epoch, landed=landed
            )
            raise self._told(lost)
        raise OutOfStep(
            f"entry {entry.seq} of this epoch and holder, with this `prev`, does not follow a chain that ends at"
            f" {replay.seq}",
            agent_id=self.agent_id,
            hint="read the state and go on from there",
        )

    def _went_on(self, landed: bool | None, epoch: int) -> bool:
        """Whether the entry landed and the same lease went on since: a late repeat. History has no renewals."""
        entry = self.link.entry
        return epoch == entry.epoch and (landed is True or (landed is None and entry.kind == "renew"))

    def _told(self, lost: LeaseLost) -> LeaseLost:
        if lost.epoch != self.link.entry.epoch:
            return lost
        return LeaseLost(
            f"entry {self.link.entry.seq} was written by another writer with the same lease", agent_id=self.agent_id,
            hint="one process at a time may write with a lease", by=lost.by, epoch=lost.epoch, landed=lost.landed,
        )  # fmt: skip

    def _put(self, pending: Pending) -> Steps[Entry]:
        """See `Chain._put`. One put id stands for one write: two must not pass for each other."""
        landed = yield from super()._put(pending)
        if landed.put == pending.link.entry.put and seal(landed).digest != pending.link.digest:
            raise OutOfStep("this put id was used for another entry", agent_id=self.agent_id)
        return landed
