"""Who is calling, and what they may do."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from polign_recall import AuthFailed
from polign_recall.stores import Store
from starlette.requests import Request

from . import keys
from .places import DEFAULT
from .problems import Forbidden

MOST_CACHED = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request: the collection that they see, what they may do, and their key's id (empty without)."""

    collection: str
    access: keys.Access
    key_id: str = ""


ANYBODY = Caller(DEFAULT, "write")
"""Who calls a server that asks for no key."""


class Doorkeeper:
    """Checks keys. What the store says of one is believed for `seconds`, so a revoked key works so long at the most."""

    def __init__(
        self, store: Store, *, required: bool, local_only: bool, seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store = store
        self._required = required
        self._local_only = local_only
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, keys.KeyRecord | None]] = OrderedDict()

    async def admit(self, request: Request, access: keys.Access) -> Caller:
        """Who sent a request that needs this access. Raises AuthFailed, and Forbidden for a key that may not."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not scheme and not self._required:
            self._check_local(request)
            return ANYBODY
        caller = await self._identify(token.strip() if scheme.lower() == "bearer" else "")
        if access == "write" and caller.access != "write":
            raise Forbidden("this key may only read", hint="use a key that was made with --access write")
        return caller

    async def _identify(self, token: str) -> Caller:
        parsed = keys.parse(token)
        record = await self._look_up(parsed[0]) if parsed else None
        if not keys.matches(record, parsed[1] if parsed else "") or record is None:
            raise AuthFailed("the key is missing or not good", hint="send Authorization: Bearer plgn_...")
        return Caller(record.collection, record.access, record.id)

    async def _look_up(self, key_id: str) -> keys.KeyRecord | None:
        until, record = self._known.get(key_id, (0.0, None))
        if until > self._clock():
            return record
        began = self._clock()
        record = await asyncio.to_thread(keys.good, self._store, key_id)
        self._known[key_id] = (began + self._seconds, record)
        self._known.move_to_end(key_id)
        while len(self._known) > MOST_CACHED:
            self._known.popitem(last=False)
        return record

    def _check_local(self, request: Request) -> None:
        """Without keys, a page of another site must not reach a loopback server through its visitor's browser."""
        if not self._local_only:
            return
        try:
            name = urlsplit(f"//{request.headers.get('host', 'localhost')}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name):
            raise Forbidden("without keys, this server answers to local names only", hint="ask for localhost")


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
