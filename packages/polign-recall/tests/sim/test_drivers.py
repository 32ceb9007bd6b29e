"""The synchronous and the asynchronous driver do the same, and a write that is interrupted in either can be settled."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, TypeVar

import msgspec
import pytest
from polign_recall.chain import Chain, Env, Host, Replay, erase, fold, fold_job, folded, run, run_async
from polign_recall.chain.steps import Create, GetMany, Steps
from polign_recall.errors import LeaseHeld, StoreError, StoreUnavailable
from polign_recall.stores import MemoryStore, Outcome

T = TypeVar("T")
WAIT = 10.0
"""Seconds after which a test gives up waiting for a thread."""

Runner = Callable[[Steps[Any], MemoryStore], Awaitable[Any]]


async def in_this_thread(steps: Steps[T], store: MemoryStore) -> T:
    return run(steps, store)


DRIVERS = {"sync": in_this_thread, "async": run_async}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Runner:
    found: Runner = DRIVERS[request.param]
    return found


def new_chain() -> Chain:
    """A chain whose every byte is decided here."""
    numbers = itertools.count(1)
    env = Env(wall=lambda: "now", rng=random.Random(0), new_put=lambda: f"put{next(numbers)}", dead=lambda host: False)
    return Chain("agents/a/", "a", env)


def claim(chain: Chain, holder: str = "me") -> Steps[Replay]:
    return chain.acquire(ttl=60.0, holder=holder, host=Host())


def append(chain: Chain, *values: str) -> Steps[Any]:
    return chain.append("records", [msgspec.Raw(msgspec.json.encode(value)) for value in values])


class Gate(MemoryStore):
    """A store whose next create waits, or is interrupted, before or after it is applied."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.entered, self.go_on, self.left = threading.Event(), threading.Event(), threading.Event()
        self.interrupt: type[BaseException] | None = None
        self.applies = True

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        if not self.armed:
            return super().create(key, data)
        self.armed = False
        outcome = super().create(key, data) if self.applies else Outcome.UNKNOWN
        if self.interrupt is not None:
            raise self.interrupt
        self.entered.set()
        self.go_on.wait(WAIT)
        self.left.set()
        return outcome


class Failing(MemoryStore):
    """A store that is unavailable for the first few calls of each kind."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = {"create": times, "get": times, "list": times, "now": times}

    def _fail(self, kind: str) -> None:
        self.left[kind] -= 1
        if self.left[kind] >= 0:
            raise StoreUnavailable("not just now")

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        self._fail("create")
        return super().create(key, data)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Any:
        self._fail("get")
        return super().get(key, start, length)

    def list(self, prefix: str) -> Any:
        self._fail("list")
        return super().list(prefix)

    def now(self) -> float:
        self._fail("now")
        return super().now()


class Parallel(MemoryStore):
    """A store that answers several GETs at once, the first one last."""

    parallel = 4

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(3)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Any:
        self.together.wait(WAIT)
        return super().get(key, start, length)


async def story(driver: Runner, store: MemoryStore) -> list[Any]:
    """A holder's whole life; what each step of it gave."""
    one, two = new_chain(), new_chain()
    told: list[Any] = [(await driver(claim(one), store)).seq]
    told += [(await driver(append(one, f"{number}", "and more"), store)).raw for number in range(5)]
    job = fold_job(one, b"[]")
    assert job is not None
    told.append(await driver(fold(job, one.env), store))
    folded(one, job)
    with pytest.raises(LeaseHeld) as held:
        await driver(claim(two, "you"), store)
    told += [held.value.holder, held.value.since, held.value.code]
    told.append((await driver(one.append("release"), store)).raw)
    replay = await driver(claim(two, "you"), store)
    told += [replay.base, replay.seq, replay.digest, replay.claims]
    told.append(await driver(erase(two, b"[]"), store))
    return told


def contents(store: MemoryStore) -> dict[str, bytes]:
    found = {stat.key: store.get(stat.key) for stat in store.list("")}
    return {key: blob.data for key, blob in found.items() if blob is not None}


async def test_both_drivers_do_the_same():
    stores = [MemoryStore(), MemoryStore()]
    told = [await story(driver, store) for driver, store in zip(DRIVERS.values(), stores, strict=True)]
    assert told[0] == told[1]
    assert contents(stores[0]) == contents(stores[1])


async def test_a_store_error_reaches_the_step_that_met_it(driver: Runner):
    """Each kind of call fails twice and is tried again: the story ends the same."""
    failing, well = Failing(2), MemoryStore()
    assert await story(driver, failing) == await story(driver, well)
    assert contents(failing) == contents(well)
    assert max(failing.left.values()) < 0


async def test_an_error_that_nobody_handles_comes_out(driver: Runner):
    def give_up() -> Steps[None]:
        yield Create("a/b", b"")

    with pytest.raises(StoreError):
        await driver(give_up(), Failing(1))


async def test_gets_run_together_and_come_back_in_order(driver: Runner):
    def read() -> Steps[Any]:
        return (yield GetMany(["c", "a", "b"]))

    store = Parallel()
    for key in "abc":
        store.create(key, key.encode())
    assert [blob.data for blob in await driver(read(), store)] == [b"c", b"a", b"b"]


@pytest.mark.parametrize("applies", [True, False])
async def test_a_cancelled_append_is_unknown_until_it_is_settled(applies: bool):
    store, chain = Gate(), new_chain()
    await run_async(claim(chain), store)
    store.armed, store.applies = True, applies
    task = asyncio.create_task(coroutine(run_async(append(chain, "once"), store)))
    assert await asyncio.to_thread(store.entered.wait, WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.go_on.set()
    assert await asyncio.to_thread(store.left.wait, WAIT)
    await settled_once(chain, store, run_async)


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
async def test_an_interrupted_append_is_unknown_until_it_is_settled(applies: bool, interrupt: type[BaseException]):
    store, chain = Gate(), new_chain()
    run(claim(chain), store)
    store.armed, store.applies, store.interrupt = True, applies, interrupt
    with pytest.raises(interrupt):
        run(append(chain, "once"), store)
    await settled_once(chain, store, in_this_thread)


async def settled_once(chain: Chain, store: MemoryStore, driver: Runner) -> None:
    """The write that was interrupted is pending; settling it lands it exactly once, and the next one follows."""
    assert chain.pending is not None
    assert not chain.pending.clean
    link = await driver(chain.settle(), store)
    assert chain.pending is None
    await driver(append(chain, "twice"), store)
    replay = run(new_chain().load(), store)
    assert [bytes(raw) for found in replay.links for raw in found.entry.records] == [b'"once"', b'"twice"']
    assert replay.links[1].raw == link.raw


async def coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable
