"""The ends of chains, as this server acknowledged them itself: with one at hand, an append is one store request."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from polign_recall.chain import Entry, Link

MOST = 10_000
"""Agents; some hundred bytes each."""
TRUSTED_SECONDS = 60.0
"""Older ones are looked up in the store again: by then another server may have folded the chain much further."""


class Head(NamedTuple):
    """The newest entry of a chain, as far as this server knows, and when it learned that."""

    seq: int
    epoch: int
    holder: str
    digest: str
    kind: str
    since: float

    def precedes(self, entry: Entry) -> bool:
        """Whether an entry is the next one, by the same holder."""
        ours = (self.seq + 1, self.epoch, self.holder, self.digest)
        return ours == (entry.seq, entry.epoch, entry.holder, entry.prev)


class Heads:
    """The heads most recently used, by collection and agent id."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heads: OrderedDict[tuple[str, str], Head] = OrderedDict()

    def get(self, collection: str, agent_id: str) -> Head | None:
        """The head of an agent, if it is known and not too old."""
        head = self._heads.get((collection, agent_id))
        if head is None or self._clock() - head.since > TRUSTED_SECONDS:
            return None
        self._heads.move_to_end((collection, agent_id))
        return head

    def note(self, collection: str, agent_id: str, link: Link) -> None:
        """Remember an entry that was acknowledged, unless a newer one is known."""
        entry, key = link.entry, (collection, agent_id)
        known = self._heads.get(key)
        if known is not None and known.seq > entry.seq:
            return
        self._heads[key] = Head(entry.seq, entry.epoch, entry.holder, link.digest, entry.kind, self._clock())
        self._heads.move_to_end(key)
        while len(self._heads) > MOST:
            self._heads.popitem(last=False)

    def forget(self, collection: str, agent_id: str) -> None:
        """Forget an agent's head."""
        self._heads.pop((collection, agent_id), None)
