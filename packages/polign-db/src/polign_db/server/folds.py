"""Folding in the background, for the holders whose entries this server acknowledged (R6)."""

from __future__ import annotations

import asyncio
import logging

from polign_recall import RecallError
from polign_recall.chain import Chain, Replay, agent_prefix, fold, fold_job, run_async
from polign_recall.state import fold_state
from polign_recall.stores import Store

from .logs import event
from .metrics import Metrics

FOLD_EVERY = 64
"""Entries between two folds; as many as the core's own writer waits for."""
AT_ONCE = 2
MOST_WAITING = 256
"""Agents; what is not folded now is folded with the next 64 entries."""


class Folds:
    """The folds under way, at most one per agent."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def after(self, store: Store, collection: str, agent_id: str, seq: int) -> None:
        """An entry was acknowledged: start folding up to it, when it is time."""
        key = (collection, agent_id)
        if seq % FOLD_EVERY or key in self._tasks or len(self._tasks) >= MOST_WAITING:
            return
        task = asyncio.get_running_loop().create_task(self._run(store, agent_id, seq))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def drain(self, seconds: float) -> None:
        """Wait for the folds under way. What is cut off is done again with the next fold."""
        if tasks := list(self._tasks.values()):
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()

    async def _run(self, store: Store, agent_id: str, seq: int) -> None:
        async with self._slots:
            try:
                refused = await _fold(store, agent_id, seq)
            except RecallError as error:
                self._metrics.folds.labels(error.code).inc()
                event("fold failed", logging.WARNING, agent=agent_id, error=str(error))
            else:
                self._metrics.folds.labels("ok").inc()
                if refused:
                    event("folded entries could not be deleted", logging.WARNING, agent=agent_id, keys=len(refused))


async def _fold(store: Store, agent_id: str, seq: int) -> list[str]:
    chain = Chain(agent_prefix(agent_id), agent_id)
    chain.replay = up_to(await run_async(chain.load(), store), seq)
    state = await asyncio.to_thread(lambda: fold_state(chain.prefix, chain.replay).to_json())
    job = fold_job(chain, state)
    return [] if job is None else await run_async(fold(job, chain.env), store)


def up_to(replay: Replay, seq: int) -> Replay:
    """A replay as it was when `seq` was its newest entry: whatever lies above may not be acknowledged yet."""
    cut = Replay.above(replay.snapshot)
    for link in replay.links:
        if link.entry.seq <= seq:
            cut.add(link)
    return cut
