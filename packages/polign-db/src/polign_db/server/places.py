"""Collections: each a store of its own within one store.

The default collection is the store's root, so that clients of the store itself see the same agents. Any other lies
under `collections/<encoded name>/`. Keys are in the root, under `keys/`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import BinaryIO

from polign_recall import Invalid
from polign_recall.chain import encode_id
from polign_recall.stores import Blob, Outcome, Stat, Store

COLLECTIONS = "collections/"
DEFAULT = ""
"""The name of the default collection."""


def prefix_of(collection: str) -> str:
    """Where a collection lies. Raises Invalid for a name that cannot be used."""
    if collection == DEFAULT:
        return ""
    try:
        return f"{COLLECTIONS}{encode_id(collection)}/"
    except Invalid as error:
        raise Invalid(error.message.replace("agent id", "collection")) from None


def place_of(store: Store, collection: str) -> Store:
    """The store that a collection is."""
    prefix = prefix_of(collection)
    return CollectionStore(store, prefix) if prefix else store


class CollectionStore:
    """The part of a store below a prefix, as a store. Closing it leaves the store open."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self.url = store.url
        self.parallel = store.parallel

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """See `Store.create`."""
        return self._store.create(self._prefix + key, data)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """See `Store.get`."""
        return self._store.get(self._prefix + key, start, length)

    def list(self, prefix: str) -> builtins.list[Stat]:
        """See `Store.list`."""
        stats = self._store.list(self._prefix + prefix)
        return [Stat(stat.key.removeprefix(self._prefix), stat.version, stat.modified) for stat in stats]

    def names(self, prefix: str) -> builtins.list[str]:
        """See `Store.names`."""
        return self._store.names(self._prefix + prefix)

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """See `Store.delete`."""
        refused = self._store.delete([self._prefix + key for key in keys])
        return [key.removeprefix(self._prefix) for key in refused]

    def now(self) -> float:
        """See `Store.now`."""
        return self._store.now()

    def close(self) -> None:
        """Nothing: the store is others' too."""
