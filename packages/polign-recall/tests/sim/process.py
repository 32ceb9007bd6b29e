"""A simulated process: its clock, its identity, its threads, and the chain it works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polign_recall.chain import Entry, Env, FoldJob, Host
from polign_recall.chain.entries import open_entry
from polign_recall.chain.steps import Create, Step, Steps

from .network import Parts
from .oracle import PREFIX

if TYPE_CHECKING:
    from .world import World

HOSTS = ("here", "there", "")
"""Where processes run; on "" nobody can tell whether another one is dead."""


@dataclass(slots=True)
class Task:
    """A thread of a process: a generator, and where it is in carrying out its current step."""

    process: Process
    name: str
    steps: Steps[Any]
    then: Callable[[Any], None]
    """Told the result, or the StoreError that ended it."""
    step: Step | None = None
    parts: Parts | None = None
    answered: bool = False
    answer: Any = None
    problem: BaseException | None = None
    wake: float = 0.0


class Process:
    """One start of a program that uses the chain. Its clock has nothing to do with anybody else's."""

    def __init__(self, world: World, number: int, role: str) -> None:
        self.world = world
        self.number = number
        self.name = f"{role}{number}"
        self.role = role
        rng = world.rng
        skew = rng.uniform(-1e4, 1e4)
        self.host = Host(rng.choice(HOSTS), "ns", number, 1)
        self.env = Env(
            clock=lambda: world.time + skew,
            wall=lambda: f"{world.time + skew:.3f}",
            rng=rng,
            new_put=self._new_put,
            dead=lambda host: host is not None and world.knows_dead(self.host, host),
        )
        self.chain = world.chain_type(PREFIX, "a", self.env)
        self.tasks: list[Task] = []
        self.frozen_until = 0.0
        self.dead = False
        self.forcing = False
        """While it takes over by force."""
        self.cancellable = False
        """While it is in one of the chain's operations."""
        self.folded: list[FoldJob] = []
        """What its folding threads have done and the writer has not heard of yet."""
        self.evidence = 0
        """The event at which the store began its main thread's newest step: what an acknowledgement rests on."""
        self.last_put = ""
        self.last_create: Create | None = None
        self.said = 0

    def _new_put(self) -> str:
        self.world.puts += 1
        self.last_put = f"put{self.world.puts}"
        if self.forcing:
            self.world.oracle.forced.add(self.last_put)
        return self.last_put

    def sent(self) -> Entry:
        """The entry that its main thread tried to write last."""
        assert self.last_create is not None
        return open_entry(self.last_create.data, self.last_create.key).entry

    def new_value(self) -> str:
        """A text that no other record of this run has."""
        self.said += 1
        return f"{self.name}.{self.said}"

    def start(self, name: str, steps: Steps[Any], then: Callable[[Any], None]) -> Task:
        """Start a thread."""
        task = Task(self, name, steps, then)
        self.tasks.append(task)
        return task

    def end(self) -> None:
        """Gone: what it had sent may still arrive."""
        self.dead = True
        self.tasks.clear()
