"""The writer: one thread per held agent, the only one that writes its chain.

Callers put records into its queue and wait on a future, or do not. What is queued is committed as one entry; when
nothing is, the lease is renewed every third of its ttl, whatever the callers' threads are doing. Folding runs in a
thread of its own beside it.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from .chain import Chain, FoldJob, Replay, fold, fold_job, folded
from .chain.entries import Kind, Link
from .chain.steps import Steps
from .errors import Closed, Corrupt, Invalid, LeaseLost, LeaseNotHeld, RecallError, StoreUnavailable, WriteUnknown
from .records import ActionStarted, Record, Turn, decode, encode
from .state import State, fold_state
from .tokens import unload_idle

log = logging.getLogger("polign_recall")

FOLD_AFTER = 64
"""Entries above the newest snapshot at which folding starts: a reader gets about so many objects at the most."""
FOLD_AGAIN_AFTER = 16
"""Entries after which a fold that failed is tried again."""
LINGER = 0.02
"""Seconds that records which nobody waits for yet are held back for others to be committed with them."""
MAX_BATCH_BYTES = 4_000_000
"""A group commit is closed at this size."""
T = TypeVar("T")


class Run(Protocol):
    """Carries a generator of the chain out, in the calling thread; see `Backend.run`."""

    def __call__(self, steps: Steps[T], /) -> T: ...  # noqa: D102


class _Numbers(NamedTuple):
    """The seqs of the newest turn and of the newest action."""

    turn: int
    action: int


class _Waiter:
    """What one thread waits on for a job: a Future, made for many, often takes 60 us more to wake it."""

    __slots__ = ("_done", "_error", "_result")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def set_result(self, result: Any) -> None:
        self._result = result
        self._done.release()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._done.release()

    def result(self, timeout: float | None = None) -> Any:
        """The job's result, once. Raises what it failed with, and TimeoutError after so many seconds."""
        if not self._done.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


class _Job:
    """Records to append, or a command to run on the writer's thread; one that lingers waits for others."""

    __slots__ = ("command", "done", "linger", "records")

    def __init__(
        self, records: Sequence[Record] = (), *, command: Callable[[], Any] | None = None,
        done: Future[Any] | _Waiter | None = None, linger: bool = False,
    ) -> None:  # fmt: skip
        self.records = records
        self.command = command
        self.done = done or _Waiter()
        self.linger = linger


