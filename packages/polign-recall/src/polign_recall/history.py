"""Everything an agent ever recorded, read back from its history and the end of its chain, oldest first."""

from __future__ import annotations

from collections.abc import Iterator

from .chain import Chain, Entry, run
from .chain.entries import open_entry
from .chain.keys import history_range
from .records import Record, decode
from .stores.base import Store


def entries(chain: Chain, store: Store, *, newest_first: bool = False) -> Iterator[Entry]:
    """Every entry that is in history or in the chain, one object read at a time. Needs no lease.

    The chain is read first: all below its snapshot is in history already, whatever folding does meanwhile.
    """
    replay = run(chain.load(), store)
    tail = [link.entry for link in replay.links]
    spans = sorted(span for stat in store.list(f"{chain.prefix}history/") if (span := history_range(stat.key)))
    parts = [span for span in spans if replay.origin < span[1] and span[0] <= replay.base]
    if newest_first:
        yield from reversed(tail)
        above = replay.base + 1
        for first, last in sorted(parts, key=lambda span: span[1], reverse=True):
            for entry in reversed(_read(chain, store, first, last)):
                if replay.origin < entry.seq < above:
                    yield entry
                    above = entry.seq
        return
    done = replay.origin
    for first, last in parts:
        for entry in _read(chain, store, first, last):
            if done < entry.seq <= replay.base:
                yield entry
                done = entry.seq
    yield from tail


def records(chain: Chain, store: Store, *, newest_first: bool = False) -> Iterator[Record]:
    """Every record, in order."""
    for entry in entries(chain, store, newest_first=newest_first):
        raws = reversed(entry.records) if newest_first else entry.records
        yield from (decode(raw) for raw in raws)


def _read(chain: Chain, store: Store, first: int, last: int) -> list[Entry]:
    key = f"{chain.prefix}history/{first:020d}-{last:020d}"
    blob = store.get(key)
    if blob is None:
        return []
    return [open_entry(line, key).entry for line in blob.data.splitlines()]
