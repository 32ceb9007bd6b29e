"""What the simulated processes do with the product's chain: own and write it, read it, delete it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from polign_recall.chain import FoldJob, Replay, folding
from polign_recall.chain.entries import Kind
from polign_recall.chain.steps import Sleep, Steps
from polign_recall.errors import Corrupt, LeaseHeld, LeaseLost, StoreDenied, StoreError, StoreUnavailable, WriteUnknown

from .oracle import state_of, values_in, values_of

if TYPE_CHECKING:
    from .process import Process


T = TypeVar("T")


class Interrupted(BaseException):
    """Thrown into a process at a step, as KeyboardInterrupt is; or its operation is closed, as a coroutine's is."""

    def __init__(self, closes: bool) -> None:
        super().__init__("closed" if closes else "thrown")
        self.closes = closes


def interruptible(steps: Steps[T]) -> Steps[T]:
    """Pass steps on to the world. An interrupt that closes ends them with close()."""
    move = partial(next, steps)
    while True:
        try:
            step = move()
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            move = partial(steps.send, (yield step))
        except Interrupted as interrupt:
            if interrupt.closes:
                steps.close()
                raise
            move = partial(steps.throw, interrupt)
        except StoreError as error:
            move = partial(steps.throw, error)


def reader(process: Process) -> Steps[None]:
    """Read the chain now and then, without a lease."""
    world = process.world
    while True:
        settled = world.oracle.top_settled
        try:
            replay = yield from process.chain.load()
        except StoreUnavailable:
            pass
        except Corrupt:
            world.stats["reader gave up"] += 1  # the chain moved under each of its attempts; fatal in a calm world
        else:
            world.oracle.read(replay, settled)
        yield Sleep(world.rng.uniform(0.0, 3.0))


def writer(process: Process) -> Steps[None]:
    """Own the agent a few times, each time write and fold, and then release it or just stop."""
    for _ in range(process.world.rng.randint(1, 4)):
        tenure = yield from acquire(process)
        if tenure is not None:
            yield from tenure.work()
        yield Sleep(process.world.rng.uniform(0.0, 2.0))


def eraser(process: Process) -> Steps[None]:
    """Own the agent and delete it."""
    tenure = yield from acquire(process)
    if tenure is not None:
        yield from tenure.erase()


def acquire(process: Process) -> Steps[Tenure | None]:
    """Acquire the lease in one way or another."""
    rng = process.world.rng
    return (yield from own(process, wait=rng.choice((0.0, 5.0, 60.0)), force=rng.random() < process.world.plan.force))


def own(process: Process, wait: float = 0.0, force: bool = False) -> Steps[Tenure | None]:
    """Acquire the lease; None when that did not work out."""
    world, chain = process.world, process.chain
    claim = chain.acquire(ttl=world.plan.ttl, holder=process.name, host=process.host, wait=wait, takeover=force)
    process.forcing, process.cancellable = force, True
    try:
        replay = yield from interruptible(claim)
    except (LeaseHeld, StoreError, Corrupt) as error:
        world.stats[f"acquire: {error.code}"] += 1
        return None
    except Interrupted:
        world.stats["acquire cancelled"] += 1
        return None
    finally:
        process.forcing = process.cancellable = False
    rivals = [other.chain for other in world.processes if other is not process and not other.dead]
    world.oracle.claimed(chain, process.evidence, rivals)
    return Tenure(process, replay)


class Tenure:
    """One process's time as the holder: what its writer thread does."""

    def __init__(self, process: Process, replay: Replay) -> None:
        self.process = process
        self.world = process.world
        self.chain = process.chain
        self.values = values_in(replay)

    def work(self) -> Steps[None]:
        """Write, renew, idle and fold until it has had enough or the lease is lost."""
        rng = self.world.rng
        for _ in range(rng.randint(1, 15)):
            self.take_folds()
            lot = rng.random()
            if lot < 0.75:
                count = rng.choice((1, 1, 1, 3))
                going = yield from self.write("records", [self.process.new_value() for _ in range(count)])
            else:
                if lot < 0.9:
                    yield Sleep(rng.uniform(0.1, 0.4) * self.world.plan.ttl)
                going = yield from self.write("renew")
            if not going:
                return
            if not self.chain.current and not (yield from self.write("renew")):
                return
            self.world.oracle.alone(self.chain)
            self.fold_when_due()
        if rng.random() < 0.6:
            yield from self.write("release")

    def write(self, kind: Kind, values: list[str] | None = None) -> Steps[bool]:
        """Append one entry, and settle it for as long as its outcome is unknown. False when the tenure is over."""
        chain, stats = self.chain, self.world.stats
        steps = chain.append(kind, [msgspec.Raw(msgspec.json.encode(value)) for value in values or ()])
        unknown = False
        while True:
            self.process.cancellable = True
            try:
                link = yield from interruptible(steps)
            except LeaseLost as error:
                self.world.oracle.lost(chain, error, self.process.sent())
                return False
            except WriteUnknown:
                stats["write unknown"] += 1
            except (StoreUnavailable, StoreDenied) as error:
                stats["write refused"] += 1
                self.world.oracle.not_written(self.process.last_put, error)
                return True
            except Interrupted:
                stats["write cancelled"] += 1
            else:
                self.world.oracle.acknowledged(link, self.process.evidence)
                stats["unknown that landed"] += unknown
                self.values += values_of(link.entry)
                return kind != "release"
            finally:
                self.process.cancellable = False
            unknown = True
            yield Sleep(self.world.rng.uniform(0.0, 3.0))
            steps = chain.settle()

    def fold_when_due(self) -> None:
        """Start folding in a thread of its own, beside the appends."""
        process = self.process
        if len(self.chain.replay.links) < self.world.plan.fold_after or len(process.tasks) > 1:
            return
        job = folding.fold_job(self.chain, state_of(self.values))
        if job is not None:
            process.start("fold", folding.fold(job, process.env), lambda result: self.fold_ended(job, result))

    def fold_ended(self, job: FoldJob, result: Any) -> None:
        """The folding thread leaves a message for the writer, which is by now perhaps deposed or in another tenure."""
        if isinstance(result, StoreError):
            self.world.stats["fold failed"] += 1
            return
        self.world.stats["folds"] += 1
        self.world.stats["folds after a takeover"] += job.snapshot.epoch < self.world.oracle.chain[-1].entry.epoch
        self.process.folded.append(job)

    def erase(self) -> Steps[None]:
        """Delete the agent and give it back."""
        try:
            yield from folding.erase(self.chain, state_of([]))
        except (StoreError, LeaseLost):
            self.world.stats["erase failed"] += 1
            return
        self.values = []
        yield from self.write("release")

    def fold(self) -> Steps[None]:
        """Fold in this very thread."""
        job = folding.fold_job(self.chain, state_of(self.values))
        assert job is not None
        yield from folding.fold(job, self.process.env)
        folding.folded(self.chain, job)

    def take_folds(self) -> None:
        """The writer reads its messages, between two writes."""
        while self.process.folded:
            folding.folded(self.chain, self.process.folded.pop(0))