class Writer:
    """Owns a chain and its state; all its methods may be called from any thread."""

    def __init__(self, chain: Chain, run: Run) -> None:
        self.chain = chain
        self._run = run
        self.state = State()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._folding: threading.Thread | None = None
        self._entry = threading.Lock()
        self._acquiring = threading.Lock()
        self._reading = threading.Lock()
        self._open = False
        self._closed = False
        self._pid = os.getpid()
        self._written = _Numbers(0, 0)
        self._failing = False
        self._fold_at = FOLD_AFTER

    # ---- any thread ------------------------------------------------------------------------------------------------

    def acquire(self, claim: Steps[Replay]) -> None:
        """Take the lease by running `Chain.acquire`'s generator, in the caller's thread. Raises LeaseHeld."""
        self.check_usable()
        with self._acquiring:
            if self.chain.owned:
                return
            self._open = False
            replay = self._run(claim)
            try:
                with self._reading:
                    self.state = fold_state(self.chain.prefix, replay)
            except Corrupt:
                self._release_quietly()
                raise
            self._open, self._fold_at = True, FOLD_AFTER
            if self._thread is None:
                name = f"recall-writer-{self.chain.agent_id}"
                self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
                self._thread.start()
            self._put(_Job(command=lambda: None))  # wakes the thread, which minds the renewals from here on

    def read(self) -> None:
        """Read the state from the store, unless this process owns the chain: then it is at hand."""
        if self.chain.owned:
            return
        state = fold_state(self.chain.prefix, self._run(self.chain.load()))
        with self._reading:
            if not self.chain.owned:  # else another thread has acquired it meanwhile, and knows more
                self.state = state

    @property
    def owned(self) -> bool:
        """Whether this process, not one that it was forked from, owns the chain."""
        return self.chain.owned and not self._closed and os.getpid() == self._pid

    def submit(self, records: Sequence[Record], *, linger: bool = False) -> Future[list[int]]:
        """Queue records, in order, to be committed together; the future gives seqs of turns and actions, 0 for others.

        Those that linger are committed with the next ones, or by themselves after `LINGER` seconds.
        Raises at once what is known already: LeaseLost, LeaseNotHeld, Closed.
        """
        self.check()
        if not records:
            nothing: Future[list[int]] = Future()
            nothing.set_result([])
            return nothing
        future: Future[list[int]] = Future()
        future.set_running_or_notify_cancel()  # what is queued will be done: a cancelled waiter cannot undo it
        self._put(_Job(records, done=future, linger=linger))
        return future

    def write(self, records: Sequence[Record]) -> list[int]:
        """`submit`, and wait until the records are durable. Raises what became of them."""
        self.check()
        seqs: list[int] = self._put(_Job(records)).result()
        return seqs

    def call(self, command: Callable[[], T]) -> T:
        """Run a command on the writer's thread, after what was queued before it, and give its result."""
        self.check()
        result: T = self._put(_Job(command=command)).result()
        return result

    def drain(self, timeout: float | None) -> None:
        """Wait until all that was queued is dealt with, well or badly. Raises TimeoutError after `timeout` seconds."""
        if self._thread is None:
            return
        try:
            self._put(_Job(command=lambda: None)).result(timeout)
        except Closed:
            self._thread.join()  # closing deals with all of it

    def check(self) -> None:
        """Raise unless this process may write: Closed, LeaseLost, LeaseNotHeld."""
        self.check_usable()
        self.chain.check()
        if not self._open:
            raise LeaseNotHeld("the lease is just being acquired", agent_id=self.chain.agent_id)

    def renew(self) -> None:
        """Append a renewal now. Raises what an append raises."""
        self.call(lambda: self._write("renew"))

    def release(self) -> None:
        """Give the lease back, after what was queued before. Raises what an append raises."""
        self.call(lambda: self._write("release"))

    def close(self) -> None:
        """Finish what is queued, give the lease back, stop. Never raises: a lease that cannot be given back expires."""
        if os.getpid() != self._pid:
            return  # a forked child leaves its parent's lease alone
        with self._entry:
            if not self._closed:
                self._closed = True
                self._queue.put(_Job(command=self._release_quietly))
                self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        if self._folding is not None:
            self._folding.join()

    def _put(self, job: _Job) -> Future[Any] | _Waiter:
        with self._entry:  # so that nothing is queued behind the job that ends the thread
            self.check_usable()
            self._queue.put(job)
        return job.done

    def check_usable(self) -> None:
        """Raise unless this process may work with the agent at all: Closed, LeaseNotHeld in a forked child."""
        if self._closed:
            raise Closed("the agent was closed", agent_id=self.chain.agent_id, hint="open it again with resume()")
        if os.getpid() != self._pid:
            raise LeaseNotHeld(
                "the lease belongs to the parent of this forked process",
                agent_id=self.chain.agent_id,
                hint="open the agent in the process that works with it",
            )

    # ---- the writer's thread ---------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            jobs = self._take()
            if not jobs:
                self._renew_quietly()
            for is_command, group in groupby(jobs, key=lambda job: job is None or job.command is not None):
                if not is_command:
                    self._commit([job for job in group if job is not None])
                    continue
                for job in group:
                    if job is None:
                        return
                    self._obey(job)

    def _take(self) -> list[_Job | None]:
        """Wait for a job until it is time to renew, then take all that are queued; empty when it is time."""
        jobs: list[_Job | None] = []
        timeout, held_until = self._until_renewal(), 0.0
        try:
            while True:
                jobs.append(job := self._queue.get(timeout=timeout))
                if job is None or not job.linger:
                    held_until = 0.0
                elif len(jobs) == 1:
                    held_until = time.monotonic() + LINGER
                timeout = max(0.0, held_until - time.monotonic())
        except queue.Empty:
            return jobs

    def _until_renewal(self) -> float | None:
        chain = self.chain
        if not chain.owned:
            return None
        ttl = chain.replay.lease.ttl
        if self._failing:
            return ttl / 20
        return max(0.001, chain.deadline - ttl * 2 / 3 - chain.env.clock())

    def _obey(self, job: _Job) -> None:
        try:
            job.done.set_result(job.command() if job.command else None)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller that waits
            job.done.set_exception(error)

    def _commit(self, jobs: list[_Job]) -> None:
        """Append the records of these jobs as one entry, or as several when they are large."""
        batch: list[tuple[_Job, list[int]]] = []
        encoded: list[msgspec.Raw] = []
        size, numbers = 0, self._newest()
        for job in jobs:
            try:
                raws, seqs, last = _encode(job.records, numbers)
            except RecallError as error:
                error.agent_id = self.chain.agent_id
                job.done.set_exception(error)
                continue
            batch.append((job, seqs))
            encoded += raws
            numbers = last
            size += sum(len(memoryview(raw)) for raw in raws)
            if size >= MAX_BATCH_BYTES:
                self._append(batch, encoded, numbers)
                batch, encoded, size, numbers = [], [], 0, self._newest()
        if batch:
            self._append(batch, encoded, numbers)

    def _append(self, batch: list[tuple[_Job, list[int]]], encoded: list[msgspec.Raw], numbers: _Numbers) -> None:
        try:
            self._write("records", encoded, numbers)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the callers that wait
            for job, _ in batch:
                job.done.set_exception(error)
            return
        for job, seqs in batch:
            job.done.set_result(seqs)
        self._fold_when_due()

    def _write(self, kind: Kind, encoded: Sequence[msgspec.Raw] = (), numbers: _Numbers | None = None) -> None:
        """Append one entry and fold it into the state, once an earlier one of unknown outcome is settled (R3).

        `numbers` are those of the newest turn and action once it is written, where it has any.
        """
        chain = self.chain
        if chain.pending is not None:
            try:
                self._settle()
            except WriteUnknown as error:
                raise StoreUnavailable(
                    "an earlier write is not resolved yet; nothing of this one was written", agent_id=chain.agent_id
                ) from error
        self._written = numbers or self._newest()
        try:
            link = self._run(chain.append(kind, encoded))
        except WriteUnknown:
            self._settle()
        else:
            self._acknowledge(link)

    def _settle(self) -> None:
        """Resolve the pending write; for as long as it takes while the lease runs."""
        while True:
            try:
                self._acknowledge(self._run(self.chain.settle()))
                return
            except WriteUnknown as error:
                self._warn("no answer from the store, trying on: %s", error)
                if not self.chain.current or self._closed:
                    raise

    def _acknowledge(self, link: Link) -> None:
        self._failing = False
        self.state.apply_entry(link.entry)

    def _newest(self) -> _Numbers:
        """Those given so far, also by a write that is not resolved yet: it lands, or the lease is lost."""
        if self.chain.pending is not None:
            return self._written
        return _Numbers(self.state.turn_count, self.state.action_count)

    def _renew_quietly(self) -> None:
        unload_idle()
        try:
            self._write("renew")
        except LeaseLost as error:
            log.warning("%s", error)
        except Exception as error:  # noqa: BLE001 - whatever it is, this thread goes on: callers wait for it
            self._warn("the lease could not be renewed, trying on: %s", error)
        else:
            self._fold_when_due()

    def _release_quietly(self) -> None:
        if not self.chain.owned:
            return
        try:
            self._write("release")
        except Exception as error:  # noqa: BLE001 - whatever it is, closing goes on
            log.warning("the lease could not be given back, it expires by itself: %s", error)

    def _warn(self, message: str, error: Exception) -> None:
        """Log the first of a row of failures."""
        if not self._failing:
            log.warning(message, error)
        self._failing = True

    # ---- folding ---------------------------------------------------------------------------------------------------

    def _fold_when_due(self) -> None:
        if self._closed or self._folding is not None or len(self.chain.replay.links) < self._fold_at:
            return
        job = fold_job(self.chain, self.state.to_json())
        if job is not None:
            name = f"recall-fold-{self.chain.agent_id}"
            self._folding = threading.Thread(target=self._fold, args=(job,), name=name, daemon=True)
            self._folding.start()

    def _fold(self, job: FoldJob) -> None:
        """In a thread of its own: fold, then tell the writer's thread."""
        done = False
        try:
            refused = self._run(fold(job, self.chain.env))
            done = True
            if refused:
                log.warning("%d folded objects could not be deleted (is the delete right missing?)", len(refused))
        except Exception as error:  # noqa: BLE001 - whatever it is, what was to be folded is where it was
            log.warning("folding failed and is tried again later: %s", error)
        self._queue.put(_Job(command=lambda: self._folded(job if done else None)))

    def _folded(self, job: FoldJob | None) -> None:
        self._folding = None
        if job is None:
            self._fold_at = len(self.chain.replay.links) + FOLD_AGAIN_AFTER
        else:
            folded(self.chain, job)
            self._fold_at = FOLD_AFTER


def _encode(records: Sequence[Record], numbers: _Numbers) -> tuple[list[msgspec.Raw], list[int], _Numbers]:
    """Records as JSON, turns and actions numbered on; gives their seqs, 0 for others, and the newest numbers.

    Raises Invalid for a record that could not be read back: written, it would make the whole agent unreadable.
    """
    raws, seqs = [], []
    for record in records:
        numbers, seq = _number(record, numbers)
        raw = encode(record)
        try:
            decode(raw)
        except Corrupt as error:
            raise Invalid(f"a {type(record).__name__} has a field that cannot be used: {error.__cause__}") from error
        raws.append(raw)
        seqs.append(seq)
    return raws, seqs, numbers


def _number(record: Record, numbers: _Numbers) -> tuple[_Numbers, int]:
    """Give a turn or an action its seq; one that has begun before keeps the one it has."""
    if isinstance(record, Turn):
        record.seq = numbers.turn + 1
        return numbers._replace(turn=record.seq), record.seq
    if isinstance(record, ActionStarted):
        record.seq = record.seq or numbers.action + 1
        return numbers._replace(action=max(numbers.action, record.seq)), record.seq
    return numbers, 0
