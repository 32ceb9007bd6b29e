"""The store in a bucket of an object store: one object per key, the same for every provider.

A provider is a `Bucket`: a few calls, each of them one request (a listing: one per page) that is never repeated inside.
"""

from __future__ import annotations

import builtins
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, Final, Protocol, TypeVar
from uuid import uuid4

from ..errors import StoreUnavailable
from . import _names
from .base import Blob, Outcome, Stat, check_folder, check_prefix, check_range, whole

T = TypeVar("T")

_PAUSES: Final = (0.05, 0.2)
"""Seconds before a read is tried a second and a third time. Writes are never repeated here."""


class Bucket(Protocol):
    """What a provider's client does. Names are whole: with the store's prefix. See `Store` for errors."""

    def put(self, name: str, data: bytes) -> Outcome:
        """Create an object unless the name is taken. One attempt; see `Store.create` for what is an error."""
        ...

    def get(self, name: str, start: int, length: int | None) -> Blob | None:
        """An object or a part of it, or None."""
        ...

    def list(self, folder: str) -> Iterable[Stat]:
        """Every object whose name begins with `folder`, which is empty or ends in `/`."""
        ...

    def names(self, folder: str) -> Iterable[str]:
        """What lies right below `folder`: the names of objects, and of folders without the slash."""
        ...

    def delete(self, names: Sequence[str]) -> builtins.list[str]:
        """Delete objects and give those refused."""
        ...

    def now(self, name: str) -> float:
        """The clock that stamps objects. `name` is free for an object to ask it by."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class BucketStore:
    """A store below `prefix` (empty, or ends in `/`) in a bucket. `url` is what opens it again."""

    parallel = 16

    def __init__(self, bucket: Bucket, prefix: str, url: str) -> None:
        self.url = url
        self._bucket = bucket
        self._prefix = prefix

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """Write `data` under `key` unless the key has a value. See `Store.create`.

        One request, whatever the size: only so does the condition hold for all of it. A file object is read into
        memory for that.
        """
        name = self._name(key)
        return self._bucket.put(name, whole(data))

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """The value of `key` or the asked-for part of it, or None. See `Store.get`."""
        check_range(start, length)
        name = self._name(key)
        return _patiently(lambda: self._bucket.get(name, start, length))

    def list(self, prefix: str) -> builtins.list[Stat]:
        """Every key that begins with `prefix`, ascending. See `Store.list`.

        Pages are read in ascending order of the names. A snapshot's name follows those of the entries that it
        replaces, so an entry that was deleted before its page was read has its replacement on this page or a later one.
        """
        check_prefix(prefix)
        folder = self._folder(prefix[: prefix.rfind("/") + 1])
        found = []
        for stat in _patiently(lambda: builtins.list(self._bucket.list(folder))):
            key = _names.to_key(stat.key[len(self._prefix) :])
            if key is not None and key.startswith(prefix):
                found.append(Stat(key=key, version=stat.version, modified=stat.modified))
        # Text sorts by code point, which is the order of the UTF-8 bytes. No two keys are equal.
        found.sort(key=lambda stat: stat.key)
        return found

    def names(self, prefix: str) -> builtins.list[str]:
        """The distinct segments that follow `prefix`, ascending. See `Store.names`."""
        check_folder(prefix)
        folder = self._folder(prefix)
        found = _patiently(lambda: builtins.list(self._bucket.names(folder)))
        keys = (_names.to_key(name[len(self._prefix) :]) for name in found)
        return sorted({key[len(prefix) :] for key in keys if key is not None and key != prefix[:-1]})

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """Delete the keys and return those refused. See `Store.delete`."""
        names = {self._name(key): key for key in keys}
        if not names:
            return []
        refused = _patiently(lambda: self._bucket.delete(builtins.list(names)))
        return [names[name] for name in refused]

    def now(self) -> float:
        """The provider's clock. May need the right to create, below `probe/`. See `Store.now`."""
        return _patiently(lambda: self._bucket.now(self._name(f"probe/{uuid4().hex}")))

    def close(self) -> None:
        """Let go of connections."""
        self._bucket.close()

    def _name(self, key: str) -> str:
        return _names.check_length(self._prefix + _names.to_name(key))

    def _folder(self, prefix: str) -> str:
        return self._prefix + _names.escape(prefix)


def _patiently(ask: Callable[[], T]) -> T:
    """Ask again when no answer came, twice at most: a reader should not see every hiccup of a network."""
    for pause in _PAUSES:
        try:
            return ask()
        except StoreUnavailable:
            time.sleep(pause * random.uniform(0.5, 1.0))
    return ask()
