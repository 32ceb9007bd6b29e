"""What must always be true: the invariants I1 to I8 and I10, checked at the moment each could break.

The oracle sees every object land in the store and go from it, and every result that the product's code reports. It
keeps *the chain*: for each slot the first entry that ever landed there. What lands in a slot again, after it was folded
away, is junk and not part of the chain. Nothing here uses the product's replay or fold; only the decoders of stored
bytes.

I9 and I11 need a quiet world and are checked by `World.calm`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from polign_recall.chain import Chain, Replay
from polign_recall.chain.entries import Entry, Link, digest_of, open_entry, open_snapshot
from polign_recall.chain.keys import history_range
from polign_recall.errors import LeaseLost

PREFIX = "agents/a/"
"""Where the simulated agent lives."""


class Violation(AssertionError):
    """An invariant broke. `label` names it: I1 to I11."""

    def __init__(self, label: str, what: str) -> None:
        super().__init__(f"{label}: {what}")
        self.label = label


@dataclass(slots=True)
class Slot:
    """One entry of the chain: what landed in its slot first, and when (in events of the world)."""

    entry: Entry
    raw: bytes
    digest: str
    landed: int


def values_of(entry: Entry) -> list[str]:
    """The records of an entry: each is a text that occurs once in a whole run."""
    return [json.loads(bytes(raw)) for raw in entry.records]


def state_of(values: Sequence[str]) -> bytes:
    """The folded state of the simulation: simply all values, in order."""
    return json.dumps(list(values)).encode()


def values_in(replay: Replay) -> list[str]:
    """The values that a replay holds: those in its snapshot and those in the entries above it."""
    values: list[str] = json.loads(bytes(replay.snapshot.state)) if replay.snapshot else []
    for link in replay.links:
        if link.entry.kind == "erase":
            values = []
        values += values_of(link.entry)
    return values


class Oracle:
    """Watches the agent's keys. Raises Violation, unless its label is in `ignored`."""

    def __init__(self, stats: Counter[str], ignored: Collection[str] = ()) -> None:
        self.stats = stats
        self.ignored = ignored
        self.event = 0
        self.lone = False
        """Only one process ever claims: it must never be fenced (I10)."""
        self.chain: list[Slot] = []
        self.seen: set[str] = set()
        self.values: list[str] = []
        """Every record of the chain, in order."""
        self.counts = [0]
        """`counts[n]`: how many records the first n entries have."""
        self.puts: set[str] = set()
        """Put ids of the chain's entries."""
        self.snapshots: dict[int, bytes] = {}
        self.folds: dict[int, bytes] = {}
        """Every snapshot that ever landed, by seq."""
        self.settled: set[int] = set()
        """Slots whose entry was acknowledged to its writer."""
        self.top_settled = 0
        self.last_ack: dict[int, int] = {}
        """Per epoch, the slot acknowledged last."""
        self.never: dict[str, str] = {}
        """Put ids of writes that were reported as never saved, with what reported it."""
        self.forced: set[str] = set()
        """Put ids of writes of processes that took over by force: only such claims come before a lease ran out."""
        self.origins = [0]
        """`origins[n]`: the newest erase among the first n entries; what lies below it is deleted."""

    def fail(self, label: str, what: str) -> None:
        if label not in self.ignored:
            raise Violation(label, what)

    def check(self, holds: bool, label: str, what: str) -> None:
        if not holds:
            self.fail(label, what)

    def in_chain(self, entry: Entry) -> bool:
        """Whether this very write is part of the chain."""
        return entry.seq <= len(self.chain) and self.chain[entry.seq - 1].entry.put == entry.put

    def fold(self, seq: int) -> list[str]:
        """The records up to entry `seq`, but for those that an erase deleted."""
        return self.values[self.counts[self.origins[seq]] : self.counts[seq]]

    # ---- objects come and go ---------------------------------------------------------------------------------------

    def created(self, key: str, data: bytes) -> None:
        """An object landed at `key`."""
        folder, _, name = key.removeprefix(PREFIX).partition("/")
        if folder == "history":
            self._history_landed(key, data)
        elif name.endswith(".snap"):
            self._snapshot_landed(int(name.removesuffix(".snap")), data)
        else:
            self._entry_landed(int(name), data)

    def _entry_landed(self, seq: int, raw: bytes) -> None:
        entry = open_entry(raw, "").entry
        if seq <= len(self.chain):
            self.stats["junk in a folded slot"] += 1
            return
        last = self.chain[-1] if self.chain else None
        epoch, digest = (last.entry.epoch, last.digest) if last else (0, "")
        self.check(seq == len(self.chain) + 1, "I4", f"entry {seq} landed above a gap: {len(self.chain)} are there")
        self.check(entry.seq == seq, "I4", f"entry {seq} says it is {entry.seq}")
        self.check(entry.prev == digest, "I4", f"entry {seq} does not link to the one before it")
        wanted = epoch + (entry.kind == "claim")
        self.check(entry.epoch == wanted, "I4", f"entry {seq} ({entry.kind}) has epoch {entry.epoch}, not {wanted}")
        self.check(entry.put not in self.never, "I7", f"entry {seq} landed after {self.never.get(entry.put)}")
        values = values_of(entry)
        twice = [value for value in values if value in self.seen]
        self.check(not twice, "I1", f"{twice} landed a second time, in entry {seq}")
        while len(self.chain) < seq - 1:  # a gap: only when I4 is ignored
            self._extend(Slot(entry, b"", "", self.event), [])
        self._extend(Slot(entry, raw, digest_of(raw), self.event), values)

    def _extend(self, slot: Slot, values: list[str]) -> None:
        self.chain.append(slot)
        self.puts.add(slot.entry.put)
        self.values += values
        self.seen.update(values)
        self.counts.append(len(self.values))
        erased = slot.entry.kind == "erase"
        self.origins.append(len(self.chain) if erased else self.origins[-1])
        self.stats["erased"] += erased

    def _snapshot_landed(self, seq: int, raw: bytes) -> None:
        snapshot = open_snapshot(raw, "")
        self.snapshots[seq] = raw
        self.check(seq == snapshot.seq <= len(self.chain), "I8", f"snapshot {seq} is of {snapshot.seq}")
        self.check(raw == self.folds.setdefault(seq, raw), "I8", f"snapshot {seq} was written again with other bytes")
        last = self.chain[seq - 1]
        settled = seq in self.settled or last.entry.kind == "erase"  # an erase is acknowledged to `erase` itself
        self.check(settled, "I6", f"snapshot {seq} folds an entry that was not acknowledged")
        told = (snapshot.digest, snapshot.kind, snapshot.put, snapshot.epoch, snapshot.lease.epoch, snapshot.origin)
        epoch = last.entry.epoch
        true = (last.digest, last.entry.kind, last.entry.put, epoch, epoch, self.origins[seq])
        self.check(told == true, "I8", f"snapshot {seq} says {told} and the chain {true}")
        self.check(snapshot.claims == self.claims(seq), "I8", f"snapshot {seq} knows the claims {snapshot.claims}")
        state = json.loads(bytes(snapshot.state))
        self.check(state == self.fold(seq), "I8", f"snapshot {seq} is not the fold of the chain: {state}")

    def claims(self, seq: int) -> list[int]:
        """Seqs of the claims among the first `seq` entries."""
        return [slot.entry.seq for slot in self.chain[:seq] if slot.entry.kind == "claim"]

    def _history_landed(self, key: str, data: bytes) -> None:
        span = history_range(key)
        assert span is not None
        first, last = span
        told = [slot.raw + b"\n" for slot in self.chain[first - 1 : last] if slot.entry.kind != "renew"]
        self.check(data == b"".join(told), "I8", f"history {first} to {last} is not the chain, word for word")

    def deleting(self, key: str, data: bytes) -> None:
        """The object at `key` is about to go."""
        folder, _, name = key.removeprefix(PREFIX).partition("/")
        newest = max(self.snapshots, default=0)
        if folder == "history":
            span = history_range(key)
            erased = span is not None and span[1] < self.origins[-1]
            self.check(erased, "I6", f"{key} was deleted, and it was not erased")
        elif name.endswith(".snap"):
            seq = int(name.removesuffix(".snap"))
            newer = sum(other > seq for other in self.snapshots)
            spare = 1 if seq < self.origins[-1] else 2
            self.check(newer >= spare, "I6", f"snapshot {seq} was deleted with {newer} newer ones there")
            self.snapshots.pop(seq, None)
        else:
            self._entry_going(int(name), data, newest)

    def _entry_going(self, seq: int, data: bytes, newest: int) -> None:
        self.stats["deleted"] += 1
        if self.chain[seq - 1].raw != data:
            return  # junk
        self.check(self.chain[seq - 1].entry.kind != "claim", "I6", f"claim {seq} was deleted")
        self.check(seq <= newest, "I6", f"entry {seq} was deleted; the newest snapshot is {newest}")
        self.check(seq < newest, "I6", f"entry {seq} was deleted, the newest snapshot's own")

    # ---- what the product reports ----------------------------------------------------------------------------------

    def acknowledged(self, link: Link, evidence: int) -> None:
        """An append was acknowledged. `evidence` is the event of the store step that the acknowledgement rests on.

        An answer may be delivered late, when a later claim is there already. What may not be is that the claim was
        there before that last step was carried out at the store (I3).
        """
        entry = link.entry
        self.stats["acks"] += 1
        if not self.in_chain(entry):
            self.fail("I1", f"entry {entry.seq} ({entry.put}) was acknowledged and is not in the chain")
            return
        if evidence < self.event:
            self.stats["late answers"] += 1
        for slot in self.chain[entry.seq :]:
            late = slot.entry.kind == "claim" and slot.landed < evidence
            self.check(not late, "I3", f"entry {entry.seq} was acknowledged after claim {slot.entry.seq} had landed")
        later = entry.seq > self.last_ack.get(entry.epoch, 0)
        self.check(later, "I2", f"entry {entry.seq} was acknowledged out of order")
        self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        self.last_ack[entry.epoch] = entry.seq
        self.settled.add(entry.seq)
        self.top_settled = max(self.top_settled, entry.seq)

    def claimed(self, chain: Chain, evidence: int, rivals: Sequence[Chain]) -> None:
        """A claim was confirmed: `chain` now owns the agent. `rivals` are the chains of the other living processes."""
        replay = chain.replay
        last = replay.links[-1].entry if replay.links else None
        if last is None or last.kind != "claim" or not self.in_chain(last):
            self.fail("I5", f"epoch {chain.epoch} was confirmed and its claim is not in the chain")
            return
        above = [slot for slot in self.chain[last.seq :] if slot.landed < evidence]
        self.check(not above, "I3", f"claim {last.seq} was confirmed though {len(above)} entries had landed above it")
        self.saw(replay, "I5", f"the holder of epoch {chain.epoch}")
        for rival in rivals:
            self.alone(rival)
        self._settle(last)
        self.stats[f"claims {self._why(chain, last)}"] += 1

    def _why(self, chain: Chain, claim: Entry) -> str:
        """How a claim was possible."""
        below = [slot.entry for slot in self.chain[: claim.seq - 1]]
        if not below:
            return "of a new agent"
        if below[-1].kind == "release":
            return "after a release"
        if claim.put in self.forced:
            return "by force"
        host = [entry for entry in below if entry.kind == "claim"][-1].host
        return "of a dead process's agent" if chain.env.dead(host) else "of an expired lease"

    def alone(self, chain: Chain) -> None:
        """A process that may act: no other one may have claimed since, unless it did so by force."""
        if not chain.current:
            return
        self.stats["acts"] += 1
        claims = (slot.entry for slot in self.chain if slot.entry.kind == "claim")
        later = next((claim for claim in claims if claim.epoch > chain.epoch), None)
        honest = later is None or later.put in self.forced
        self.check(honest, "I3", f"two holders: epoch {chain.epoch} still runs after {later} had landed")

    def saw(self, replay: Replay, label: str, who: str) -> None:
        """Somebody replayed the chain: what it saw must be a prefix of it."""
        if replay.seq > len(self.chain):
            self.fail(label, f"{who} read up to {replay.seq} of {len(self.chain)}")
            return
        told = (values_in(replay), replay.claims, replay.origin)
        true = (self.fold(replay.seq), self.claims(replay.seq), self.origins[replay.seq])
        self.check(told == true, label, f"{who} read up to {replay.seq}: {told} instead of {true}")

    def read(self, replay: Replay, settled: int) -> None:
        """A reader read the chain; `settled` was the newest acknowledged slot when it began."""
        self.stats["reads"] += 1
        self.saw(replay, "I1", "a reader")
        self.check(replay.seq >= settled, "I1", f"a reader saw {replay.seq} entries when {settled} were acknowledged")

    def lost(self, chain: Chain, error: LeaseLost, pending: Entry | None) -> None:
        """A process was told that it lost the lease; `pending` is the write that met it."""
        self.stats[f"lease lost (landed={error.landed})"] += 1
        self.check(not self.lone, "I10", f"the only process was fenced: {error}")
        newest = self.chain[-1].entry.epoch
        self.check(chain.epoch < newest, "I10", f"epoch {chain.epoch} was told it lost and nobody claimed after it")
        if pending is not None and error.landed is not None:
            told, true = error.landed, self.in_chain(pending)
            self.check(told == true, "I7", f"entry {pending.seq} ({pending.put}): landed={told}, in the chain: {true}")
            if not error.landed:
                self.never[pending.put] = "LeaseLost(landed=False)"

    def not_written(self, put: str, error: Exception) -> None:
        """A write was reported as certainly not written."""
        self.check(put not in self.puts, "I7", f"{put} is in the chain and was reported as not written: {error}")
        self.never[put] = f"{type(error).__name__} said that nothing was written"
