"""Where the tests of the client keep their agents: in memory, or where RECALL_TEST_PLACE says.

Every place can be looked at from behind, past the client, as a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from polign_recall import Client
from polign_recall.stores import MemoryStore, Store, open_store
from polign_recall.testing import servers

KIND = os.environ.get("RECALL_TEST_PLACE", "memory")


@dataclass(frozen=True)
class Place:
    """An empty place for agents. `store` is what lies there; `client` makes one more client of it."""

    store: Store
    client: Callable[[], Client]


NewPlace = Callable[[], Place]


@contextmanager
def memory(folder: Path) -> Iterator[NewPlace]:
    """Stores in this process."""
    yield lambda: _in_store(MemoryStore())


@contextmanager
def directory(folder: Path) -> Iterator[NewPlace]:
    """Directories below `folder`."""
    yield lambda: _in_store(open_store(str(folder / _name())))


@contextmanager
def server(folder: Path) -> Iterator[NewPlace]:
    """Collections of one polign-server on a directory, each with a key of its own."""
    with servers.polign_server(folder / "records", folder, "-require-key") as url:
        # No package of the core's: it is there where its command is.
        from polign_db.server import keys, places

        store = open_store(str(folder / "records"))

        def new_place() -> Place:
            collection = _name()
            key, _ = keys.create(store, collection=collection, access="write")
            return Place(places.place_of(store, collection), lambda: Client(url=url, api_key=key))

        yield new_place


@contextmanager
def s3(folder: Path) -> Iterator[NewPlace]:
    """Prefixes of one bucket."""
    with servers.ministack(folder) as found:
        yield lambda: _in_store(open_store(found.url(_name()), env=found.env))


@contextmanager
def postgres(folder: Path) -> Iterator[NewPlace]:
    """Schemas of one database."""
    with servers.postgres() as found:
        yield lambda: _in_store(open_store(found.schema(_name()), env=found.env))


PLACES = {"memory": memory, "directory": directory, "server": server, "s3": s3, "postgres": postgres}


def _in_store(store: Store) -> Place:
    return Place(store, lambda: Client(store=store))


def _name() -> str:
    return f"t{uuid4().hex[:12]}"
