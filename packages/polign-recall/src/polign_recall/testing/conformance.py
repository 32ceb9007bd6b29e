"""The conformance suite for stores: what the chain relies on, as tests that any store can be put through.

Subclass `StoreConformance` in a test module of your own and give it a `store` fixture:

    import pytest

    pytest.register_assert_rewrite("polign_recall.testing.conformance")  # optional: failures then show values

    from polign_recall.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            store = MyStore(...)
            yield store
            store.close()

Every test works below a prefix of its own, so what the store connects to need not be empty or new. A test may
close the store it is given. Needs pytest.

A store that is right when nobody else is about may still be wrong in a race, so run the suite with its own
numbers at least once; the class attributes make it smaller for a store that is slow or costs money by the
request.
"""

# ruff: noqa: D102 - the tests' names say what they check

from __future__ import annotations

import io
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from uuid import uuid4

import pytest

from ..errors import Invalid
from ..stores.base import Outcome, Stat, Store

CREATED, EXISTS = Outcome.CREATED, Outcome.EXISTS

CORE_SEGMENTS = [
    "a%2Fb",
    "%2E%2E",
    "%2e%2e",
    "per%25cent",
    "UPPER",
    "upper",
    "~tilde",
    "dot.ted",
    "trailing.",
    "under_score",
    "-dash",
    "--",
    "equals=plus+",
    "x" * 240,
    "%C3%9C" * 33,
    "00000000000000000001",
    "00000000000000000001.snap",
    "00000000000000000001-00000000000000000002",
]
"""What the core makes of agent ids and sequence numbers: percent-encoded, so unreserved characters and `%`
only."""

OTHER_SEGMENTS = [
    "two words",
    " leading and trailing ",
    "Ünï",
    "e\u0301",
    "\u00e9",
    "日本語",
    "🦊",
    ".hidden",
    "...",
    ".tmp-not-temporary",
    "back\\slash",
    "new\nline",
    "tab\there",
    "\x7f",
    "^5C",
    "caret^",
    "%",
    "a%",
    "?query#fragment&amp;",
    "'\"`$(x);|<>*",
    "CON",
    "c:",
]
"""What else a key may hold by the contract, whoever made it."""


