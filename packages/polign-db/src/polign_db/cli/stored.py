"""Stored outputs: which ones records speak of, and fetching one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec
from polign_recall import ActionEnded, ActionStarted, Client, Corrupt, OutputStored, Record, Turn
from polign_recall.records import encode

PART = 8_000_000
"""Bytes that are fetched at a time."""
REFERENCE = re.compile(rb"out-[0-9a-f]{32}")
_PART = re.compile(r"(out-[0-9a-f]{32}) \((\d{1,9}) bytes(?:, ([\w.+-]+/[\w.+-]+))?\)")
"""What the core leaves in the place of a binary part of a content."""


class Reference(msgspec.Struct, kw_only=True):
    """An output as a record names it. `size` is in bytes, None where the record does not say; `at` is the record's."""

    ref: str
    size: int | None = None
    media_type: str = ""
    name: str = ""
    preview: str = ""
    at: str = ""


def references(records: Iterable[Record]) -> list[Reference]:
    """Every output that these records stored, in the order of their first mention; the fullest mention of each."""
    found: dict[str, Reference] = {}
    for record in records:
        for reference in _of(record):
            known = found.get(reference.ref)
            if known is None or (known.size is None and reference.size is not None):
                found[reference.ref] = reference
    return list(found.values())


def fetched(client: Client, agent_id: str, ref: str, part: int = PART) -> Iterator[bytes]:
    """An output in parts, at least one; its digest is checked. Raises NotFound, and Corrupt at its end."""
    digest, start, more = blake2b(digest_size=16), 0, True
    while more:
        data = client.backend.get_output(agent_id, ref, start, part)
        digest.update(data)
        start += len(data)
        more = len(data) == part
        if data or start == 0:
            yield data
    if f"out-{digest.hexdigest()}" != ref:
        raise Corrupt(f"{ref} has other bytes than were stored", agent_id=agent_id, hint="restore it from a copy")


def _of(record: Record) -> Iterator[Reference]:
    if isinstance(record, OutputStored):
        yield Reference(
            ref=record.ref, size=record.size, media_type=record.media_type, name=record.name or "",
            preview=record.preview, at=record.at,
        )  # fmt: skip
    elif isinstance(record, Turn):
        yield from _of_turn(record)
    elif isinstance(record, ActionStarted):
        yield from _of_action(record, record.args_ref, None, f"arguments of {record.tool}")
    elif isinstance(record, ActionEnded):
        yield from _of_action(record, record.result_ref, record.size, f"result of action {record.seq}")


def _of_turn(record: Turn) -> Iterator[Reference]:
    if record.output_ref is not None:
        name = record.name or f"turn {record.seq}"
        yield Reference(ref=record.output_ref, size=record.size, name=name, at=record.at)
    for call in record.calls:
        if call.args_ref is not None:
            yield Reference(ref=call.args_ref, name=f"arguments of {call.name}", at=record.at)
    yield from _parts(record, f"part of turn {record.seq}", record.at)


def _of_action(
    record: ActionStarted | ActionEnded, ref: str | None, size: int | None, name: str
) -> Iterator[Reference]:
    if ref is not None:
        yield Reference(ref=ref, size=size, name=name, at=record.at)
    yield from _parts(record, f"part of the {name}", record.at)


def _parts(record: Record, name: str, at: str) -> Iterator[Reference]:
    """Outputs that stand for binary data in a record."""
    for ref, size, media_type in _PART.findall(bytes(encode(record)).decode()):
        yield Reference(ref=ref, size=int(size), media_type=media_type, name=name, at=at)
