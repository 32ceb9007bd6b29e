"""Carry protocol generators out on a real store: synchronously (the writer thread) or asynchronously (a server)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import RecallError, StoreError
from ..stores.base import Blob, Store
from .steps import Create, Delete, Get, GetMany, List, Now, Sleep, Step, Steps, T


def run(steps: Steps[T], store: Store) -> T:
    """Run a generator to its end on `store`, in this thread, and give its result."""
    return drive(steps, lambda step: perform(step, store))


def drive(steps: Steps[T], perform: Callable[[Any], Any]) -> T:
    """Run a generator to its end: `perform` carries out each step, but for the pauses, and its errors go back in."""
    answer: Any = None
    problem: RecallError | None = None
    while True:
        try:
            step = steps.send(answer) if problem is None else steps.throw(problem)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = problem = None
        try:
            if isinstance(step, Sleep):
                time.sleep(step.seconds)
            else:
                answer = perform(step)
        except RecallError as error:
            problem = error


async def run_async(steps: Steps[T], store: Store) -> T:
    """Run a generator to its end from a coroutine: the store's calls run in threads, never on the event loop.

    When the coroutine is cancelled, a write under way is unknown, as after a crash: settle it before the next one.
    """
    import asyncio  # here, because it is a quarter of what `import polign_recall` takes, and few need it

    answer: Any = None
    problem: StoreError | None = None
    while True:
        try:
            step = steps.send(answer) if problem is None else steps.throw(problem)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = problem = None
        try:
            if isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
            else:
                answer = await asyncio.to_thread(perform, step, store)
        except StoreError as error:
            problem = error


def perform(step: Step, store: Store) -> Any:
    """Carry one step out; see `steps` for what each answers."""
    match step:
        case Create(key, data):
            return store.create(key, data)
        case Get(key):
            return store.get(key)
        case GetMany(keys):
            return _get_many(keys, store)
        case List(prefix):
            return store.list(prefix)
        case Delete(keys):
            return store.delete(keys)
        case Now():
            return store.now()
        case Sleep(seconds):
            return time.sleep(seconds)


def _get_many(keys: Sequence[str], store: Store) -> list[Blob | None]:
    if store.parallel < 2 or len(keys) < 2:
        return [store.get(key) for key in keys]
    with ThreadPoolExecutor(min(store.parallel, len(keys))) as pool:
        return list(pool.map(store.get, keys))
