"""One run of the simulation: processes, virtual time and a scheduler, all decided by one seed.

The processes run the product's own chain code, whose generators ask for one store operation at a time. The scheduler
picks whose turn it is and carries out one atomic part of one operation, or hands an answer over. In between it kills,
freezes and cancels, changes the network's weather and lets delayed requests arrive. The same seed gives the same run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from polign_recall.chain import Chain, Host
from polign_recall.chain.steps import Create, GetMany, Sleep, Steps
from polign_recall.errors import StoreError

from . import roles
from .network import Faults, Network, Objects
from .oracle import Oracle
from .process import Process, Task
from .quiet import calm
from .trace import brief


@dataclass(slots=True)
class Plan:
    """What kind of run this is; drawn from the seed."""

    writers: int
    readers: int = 1
    force: float = 0.0
    """Chance that a contender takes over by force."""
    erase: float = 0.0
    """Chance that a new process is one that deletes the agent."""
    ttl: float = 6.0
    fold_after: int = 3
    latency: float = 0.05
    """Mean seconds between two events."""
    arrivals: float = 0.1
    """Chance per event that a delayed request arrives."""
    kill: float = 0.004
    freeze: float = 0.02
    cancel: float = 0.01
    storm: float = 0.003
    """Chance per event that the weather changes."""
    faults: Faults = field(default_factory=Faults)


def draw_plan(rng: random.Random) -> Plan:
    """The kind of run a seed stands for: lone writers, crowds, forced takeovers, deletions; calm to very rough."""
    rough = rng.choice((0.3, 1.0, 1.0, 2.0))
    plan = Plan(
        writers=rng.choice((2, 2, 3, 4)), readers=rng.choice((0, 1, 1)), ttl=rng.choice((5.0, 6.0, 7.5)),
        fold_after=rng.choice((1, 2, 3, 5)), latency=rng.choice((0.01, 0.05, 0.05, 0.2)),
        arrivals=rng.choice((0.02, 0.1, 0.3)), storm=0.003 * rough,
        faults=Faults(
            lost=0.02 * rough, late=0.06 * rough, unanswered=0.04 * rough, duplicated=0.05 * rough,
            unavailable=0.03 * rough, denied=0.002 * rough, refused=0.05 * rough, late_delete=0.05 * rough,
        ),
    )  # fmt: skip
    kind = rng.choices(("crowd", "lone", "forced", "deleting"), (50, 15, 20, 15))[0]
    if kind == "lone":
        plan.writers, plan.kill = 1, 0.0
    elif kind == "forced":
        plan.force = 0.5
    elif kind == "deleting":
        plan.erase, plan.force = 0.3, rng.choice((0.0, 0.2))
    return plan


class World:
    """A seeded run. `run` raises Violation when an invariant breaks; `trace` then tells what happened."""

    def __init__(
        self, seed: int, *, plan: Plan | None = None, chain_type: type[Chain] = Chain, ignored: Collection[str] = (),
        tracing: bool = False,
    ) -> None:  # fmt: skip
        self.rng = rng = random.Random(seed)
        self.chain_type = chain_type
        self.tracing = tracing
        self.trace: list[str] = []
        self.stats: Counter[str] = Counter()
        self.time = 1_000.0
        self.event = 0
        self.puts = 0
        self.plan = plan or draw_plan(rng)
        self.oracle = Oracle(self.stats, ignored)
        self.oracle.lone = self.plan.writers == 1
        grain, now_grain = rng.choice(((0.0, 0.0), (1.0, 1.0), (1.0, 0.0)))
        self.objects = Objects(
            self._store_clock, rng.random() < 0.5, grain, now_grain, self.oracle.created, self.oracle.deleting
        )
        self.network = Network(self.objects, rng, self.stats, self.plan.faults, scan=rng.random() < 0.5)
        self.clear_at = 0.0
        self.processes: list[Process] = []

    def _store_clock(self) -> float:
        return self.time + 5e5

    def knows_dead(self, mine: Host, other: Host) -> bool:
        """Whether a process on host `mine` can tell that the one of `other` is dead, and it is."""
        same = bool(mine.boot) and mine.boot == other.boot
        return same and self.processes[other.pid].dead

    # ---- running ---------------------------------------------------------------------------------------------------

    def run(self, events: int = 600) -> Counter[str]:
        """The whole run: `events` events with faults, then a quiet end in which everything is read again."""
        for _ in range(events):
            self.happen()
        calm(self)
        return self.stats

    def tick(self, seconds: float) -> None:
        """Time passes; something is about to happen."""
        self.event += 1
        self.oracle.event = self.event
        self.time += seconds

    def happen(self) -> None:
        """One event."""
        rng, plan, network = self.rng, self.plan, self.network
        self.tick(rng.expovariate(1 / plan.latency))
        self._change_weather()
        if network.copies and rng.random() < plan.arrivals:
            self.note("network", network.deliver(self._being_read()))
        if rng.random() < 0.1:
            self._start_somebody()
        if rng.random() < 0.05:
            self._thaw()
        task = self._choose()
        if task is None:
            self._wait()
        elif not self._strike(task):
            self.advance(task)

    def _change_weather(self) -> None:
        network = self.network
        if network.weather == "fair":
            if self.rng.random() < self.plan.storm:
                network.weather = self.rng.choice(("down", "silent"))
                self.clear_at = self.time + self.rng.uniform(1.0, 15.0)
                self.stats[f"weather {network.weather}"] += 1
                self.note("network", f"is {network.weather}")
        elif self.time >= self.clear_at:
            network.weather = "fair"
            self.note("network", "is fair again")

    def _start_somebody(self) -> None:
        alive = Counter(process.role for process in self.processes if not process.dead)
        if alive["reader"] < self.plan.readers:
            self.spawn("reader", roles.reader)
        elif alive["writer"] + alive["eraser"] < self.plan.writers:
            if self.rng.random() < self.plan.erase:
                self.spawn("eraser", roles.eraser)
            else:
                self.spawn("writer", roles.writer)

    def spawn(self, role: str, steps: Callable[[Process], Steps[None]]) -> Process:
        """Start a process."""
        process = self.new_process(role)
        process.start("main", steps(process), lambda _: process.end())
        self.note(process.name, f"starts on host {process.host.boot!r}")
        return process

    def new_process(self, role: str) -> Process:
        """A process, with nothing to do yet."""
        process = Process(self, len(self.processes), role)
        self.processes.append(process)
        return process

    def _choose(self) -> Task | None:
        """Whose turn it is; preferably one that is about to write into a slot that was folded away: that is danger."""
        ready = [
            task
            for process in self.processes
            if not process.dead and process.frozen_until <= self.time
            for task in process.tasks
            if task.wake <= self.time
        ]
        if ready and self.rng.random() < 0.2:
            ready = [task for task in ready if self._dangerous(task)] or ready
        return self.rng.choice(ready) if ready else None

    def _dangerous(self, task: Task) -> bool:
        step = task.step
        if not isinstance(step, Create) or step.key in self.objects.stored:
            return False
        name = step.key.rpartition("/")[2]
        return name.isdigit() and int(name) <= len(self.oracle.chain)

    def _being_read(self) -> list[str]:
        """Keys that somebody has listed and is about to read: what lands there meanwhile is danger, too."""
        steps = [task.step for process in self.processes for task in process.tasks if not task.answered]
        return [key for step in steps if isinstance(step, GetMany) for key in step.keys]

    def _thaw(self) -> None:
        """Wake those that were frozen when about to write into a slot that was folded away since."""
        for process in self.processes:
            if process.frozen_until > self.time and any(self._dangerous(task) for task in process.tasks):
                process.frozen_until = self.time

    def _wait(self) -> None:
        """Nobody can go on: time passes until somebody can."""
        times = [
            max(task.wake, process.frozen_until)
            for process in self.processes
            if not process.dead
            for task in process.tasks
        ]
        self.time = max(self.time, min(times, default=self.time))

    def _strike(self, task: Task) -> bool:
        """Perhaps kill, freeze or cancel instead of going on."""
        rng, plan, process = self.rng, self.plan, task.process
        lot = rng.random()
        if lot < plan.kill:
            self.stats["killed"] += 1
            self.note(process.name, f"is killed at {brief(task.step)}")
            self._leave_request(task)
            process.end()
            return True
        lot -= plan.kill
        if lot < plan.freeze:
            process.frozen_until = self.time + rng.choice((0.2, 1.0, 1.5, 3.0)) * plan.ttl
            self.stats["frozen past the ttl"] += process.frozen_until - self.time > plan.ttl
            self.note(process.name, f"is frozen until {process.frozen_until:.2f}")
            return True
        lot -= plan.freeze
        if lot < plan.cancel and (process.cancellable or task.name == "fold") and task.step is not None:
            self._cancel(task)
            return True
        return False

    def _cancel(self, task: Task) -> None:
        """Interrupt a thread at its step, which may be carried out all the same, or later."""
        self.stats["cancelled"] += 1
        self.note(task.process.name, f"{task.name}: is cancelled at {brief(task.step)}")
        self._leave_request(task)
        if task.name == "fold":
            self.finish(task, StoreError("the thread died"))
            return
        task.problem = roles.Interrupted(closes=self.rng.random() < 0.5)
        self.resume(task)

    def _leave_request(self, task: Task) -> None:
        """A thread ends at a create: the request may be on its way all the same."""
        if isinstance(task.step, Create) and not task.answered:
            self.stats["ended in a create"] += 1
            if self.rng.random() < 0.7:
                self.network.copies.append((task.step.key, task.step.data))

    def advance(self, task: Task) -> None:
        """Carry out one atomic part of the task's step, or hand its answer over; often both at once."""
        waiting = task.step is not None and not task.answered and not isinstance(task.step, Sleep)
        if not waiting or (self.carry_out(task) and self.rng.random() < 0.7):
            self.resume(task)

    def carry_out(self, task: Task) -> bool:
        """One atomic part of a step. True once the answer is there."""
        assert task.step is not None
        if task.parts is None:
            task.parts = self.network.perform(task.step)
            if task.name == "main":
                task.process.evidence = self.event
        try:
            next(task.parts)
            return False
        except StopIteration as stop:
            task.answer = stop.value
        except StoreError as error:
            task.problem = error
        task.answered = True
        if self.tracing:
            done = f"{brief(task.step)} -> {brief(task.problem or task.answer)}"
            self.note(task.process.name, f"{task.name}: {done}")
        return True

    def resume(self, task: Task) -> None:
        """Hand the answer over; the thread runs until its next step."""
        answer, problem = task.answer, task.problem
        task.step = task.parts = task.answer = task.problem = None
        task.answered = False
        try:
            step = task.steps.send(answer) if problem is None else task.steps.throw(problem)
        except StopIteration as stop:
            self.finish(task, stop.value)
            return
        except StoreError as error:
            self.finish(task, error)
            return
        task.step = step
        if isinstance(step, Sleep):
            task.wake = self.time + step.seconds
        elif isinstance(step, Create) and task.name == "main":
            task.process.last_create = step

    def finish(self, task: Task, result: Any) -> None:
        """A thread ended."""
        if task in task.process.tasks:
            task.process.tasks.remove(task)
        task.then(result)

    def note(self, who: str, what: str) -> None:
        """One line of the trace."""
        if self.tracing:
            self.trace.append(f"{self.event:5d} {self.time:9.3f} {who:10s} {what}")
