"""Operations that write a chain: claim, records, renew, release. What fences them is in `leases` and `appends`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from polign_recall import Corrupt, Invalid, RecallError, TooLarge, WriteUnknown
from polign_recall.agent import MAX_WORKING_STATE
from polign_recall.chain import FORMAT, Entry, Link, run_async
from polign_recall.chain.entries import Kind, seal
from polign_recall.chain.steps import Steps, T
from polign_recall.records import Turn, Unknown, decode, encode
from polign_recall.text import MAX_DEPTH
from starlette.responses import Response

from .agents import head_of
from .appends import Appender
from .leases import Claimant
from .logs import event
from .service import Call, as_json
from .shapes import AppendBody, Appended, ClaimBody, RecordsBody

MAX_LEVELS = MAX_DEPTH + 10
"""Levels of a record: those that the core's own clients keep of a value, and the record around it."""


async def claim_lease(call: Call) -> Response:
    """Claim an agent's lease; gives the end of its chain, which is the claim, with its state."""
    body: ClaimBody = call.body
    await call.service.before_writing()
    chain = Claimant(call.agent_id, body)
    await _in_time(chain.claim(), call)
    try:
        head = await asyncio.to_thread(head_of, chain)
    except Corrupt:
        await _give_back(chain, call)
        raise
    call.service.heads.note(*call.key, chain.replay.links[-1])
    event("claimed", agent=call.agent_id, epoch=chain.epoch, holder=body.holder)
    return as_json(head, 201)


async def renew_lease(call: Call) -> Response:
    """Say that the holder is alive."""
    return await _append(call, "renew")


async def release_lease(call: Call) -> Response:
    """Give the lease back: anybody may claim at once."""
    return await _append(call, "release")


async def append_records(call: Call) -> Response:
    """Append one entry with records; durable, exactly once, when this answers."""
    body: RecordsBody = call.body
    return await _append(call, "records", await asyncio.to_thread(_checked, body.records, call.agent_id))


async def _append(call: Call, kind: Kind, records: list[msgspec.Raw] | None = None) -> Response:
    body: AppendBody = call.body
    entry = Entry(
        v=FORMAT, seq=body.seq, epoch=body.epoch, kind=kind, holder=body.holder, put=body.put, prev=body.prev,
        at=body.at, records=records or [],
    )  # fmt: skip
    link = seal(entry)
    await _write(call, link, again=body.again)
    return as_json(Appended(entry.seq, entry.epoch, link.digest))


async def _write(call: Call, link: Link, *, again: bool) -> None:
    service, entry = call.service, link.entry
    head = service.heads.get(*call.key)
    if head is not None and (head.seq, head.digest) == (entry.seq, link.digest):
        return  # a repeat of what was acknowledged last
    await service.before_writing()
    known = head is not None and head.kind != "release" and head.precedes(entry)
    try:
        await _in_time(Appender(call.agent_id, link).write(known=known, again=again), call)
    except RecallError:
        service.heads.forget(*call.key)
        raise
    service.heads.note(*call.key, link)
    service.folds.after(call.store, *call.key, entry.seq)


async def _in_time(steps: Steps[T], call: Call) -> T:
    """Carry a write out. What the store has not answered by then may still be written, and is settled by a repeat."""
    try:
        async with asyncio.timeout(call.service.limits.write_seconds):
            return await run_async(steps, call.store)
    except TimeoutError:
        raise WriteUnknown(
            "the store has not said in time whether this was saved", agent_id=call.agent_id,
            hint="send the same request again, with the same put id",
        ) from None  # fmt: skip


def _checked(records: list[msgspec.Raw], agent_id: str) -> list[msgspec.Raw]:
    """Records as they will be stored: each on one line, readable, and of a size that every snapshot can carry."""
    try:
        return [_check(raw) for raw in records]
    except RecallError as error:
        error.agent_id = agent_id
        raise


def _check(raw: msgspec.Raw) -> msgspec.Raw:
    try:
        record = decode(raw)
    except Corrupt as error:
        raise Invalid(error.message, hint="written, it would make the agent unreadable") from error
    if isinstance(record, Unknown) and not isinstance(record.data["type"], str):
        raise Invalid("the type of a record is a text")
    if _deeper(msgspec.json.decode(raw), MAX_LEVELS):
        raise Invalid(f"a record of more than {MAX_LEVELS} levels", hint="what holds it could not be read back")
    encode(record)  # as a snapshot does; raises Invalid
    compact = msgspec.Raw(msgspec.json.format(bytes(raw), indent=-1))
    size = len(memoryview(compact))
    if not isinstance(record, Turn) and size > MAX_WORKING_STATE:
        raise TooLarge(
            f"a {type(record).__name__} of {size:,} bytes; at most {MAX_WORKING_STATE:,} are allowed",
            hint="store long text as an output and keep the reference",
        )
    return compact


def _deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [inner for outer in layer if isinstance(outer, dict | list) for inner in _items(outer)]
    return bool(layer)


def _items(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


async def _give_back(chain: Claimant, call: Call) -> None:
    """Release a lease whose state cannot be read: nobody could work with it."""
    try:
        await run_async(chain.append("release"), call.store)
    except RecallError as error:
        event("a lease could not be given back, it expires by itself", agent=call.agent_id, error=str(error))
