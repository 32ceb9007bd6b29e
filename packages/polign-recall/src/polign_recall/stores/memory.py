"""The store in the memory of this process, for tests and for trying things out: it ends with the process."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterable
from typing import BinaryIO, ClassVar

from .base import Blob, Outcome, Stat, check_folder, check_key, check_prefix, check_range, whole


class MemoryStore:
    """A store in a dictionary.

    `MemoryStore()` is a place of its own. `MemoryStore.named(name)` is one place for the whole process: two
    clients that open `memory:name` see the same data, also after one of them closed.
    """

    parallel = 1
    _named: ClassVar[dict[str, MemoryStore]] = {}
    _naming = threading.Lock()

    def __init__(self, name: str = "") -> None:
        self.url = f"memory:{name}"
        self._lock = threading.Lock()
        self._blobs: dict[str, Blob] = {}
        self._created = 0

    @classmethod
    def named(cls, name: str) -> MemoryStore:
        """The store of that name, made at first use."""
        with cls._naming:
            return cls._named.setdefault(name, cls(name))

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """Write `data` under `key` unless the key has a value. See `Store.create`; never UNKNOWN here."""
        check_key(key)
        value = whole(data)
        with self._lock:
            if key in self._blobs:
                return Outcome.EXISTS
            self._created += 1
            self._blobs[key] = Blob(data=value, version=str(self._created), modified=time.time())
        return Outcome.CREATED

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """The value of `key` or the asked-for part of it, or None. See `Store.get`."""
        check_key(key)
        check_range(start, length)
        blob = self._blobs.get(key)
        if blob is None or (start == 0 and length is None):
            return blob
        end = None if length is None else start + length
        return Blob(data=blob.data[start:end], version=blob.version, modified=blob.modified)

    def list(self, prefix: str) -> builtins.list[Stat]:
        """Every key that begins with `prefix`, ascending. See `Store.list`."""
        check_prefix(prefix)
        with self._lock:
            found = [(key, blob) for key, blob in self._blobs.items() if key.startswith(prefix)]
        # Text sorts by code point, which is the order of the UTF-8 bytes. No two keys are equal.
        found.sort(key=lambda item: item[0])
        return [Stat(key=key, version=blob.version, modified=blob.modified) for key, blob in found]

    def names(self, prefix: str) -> builtins.list[str]:
        """The distinct segments that follow `prefix`, ascending. See `Store.names`."""
        check_folder(prefix)
        with self._lock:
            keys = [key for key in self._blobs if key.startswith(prefix)]
        return sorted({key[len(prefix) :].split("/", 1)[0] for key in keys})

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """Delete the keys. Nothing is ever refused here, so the answer is empty. See `Store.delete`."""
        for key in keys:
            check_key(key)
            with self._lock:
                self._blobs.pop(key, None)
        return []

    def now(self) -> float:
        """The clock that stamps `modified`: this machine's."""
        return time.time()

    def close(self) -> None:
        """Nothing to let go of; a named store keeps its data for the next client of this process."""
