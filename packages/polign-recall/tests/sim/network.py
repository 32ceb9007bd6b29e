"""The store of the simulation and the network in front of it, which loses, delays, repeats and refuses requests.

The store itself is plain: put-if-absent, GET, LIST, DELETE over a dictionary. All misbehaviour is the network's,
drawn from the world's one random generator. A step is carried out in *atomic parts* (one GET of a GetMany, one key of a
Delete, one page of a LIST), so that anything may happen between two of them.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polign_recall.chain.steps import Create, Delete, Get, GetMany, List, Now, Step
from polign_recall.errors import StoreDenied, StoreUnavailable
from polign_recall.stores.base import Blob, Outcome, Stat

Parts = Generator[None, None, Any]


@dataclass(slots=True)
class Faults:
    """Chances of what may happen to one request. All zero: a network that works."""

    lost: float = 0.0
    """A create is never applied; no answer (a reset, a timeout, S3's 409)."""
    late: float = 0.0
    """A create is applied at any later time, or never; no answer."""
    unanswered: float = 0.0
    """A create is applied at once; the answer is lost."""
    duplicated: float = 0.0
    """A create is applied and answered, and a copy of it stays in the network."""
    unavailable: float = 0.0
    """Any request is refused before it does anything (a 503)."""
    denied: float = 0.0
    """A create or delete meets expired credentials."""
    refused: float = 0.0
    """One key of a delete is refused."""
    late_delete: float = 0.0
    """One key of a delete is deleted at any later time, though it was reported as done."""


@dataclass(slots=True)
class Stored:
    data: bytes
    version: str
    modified: float


@dataclass(slots=True)
class Objects:
    """The objects of the store, and who watches them come and go.

    `content_tags`: equal bytes have equal version tags (S3's ETag), else every object has its own (GCS generations).
    `grain`: seconds between two modification times; `now_grain` between two answers of `now()`. 0: exact.
    """

    clock: Callable[[], float]
    content_tags: bool
    grain: float
    now_grain: float
    created: Callable[[str, bytes], None]
    deleting: Callable[[str, bytes], None]
    stored: dict[str, Stored] = field(default_factory=dict)
    serial: int = 0

    def now(self) -> float:
        return self._rounded(self.now_grain)

    def _rounded(self, grain: float) -> float:
        now = self.clock()
        return now // grain * grain if grain else now

    def create(self, key: str, data: bytes) -> bool:
        if key in self.stored:
            return False
        self.serial += 1
        tag = version_tag(data, None if self.content_tags else self.serial)
        self.stored[key] = Stored(data, tag, self._rounded(self.grain))
        self.created(key, data)
        return True

    def get(self, key: str) -> Blob | None:
        found = self.stored.get(key)
        return None if found is None else Blob(found.data, found.version, found.modified)

    def names(self, prefix: str, after: str = "") -> list[str]:
        return sorted(key for key in self.stored if key.startswith(prefix) and key > after)

    def stat(self, key: str) -> Stat:
        found = self.stored[key]
        return Stat(key, found.version, found.modified)

    def delete(self, key: str) -> None:
        if key in self.stored:
            self.deleting(key, self.stored[key].data)
            del self.stored[key]


def version_tag(data: bytes, serial: int | None) -> str:
    """The tag of an object: the digest of its bytes, or its number."""
    return hashlib.md5(data).hexdigest() if serial is None else f"v{serial}"


class Network:
    """Between the processes and the objects. `copies` are requests that may still be applied, at any time or never."""

    def __init__(self, objects: Objects, rng: random.Random, stats: Counter[str], faults: Faults, scan: bool) -> None:
        self.objects = objects
        self.rng = rng
        self.stats = stats
        self.faults = faults
        self.scan = scan
        """LIST reads page by page, in ascending order, while the store goes on changing."""
        self.weather = "fair"
        """`down`: every request is refused. `silent`: nothing is answered; some creates are applied all the same."""
        self.copies: list[tuple[str, bytes | None]] = []

    def perform(self, step: Step) -> Parts:
        """Carry a step out, with a yield between atomic parts; returns its answer or raises a StoreError."""
        self._refuse(writes=isinstance(step, (Create, Delete)))
        match step:
            case Create(key, data):
                return self._create(key, data)
            case Get(key):
                return self.objects.get(key)
            case GetMany(keys):
                return (yield from self._get_many(keys))
            case List(prefix):
                return (yield from self._list(prefix))
            case Delete(keys):
                return (yield from self._delete(keys))
            case Now():
                return self.objects.now()
        raise AssertionError(f"unknown step {step!r}")

    def _refuse(self, writes: bool) -> None:
        down = self.weather == "down" or (self.weather == "silent" and not writes)
        if down or self._happens(self.faults.unavailable):
            self.stats["503"] += 1
            raise StoreUnavailable("simulated 503")
        if writes and self._happens(self.faults.denied):
            self.stats["403"] += 1
            raise StoreDenied("simulated 403")

    def _create(self, key: str, data: bytes) -> Outcome:
        faults, silent = self.faults, self.weather == "silent"
        if self._happens(0.3 if silent else faults.lost):
            self.stats["lost"] += 1
            return Outcome.UNKNOWN
        if self._happens(0.4 if silent else faults.late):
            self.copies.append((key, data))
            self.stats["delayed"] += 1
            return Outcome.UNKNOWN
        created = self.objects.create(key, data)
        if self._happens(faults.duplicated):
            self.copies.append((key, data))
            self.stats["duplicated"] += 1
        if silent or self._happens(faults.unanswered):
            self.stats["answer lost"] += 1
            return Outcome.UNKNOWN
        return Outcome.CREATED if created else Outcome.EXISTS

    def _get_many(self, keys: Sequence[str]) -> Parts:
        """In any order, as parallel GETs arrive."""
        order = list(range(len(keys)))
        self.rng.shuffle(order)
        found: list[Blob | None] = [None] * len(keys)
        for index in order:
            found[index] = self.objects.get(keys[index])
            yield
        return found

    def _list(self, prefix: str) -> Parts:
        if not self.scan:
            return [self.objects.stat(key) for key in self.objects.names(prefix)]
        stats: list[Stat] = []
        while True:
            after = stats[-1].key if stats else ""
            page = self.objects.names(prefix, after)[: self.rng.randint(1, 4)]
            if not page:
                return stats
            stats += [self.objects.stat(key) for key in page]
            self.stats["LIST in pages"] += 1
            yield

    def _delete(self, keys: Sequence[str]) -> Parts:
        refused = []
        for key in keys:
            if self._happens(self.faults.refused):
                self.stats["delete refused"] += 1
                refused.append(key)
            elif self._happens(self.faults.late_delete):
                self.stats["delete delayed"] += 1
                self.copies.append((key, None))
            else:
                self.objects.delete(key)
            yield
        return refused

    def deliver(self, wanted: Collection[str] = ()) -> str:
        """Let a request that was on its way arrive: one for a `wanted` key, or else one that changes something."""
        copies = self.copies
        fresh = [index for index, (key, data) in enumerate(copies) if data is None or key not in self.objects.stored]
        wished = [index for index in fresh if copies[index][0] in wanted]
        index = self.rng.choice(wished or (fresh if fresh and self._happens(0.7) else range(len(copies))))
        key, data = copies.pop(index)
        done = self.apply(key, data)
        if not done and self._happens(0.7):
            copies.append((key, data))
        what, how = "DELETE" if data is None else "create", "is applied" if done else "finds the key taken"
        return f"a late {what} of {key} {how}"

    def apply(self, key: str, data: bytes | None) -> bool:
        """A late create, or with no data a late delete, reaches the store. False when the key is taken."""
        if data is None:
            self.objects.delete(key)
            return True
        created = self.objects.create(key, data)
        self.stats["late create applied"] += created
        return created

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance
