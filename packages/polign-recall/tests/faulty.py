"""A real store whose calls go wrong as told: refused, unanswered, slow, or cut off altogether."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from polign_recall import Client, StoreUnavailable
from polign_recall.chain import Chain, agent_prefix, run
from polign_recall.stores import MemoryStore, Outcome

LOG = "agents/a/log/"
"""Where the entries of the agent "a" are."""
Fault = Callable[[Callable[[], Any]], Any]
"""Given the real call: makes it or not, and gives an answer or raises."""


def answer_lost(real: Callable[[], Any]) -> Outcome:
    """It was applied, and nobody heard of it."""
    real()
    return Outcome.UNKNOWN


def request_lost(_real: Callable[[], Any]) -> Outcome:
    """It never arrived, and nobody knows."""
    return Outcome.UNKNOWN


def away(_real: Callable[[], Any]) -> Any:
    """The store answers 503."""
    raise StoreUnavailable("503: slow down")


class Faulty:
    """A store in memory. `faults` go to the calls of an operation on keys with a text in them, one after another."""

    parallel = 1

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.url = self.store.url
        self.calls: list[tuple[str, str]] = []
        self.dead: Exception | None = None
        self._faults: dict[tuple[str, str], list[Fault]] = {}

    def fail(self, operation: str, part: str, faults: Iterable[Fault]) -> None:
        """The next calls of `operation` on keys that have `part` in them go wrong like this."""
        self._faults[operation, part] = list(faults)

    def left(self, operation: str, part: str) -> int:
        """How many of those faults have not happened yet."""
        return len(self._faults[operation, part])

    def count(self, operation: str, part: str) -> int:
        """How many calls of an operation there were on such keys."""
        return sum(1 for name, key in self.calls if name == operation and part in key)

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        return self._call("create", key, lambda: self.store.create(key, data))

    def get(self, key: str, start: int = 0, length: int | None = None) -> Any:
        return self._call("get", key, lambda: self.store.get(key, start, length))

    def list(self, prefix: str) -> Any:
        return self._call("list", prefix, lambda: self.store.list(prefix))

    def names(self, prefix: str) -> Any:
        return self._call("names", prefix, lambda: self.store.names(prefix))

    def delete(self, keys: Iterable[str]) -> Any:
        listed = [*keys]
        return self._call("delete", " ".join(listed), lambda: self.store.delete(listed))

    def now(self) -> float:
        return self._call("now", "", self.store.now)

    def close(self) -> None:
        pass

    def _call(self, operation: str, key: str, real: Callable[[], Any]) -> Any:
        self.calls.append((operation, key))
        if self.dead is not None:
            raise self.dead
        for (name, part), faults in self._faults.items():
            if faults and name == operation and part in key:
                return faults.pop(0)(real)
        return real()


def contents(store: Faulty) -> list[str]:
    """What a process that knows nothing finds recorded for the agent "a": the contents of all turns."""
    reader = Client(store=store.store).resume("a", defer_lease=True)
    turns = list(reader.turns())
    assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
    assert reader.context.recent_turns == turns[-len(reader.context.recent_turns) :]
    return [str(turn.content) for turn in turns]


def kinds(store: Faulty) -> list[str]:
    """The kinds of the entries that the chain of the agent "a" has above its newest snapshot."""
    return [link.entry.kind for link in run(Chain(agent_prefix("a"), "a").load(), store.store).links]


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread does, for a bounded time."""
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")
