"""Operations that read what was recorded, page by page, from the chain and its history. They need no lease."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from polign_recall import Corrupt, Turn
from polign_recall.chain import Chain, Entry
from polign_recall.history import entries
from polign_recall.records import decode, encode
from starlette.responses import Response

from .service import Call, as_json
from .shapes import EntriesPage, EntriesQuery, TurnsPage, TurnsQuery

PAGE_BYTES = 4_000_000
"""A page ends early at this size."""


async def read_entries(call: Call) -> Response:
    """A page of entries, oldest or newest first."""
    return as_json(await asyncio.to_thread(_entries_page, call, call.query))


async def read_turns(call: Call) -> Response:
    """A page of turns, oldest first."""
    return as_json(await asyncio.to_thread(_turns_page, call, call.query))


def _entries_page(call: Call, query: EntriesQuery) -> EntriesPage:
    chain = Chain(call.prefix, call.agent_id)
    newest_first = query.order == "desc"
    page, size = EntriesPage([], None), 0
    for entry in entries(chain, call.store, newest_first=newest_first, after=query.after, before=query.before):
        size += _size(entry)
        if page.entries and (len(page.entries) == query.limit or size > PAGE_BYTES):
            page.next = page.entries[-1].seq
            return page
        page.entries.append(entry)
    return page


def _turns_page(call: Call, query: TurnsQuery) -> TurnsPage:
    page, size, last = TurnsPage([], None, query.entry), 0, 0
    for entry, turn in _turns(call, query):
        raw = encode(turn)
        size += len(memoryview(raw))
        if page.turns and (len(page.turns) == query.limit or size > PAGE_BYTES):
            page.next = last
            return page
        page.turns.append(raw)
        page.entry, last = entry, turn.seq
    return page


def _turns(call: Call, query: TurnsQuery) -> Iterator[tuple[int, Turn]]:
    """Turns with the seqs of their entries."""
    chain = Chain(call.prefix, call.agent_id)
    for entry in entries(chain, call.store, after=max(0, query.entry - 1)):
        for raw in entry.records:
            try:
                record = decode(raw)
            except Corrupt as error:
                raise Corrupt(f"entry {entry.seq}: {error.message}", agent_id=call.agent_id) from error
            if isinstance(record, Turn) and record.seq > query.after:
                yield entry.seq, record


def _size(entry: Entry) -> int:
    return sum(len(memoryview(raw)) for raw in entry.records)
