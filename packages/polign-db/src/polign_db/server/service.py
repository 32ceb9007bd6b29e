"""What the operations share: the store, what is known of it, and the bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
from polign_recall import Client
from polign_recall.chain import agent_prefix
from polign_recall.stores import Store, probe
from starlette.requests import Request
from starlette.responses import Response

from .access import Caller, Doorkeeper
from .folds import Folds
from .heads import Heads
from .limits import Limits
from .metrics import CountedStore, Metrics
from .places import place_of
from .problems import Busy


@dataclass
class Service:
    """One server process. Nothing in here is needed by another one, or after a restart."""

    store: CountedStore
    doorkeeper: Doorkeeper
    metrics: Metrics
    limits: Limits
    heads: Heads = field(default_factory=Heads)
    document: bytes = b""
    probed: bool = False
    running: int = 0
    uploads: int = 0

    @cached_property
    def folds(self) -> Folds:
        """Made when first used, on the event loop."""
        return Folds(self.metrics)

    @contextmanager
    def admission(self) -> Iterator[None]:
        """One more request under way. Raises Busy."""
        if self.running >= self.limits.requests:
            raise Busy("the server has as many requests under way as it takes at once", hint="try again")
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def check_store(self) -> None:
        """Check once that the store can do what the chain needs. Raises StoreUnsupported, or another StoreError."""
        if not self.probed:
            probe(self.store)
            self.probed = True

    async def before_writing(self) -> None:
        """See `check_store`: at the start the store may not have answered."""
        if not self.probed:
            await asyncio.to_thread(self.check_store)


@dataclass(frozen=True)
class Call:
    """One request, taken apart and checked. `agent_id` is empty where the path has none."""

    service: Service
    request: Request
    caller: Caller
    path: Mapping[str, str]
    query: Any
    body: Any

    @cached_property
    def store(self) -> Store:
        """The caller's collection."""
        return place_of(self.service.store, self.caller.collection)

    @cached_property
    def client(self) -> Client:
        """The core's client on the caller's collection."""
        return Client(store=self.store, env={})

    @property
    def agent_id(self) -> str:
        """The agent that the path names."""
        return self.path["id"]

    @property
    def prefix(self) -> str:
        """Where the agent lies in the store."""
        return agent_prefix(self.agent_id)

    @property
    def key(self) -> tuple[str, str]:
        """What this server's own memory knows the agent by."""
        return self.caller.collection, self.agent_id


def as_json(value: Any, status: int = 200) -> Response:
    """A JSON response; bytes are JSON already."""
    return Response(value if isinstance(value, bytes) else msgspec.json.encode(value), status, None, "application/json")