class StoreConformance:
    """Tests of one store; see the module for how to use it."""

    many_keys = 2_500
    """Keys of the listing that must be complete: more than the 1,000 that object stores give in one page."""
    creators = 32
    """Threads that race to create the same key."""
    contended_keys = 200
    """Keys that they race for."""
    busy_creates = 400
    """Entries that are written while listings are checked."""
    workers = 8
    """Threads that fill the store where order does not matter."""
    clock_grain = 0.05
    """Seconds after which two writes have different times. Version tags made of times need as much between
    them."""
    folders_linger = False
    """Whether `names` may show a folder for a while after its last key was deleted."""

    # -- create and get
    # ----------------------------------------------------------------------------------------

    def test_create_then_get(self, store: Store) -> None:
        key = f"{_area()}key"
        assert store.create(key, b"value") is CREATED
        blob = store.get(key)
        assert blob is not None
        assert blob.data == b"value"

    def test_create_never_overwrites(self, store: Store) -> None:
        key = f"{_area()}key"
        assert store.create(key, b"first") is CREATED
        before = store.get(key)
        assert store.create(key, b"second") is EXISTS
        assert store.create(key, b"first") is EXISTS, "also when the bytes are the same"
        assert store.create(key, io.BytesIO(b"third")) is EXISTS
        assert store.get(key) == before

    @pytest.mark.parametrize(
        "value",
        [b"", b"\0", bytes(range(256)) * 3, b"\r\n\n\r", b"\xef\xbb\xbf\xff\xfe", b"x" * 4096],
        ids=["empty", "nul", "all-bytes", "newlines", "marks", "a-page"],
    )
    def test_bytes_come_back_as_they_were(self, store: Store, value: bytes) -> None:
        key = f"{_area()}key"
        assert store.create(key, value) is CREATED
        assert _data(store, key) == value

    def test_large_value(self, store: Store) -> None:
        key, value = f"{_area()}key", os.urandom(5_000_000)
        assert store.create(key, value) is CREATED
        assert _data(store, key) == value

    @pytest.mark.parametrize("size", [0, 1, 3_000_001])
    def test_value_from_a_file_object(self, store: Store, size: int) -> None:
        key, value = f"{_area()}key", os.urandom(size)
        source = io.BytesIO(b"before" + value)
        source.seek(len(b"before"))
        assert store.create(key, source) is CREATED
        assert _data(store, key) == value, "from where it stood, to its end"

    def test_visible_at_once(self, store: Store) -> None:
        area = _area()
        for number in range(20):
            key = f"{area}{number:02d}"
            assert store.create(key, b"%d" % number) is CREATED
            assert _data(store, key) == b"%d" % number
            assert [stat.key for stat in store.list(area)] == [f"{area}{n:02d}" for n in range(number + 1)]

    def test_absent_is_none(self, store: Store) -> None:
        area = _area()
        assert store.get(f"{area}key") is None
        assert store.get(f"{area}key", 3, 4) is None
        store.create(f"{area}folder/key", b"value")
        assert store.get(f"{area}folder") is None, "what keys lie below is not a key"
        assert store.get(f"{area}folder/key/below") is None
        assert store.get(f"{area}fold") is None

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (0, 10, b"0123456789"),
            (0, 4, b"0123"),
            (3, 4, b"3456"),
            (3, None, b"3456789"),
            (9, 1, b"9"),
            (8, 100, b"89"),
            (4, 0, b""),
            (10, None, b""),
            (10, 5, b""),
            (1000, 5, b""),
        ],
    )
    def test_part_of_a_value(self, store: Store, start: int, length: int | None, expected: bytes) -> None:
        key = f"{_area()}key"
        store.create(key, b"0123456789")
        whole, part = store.get(key), store.get(key, start, length)
        assert whole is not None
        assert part is not None
        assert part.data == expected
        assert (part.version, part.modified) == (whole.version, whole.modified), "they are the whole value's"

    def test_part_of_an_empty_value(self, store: Store) -> None:
        key = f"{_area()}key"
        store.create(key, b"")
        for part in (store.get(key, 0, 10), store.get(key, 5), store.get(key, 0, 0)):
            assert part is not None
            assert part.data == b""

    # -- keys
    # --------------------------------------------------------------------------------------------------

    def test_keys_of_the_core(self, store: Store) -> None:
        self._check_segments(store, CORE_SEGMENTS)

    def test_keys_of_others(self, store: Store) -> None:
        self._check_segments(store, OTHER_SEGMENTS)

    def _check_segments(self, store: Store, segments: list[str]) -> None:
        area = _area()
        keys = [f"{area}{segment}" for segment in segments]
        keys += [f"{area}in/{segment}/x" for segment in segments]
        for key in keys:
            assert store.create(key, key.encode()) is CREATED, f"{key!r} is taken for another key"
        for key in keys:
            assert _data(store, key) == key.encode()
        assert [stat.key for stat in store.list(area)] == _in_order(keys)
        assert store.names(f"{area}in/") == _in_order(segments)
        assert store.delete(keys) == []
        assert store.list(area) == []

    @pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", "\ud800"])
    def test_keys_that_are_none(self, store: Store, key: str) -> None:
        with pytest.raises(Invalid):
            store.create(key, b"value")
        with pytest.raises(Invalid):
            store.get(key)
        with pytest.raises(Invalid):
            store.delete([key])

    @pytest.mark.parametrize("prefix", ["/", "/a", "a//", "../", "a/./", "a\0"])
    def test_prefixes_that_are_none(self, store: Store, prefix: str) -> None:
        with pytest.raises(Invalid):
            store.list(prefix)
        with pytest.raises(Invalid):
            store.names(prefix)

    def test_parts_that_are_none(self, store: Store) -> None:
        with pytest.raises(Invalid):
            store.get("key", -1)
        with pytest.raises(Invalid):
            store.get("key", 0, -1)

    # -- list and names
    # ----------------------------------------------------------------------------------------

    def test_list_is_complete_and_in_order(self, store: Store) -> None:
        area = _area()
        keys = [f"{area}log/{number:020d}" for number in range(1, self.many_keys + 1)]
        keys[::10] = [f"{key}.snap" for key in keys[::10]]
        shuffled = random.Random(1).sample(keys, len(keys))
        with ThreadPoolExecutor(self.workers) as pool:
            outcomes = list(pool.map(lambda key: store.create(key, b"value"), shuffled))
        assert set(outcomes) == {CREATED}
        assert [stat.key for stat in store.list(f"{area}log/")] == _in_order(keys)
        assert [stat.key for stat in store.list(area)] == _in_order(keys)
        assert store.names(f"{area}log/") == [key.rpartition("/")[2] for key in _in_order(keys)]
        assert store.delete(keys) == []
        assert store.list(area) == []

    def test_prefixes(self, store: Store) -> None:
        area = _area()
        for key in ("a/1", "a/10", "a/2/x", "a/2/y", "a-b/1", "a.b/1", "ab/1", "A/1", "b"):
            store.create(f"{area}{key}", b"value")

        def listed(prefix: str) -> list[str]:
            return [stat.key.removeprefix(area) for stat in store.list(f"{area}{prefix}")]

        assert listed("a/") == ["a/1", "a/10", "a/2/x", "a/2/y"]
        assert listed("a/1") == ["a/1", "a/10"]
        assert listed("a/10") == ["a/10"]
        assert listed("a/2") == ["a/2/x", "a/2/y"]
        assert listed("a/2/") == ["a/2/x", "a/2/y"]
        assert listed("a") == ["a-b/1", "a.b/1", "a/1", "a/10", "a/2/x", "a/2/y", "ab/1"]
        assert listed("a-") == ["a-b/1"]
        assert listed("b") == ["b"]
        assert listed("b/") == []
        assert listed("a/3") == []
        assert listed("none/such/") == []
        assert listed("") == ["A/1", "a-b/1", "a.b/1", "a/1", "a/10", "a/2/x", "a/2/y", "ab/1", "b"]

    def test_every_key(self, store: Store) -> None:
        key = f"{_area()}key"
        store.create(key, b"value")
        keys = [stat.key for stat in store.list("")]
        assert key in keys
        assert keys == _in_order(keys)
        assert key.partition("/")[0] in store.names("")

    def test_names(self, store: Store) -> None:
        area = _area()
        keys = [f"{area}{key}" for key in ("x/log/1", "x/log/2", "x-1/log/1", "y%2Fz/outputs/a", "file")]
        for key in keys:
            store.create(key, b"value")
        assert store.names(area) == ["file", "x", "x-1", "y%2Fz"]
        assert store.names(f"{area}x/") == ["log"]
        assert store.names(f"{area}x/log/") == ["1", "2"]
        assert store.names(f"{area}none/") == []
        store.delete([f"{area}x/log/1", f"{area}x/log/2"])
        if not self.folders_linger:
            assert store.names(area) == ["file", "x-1", "y%2Fz"], "a folder without keys has no name"
        assert store.names(f"{area}x/log/") == []
        with pytest.raises(Invalid):
            store.names(f"{area}x")

    # -- times and versions
    # ------------------------------------------------------------------------------------

    def test_times_are_the_stores_own(self, store: Store) -> None:
        area = _area()
        times = [store.now()]
        for number in range(3):
            key = f"{area}{number}"
            store.create(key, b"value")
            blob = store.get(key)
            assert blob is not None
            times += [blob.modified, store.now()]
        for earlier, later in pairwise(times):
            assert later >= earlier - 1, f"time goes back: {times}"  # stamps of one-second grain
        assert times[-1] - times[0] < 300, f"not the same clock: {times}"

    def test_list_and_get_agree(self, store: Store) -> None:
        area = _area()
        for number in range(5):
            store.create(f"{area}{number}", b"value %d" % number)
        for stat in store.list(area):
            blob = store.get(stat.key)
            assert blob is not None
            assert (stat.version, stat.modified) == (blob.version, blob.modified)
        assert store.list(area) == store.list(area)

    def test_version_changes_when_a_key_is_made_again(self, store: Store) -> None:
        key = f"{_area()}key"
        versions = []
        for value in (b"one", b"two", b"six"):
            assert store.create(key, value) is CREATED
            blob = store.get(key)
            assert blob is not None
            versions.append(blob.version)
            assert store.delete([key]) == []
            time.sleep(self.clock_grain)
        assert len(set(versions)) == 3

    # -- delete
    # ------------------------------------------------------------------------------------------------

    def test_delete(self, store: Store) -> None:
        area = _area()
        keys = [f"{area}{number:03d}" for number in range(30)]
        for key in keys:
            store.create(key, b"value")
        assert store.delete(keys[:20]) == []
        assert [stat.key for stat in store.list(area)] == keys[20:]
        assert store.get(keys[0]) is None
        assert store.create(keys[0], b"again") is CREATED
        assert _data(store, keys[0]) == b"again"

    def test_delete_of_what_is_not_there(self, store: Store) -> None:
        area = _area()
        assert store.delete([]) == []
        assert store.delete([f"{area}none", f"{area}none/such"]) == []
        store.create(f"{area}folder/key", b"value")
        assert store.delete(iter([f"{area}folder", f"{area}folder/key/below"])) == []
        assert _data(store, f"{area}folder/key") == b"value"
        assert store.delete([f"{area}folder/key", f"{area}folder/key", f"{area}other"]) == []
        assert store.get(f"{area}folder/key") is None

    # -- at the same time
    # --------------------------------------------------------------------------------------

    def test_many_read_at_once(self, store: Store) -> None:
        area = _area()
        keys = [f"{area}{number:02d}" for number in range(30)]
        with ThreadPoolExecutor(max(2, store.parallel)) as pool:
            assert set(pool.map(lambda key: store.create(key, key.encode()), keys)) == {CREATED}
            assert list(pool.map(lambda key: _data(store, key), keys)) == [key.encode() for key in keys]

    def test_racing_creators_have_one_winner(self, store: Store) -> None:
        """A creator that gets no answer sends again, as the chain does; EXISTS may then mean its own first attempt."""
        area = _area()
        keys = [f"{area}{number:04d}" for number in range(self.contended_keys)]
        barrier = threading.Barrier(self.creators, timeout=120)

        def race(creator: int) -> list[list[Outcome]]:
            outcomes = []
            for key in keys:
                barrier.wait()
                outcomes.append(_create_surely(store, key, b"creator %d" % creator))
            return outcomes

        with ThreadPoolExecutor(self.creators) as pool:
            columns = list(pool.map(race, range(self.creators)))
        for key, answers in zip(keys, zip(*columns, strict=True), strict=True):
            winner = int(_data(store, key).removeprefix(b"creator "))
            told = [creator for creator, outcomes in enumerate(answers) if CREATED in outcomes]
            assert told in ([winner], []), f"{len(told)} winners of {key}"
            assert told or Outcome.UNKNOWN in answers[winner], "the winner was not told"

    def test_list_misses_nothing_created_before_it(self, store: Store) -> None:
        area = _area()
        done: list[str] = []

        def create(worker: int) -> None:
            for number in random.Random(worker).sample(range(self.busy_creates), self.busy_creates):
                key = f"{area}{number:04d}-{worker}"
                assert store.create(key, b"value") is CREATED
                done.append(key)

        with _background(create, 2) as running:
            while running():
                before = set(done)
                keys = [stat.key for stat in store.list(area)]
                assert keys == _in_order(keys)
                assert before <= set(keys)
        assert {stat.key for stat in store.list(area)} == set(done)
        assert len(done) == 2 * self.busy_creates

    def test_list_never_sees_a_hole_while_entries_are_folded(self, store: Store) -> None:
        """Entry after entry is written, and every few are replaced by a snapshot, as the chain does it.

        A listing that shows neither an entry nor a snapshot that contains it has lost an acknowledged record.
        """
        area = f"{_area()}log/"
        acknowledged = [0]

        def append_and_fold(_: int) -> None:
            for seq in range(1, self.busy_creates + 1):
                assert store.create(f"{area}{seq:020d}", b"entry") is CREATED
                acknowledged.append(seq)
                if seq % 8 == 0:
                    assert store.create(f"{area}{seq:020d}.snap", b"state") is CREATED
                    assert store.delete([f"{area}{n:020d}" for n in range(max(seq - 16, 1), seq)]) == []
                    assert store.delete([f"{area}{seq - 16:020d}.snap"]) == [] or seq <= 16

        with _background(append_and_fold, 1) as running:
            while running():
                before = acknowledged[-1]
                seen = _newest(store.list(area))
                assert seen >= before, f"entry {before} was acknowledged, and the newest listed is {seen}"

    def test_close_twice(self, store: Store) -> None:
        store.close()
        store.close()


def _area() -> str:
    """A prefix that no other test uses."""
    return f"conformance/{uuid4().hex[:16]}/"


def _in_order(keys: list[str]) -> list[str]:
    return sorted(keys, key=lambda key: key.encode())


def _data(store: Store, key: str) -> bytes:
    blob = store.get(key)
    assert blob is not None, f"{key!r} is absent"
    return blob.data


def _create_surely(store: Store, key: str, value: bytes) -> list[Outcome]:
    """Create a key until there is an answer; gives all of them."""
    outcomes = []
    for _ in range(10):
        outcomes.append(store.create(key, value))
        if outcomes[-1] is not Outcome.UNKNOWN:
            return outcomes
    raise AssertionError(f"no answer says whether {key} was written")


def _newest(stats: list[Stat]) -> int:
    return max((int(stat.key.rpartition("/")[2].removesuffix(".snap")) for stat in stats), default=0)


@contextmanager
def _background(work: Callable[[int], None], workers: int) -> Iterator[Callable[[], bool]]:
    """Run `work` in threads; gives a function that tells whether any is still at it. Raises what they
    raised."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, worker) for worker in range(workers)]
        yield lambda: any(not future.done() for future in futures)
        for future in futures:
            future.result()
