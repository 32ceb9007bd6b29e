"""How much of everything one request may take, and reading a body within that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from polign_recall import TooLarge
from starlette.requests import Request

from .problems import TooSlow


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server. Sizes are in bytes, times in seconds."""

    body: int = 8_000_000
    """A JSON body; a writer closes its group commits at half of that."""
    requests: int = 256
    """Under way at once. With bodies of the largest size they take 2 GB."""
    uploads: int = 8
    """Outputs being received at once: each may take 100 MB of temporary space."""
    connections: int = 4096
    head_seconds: float = 10.0
    """For the request line and headers to arrive."""
    body_seconds: float = 30.0
    """For a body to arrive, and a second more for every `body_rate` bytes that have."""
    body_rate: int = 16_000
    discard_seconds: float = 5.0
    """For which the rest of a body that was refused is read and thrown away, so that the client sees the answer."""
    write_seconds: float = 8.0
    """For the store to say what became of a write; clients wait a little longer for us (`QUICK` in their remote.py)."""
    read_seconds: float = 30.0
    """For a client to take more of an answer, once as much of it is waiting as the connection buffers."""
    idle_seconds: int = 75
    """Between two requests on a connection."""
    drain_seconds: int = 25
    """To finish what is under way after SIGTERM; orchestrators commonly kill after 30."""
    key_seconds: float = 10.0
    """For which a key is believed without looking again: a revoked one works so long at the most."""


async def chunks(request: Request, most: int, limits: Limits) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises TooLarge above `most` bytes, TooSlow."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    clock = asyncio.get_running_loop().time
    end, received = clock() + limits.body_seconds, 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(end + received / limits.body_rate):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise TooSlow("the body did not arrive in time") from None
        if chunk is None:
            return
        received += len(chunk)
        if received > most:
            raise _too_large(most)
        yield chunk


async def whole_body(request: Request, limits: Limits) -> bytes:
    """A JSON body, whole. Raises TooLarge, TooSlow."""
    return b"".join([chunk async for chunk in chunks(request, limits.body, limits)])


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"a body of more than {most:,} bytes", hint="send it in parts")
