"""Everything an agent ever recorded, read back from its history and the end of its chain, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .chain import Chain, Entry, run
from .chain.entries import open_entry
from .chain.keys import history_range
from .errors import Corrupt
from .records import Record, decode
from .stores.base import Store


def entries(
    chain: Chain, store: Store, *, newest_first: bool = False, after: int = 0, before: int | None = None
) -> Iterator[Entry]:
    """Every entry that is in history or in the chain, one object read at a time. Needs no lease.

    The chain is read first: all below its snapshot is in history already, whatever folding does meanwhile. Only the
    entries between the seqs `after` and `before`, both exclusive, are given, and only objects that have some are read.
    """
    replay = run(chain.load(), store)
    start, end = max(replay.origin, after), replay.seq + 1 if before is None else before
    tail = [link.entry for link in replay.links if after < link.entry.seq < end]
    spans = sorted(span for stat in store.list(f"{chain.prefix}history/") if (span := history_range(stat.key)))
    above = min(replay.base + 1, end)
    parts = [span for span in spans if start < span[1] and span[0] < above]
    if newest_first:
        yield from reversed(tail)
        for first, last in sorted(parts, key=lambda span: span[1], reverse=True):
            for entry in reversed(_read(chain, store, first, last)):
                if start < entry.seq < above:
                    yield entry
                    above = entry.seq
        return
    for first, last in parts:
        for entry in _read(chain, store, first, last):
            if start < entry.seq < above:
                yield entry
                start = entry.seq
    yield from tail


def records(entries: Iterable[Entry], agent_id: str, *, newest_first: bool = False) -> Iterator[Record]:
    """The records of these entries, in order. Raises Corrupt, naming the entry."""
    for entry in entries:
        raws = reversed(entry.records) if newest_first else entry.records
        for raw in raws:
            try:
                yield decode(raw)
            except Corrupt as error:
                raise Corrupt(f"entry {entry.seq}: {error.message}", agent_id=agent_id) from error


def _read(chain: Chain, store: Store, first: int, last: int) -> list[Entry]:
    key = f"{chain.prefix}history/{first:020d}-{last:020d}"
    blob = store.get(key)
    if blob is None:
        raise Corrupt(f"{key} is gone", agent_id=chain.agent_id, hint="was the agent deleted while it was read?")
    return [open_entry(line, key).entry for line in blob.data.splitlines()]
