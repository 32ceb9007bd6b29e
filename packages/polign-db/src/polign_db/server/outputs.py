"""Outputs: received into a temporary file, sent in pieces; a large one is never whole in memory."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from polign_recall import NotFound, RecallError, outputs
from starlette.responses import Response, StreamingResponse

from .limits import chunks
from .problems import Busy, RangeUnusable
from .service import Call, as_json
from .shapes import StoredOutput

PIECE = 1 << 20
"""Bytes asked of the store at once, and of an upload kept in memory."""
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_MEDIA_TYPE = "application/octet-stream"
_HEADERS = {"Accept-Ranges": "bytes", "Content-Disposition": "attachment"}


async def store_output(call: Call) -> Response:
    """Store a value whole; the same value gives the same reference."""
    with _upload(call), tempfile.SpooledTemporaryFile(max_size=PIECE) as file:
        await _check_agent(call)
        await call.service.before_writing()
        async for chunk in chunks(call.request, outputs.MAX_BYTES, call.service.limits):
            await asyncio.to_thread(file.write, chunk)
        stored = await asyncio.to_thread(outputs.put, call.store, call.prefix, cast(BinaryIO, file))
    return as_json(StoredOutput(stored.ref, stored.size), 201)


async def fetch_output(call: Call) -> Response:
    """A stored value, or the one range of it that was asked for."""
    asked = _RANGE.fullmatch(call.request.headers.get("range", ""))
    if asked is None or not (asked[1] or asked[2]):
        first = await _piece(call, 0, PIECE)
        if len(first) < PIECE:
            return Response(first, 200, _HEADERS, _MEDIA_TYPE)
        return StreamingResponse(_from(call, first), 200, _HEADERS, _MEDIA_TYPE)
    start, end, size = await asyncio.to_thread(_bounds, call, asked[1], asked[2])
    if start >= end:
        raise RangeUnusable(f"the output has {size} bytes", size or 0)
    span = f"bytes {start}-{end - 1}/{size or '*'}"
    headers = {**_HEADERS, "Content-Range": span, "Content-Length": str(end - start)}
    first = await _piece(call, start, min(PIECE, end - start))
    return StreamingResponse(_from(call, first, start, end), 206, headers, _MEDIA_TYPE)


async def _from(call: Call, first: bytes, start: int = 0, end: int = outputs.MAX_BYTES) -> AsyncIterator[bytes]:
    """The value from `start` to before `end` or its own end; `first` has been read already."""
    piece = first
    while piece:
        yield piece
        start += len(piece)
        if start >= end or len(piece) < PIECE:
            return
        piece = await _piece(call, start, min(PIECE, end - start))


async def _piece(call: Call, start: int, length: int) -> bytes:
    return await asyncio.to_thread(_get, call, start, length)


def _get(call: Call, start: int, length: int) -> bytes:
    try:
        return outputs.get(call.store, call.prefix, call.path["ref"], start, length)
    except RecallError as error:
        error.agent_id = call.agent_id
        raise


def _bounds(call: Call, first: str, last: str) -> tuple[int, int, int | None]:
    """Start and end (exclusive) of a range, and the value's size where it had to be found out."""
    if first and last and _get(call, int(last), 1):
        return int(first), int(last) + 1, None
    size = _size(call)
    return (int(first) if first else max(0, size - int(last))), size, size


def _size(call: Call) -> int:
    """A value's size. Stores tell no sizes, so it is found by asking for single bytes, some 27 times at the most."""
    low, high = 0, outputs.MAX_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if _get(call, middle - 1, 1):
            low = middle
        else:
            high = middle - 1
    return low


async def _check_agent(call: Call) -> None:
    """An output without a log would look like an agent whose log is gone."""
    if call.service.heads.get(*call.key) is None and not await asyncio.to_thread(call.store.list, f"{call.prefix}log/"):
        raise NotFound("there is no such agent", agent_id=call.agent_id, hint="claim its lease first")


@contextmanager
def _upload(call: Call) -> Iterator[None]:
    service = call.service
    if service.uploads >= service.limits.uploads:
        raise Busy("the server is receiving as many outputs as it takes at once", hint="try again")
    service.uploads += 1
    try:
        yield
    finally:
        service.uploads -= 1
