"""The end of every run: the faults stop, and what must hold then is checked: I9, I11, and I1 by reading everything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from polign_recall.chain import Host
from polign_recall.chain.entries import Entry, open_entry
from polign_recall.chain.steps import Sleep, Steps

from .network import Faults, Parts
from .oracle import PREFIX, values_of
from .roles import Tenure, own

if TYPE_CHECKING:
    from .process import Process
    from .world import World

T = TypeVar("T")
REQUEST = 0.001
"""Seconds a request takes in the quiet world."""
SLACK = 0.2
"""Seconds allowed for requests and for the last nap of a waiting contender (0.05 s), on top of ttl + 2 s."""


def calm(world: World) -> None:
    """No more faults: all processes die at once, what is under way arrives or does not, and others take over."""
    for process in world.processes:
        process.end()
    network = world.network
    network.faults, network.weather = Faults(), "fair"
    while network.copies:
        key, data = network.copies.pop()
        if world.rng.random() < 0.5:
            network.apply(key, data)
    somebody_owns_soon(world)
    clean_handover(world)
    everything_is_there(world)


def somebody_owns_soon(world: World) -> None:
    """I9: a newcomer that knows nothing of the dead owns within ttl + 2 s. It can write, fold and release."""
    heir, began = newcomer(world), world.time
    tenure = carry(world, heir, own(heir, wait=3600.0))
    took, limit = world.time - began, world.plan.ttl + 2 + SLACK
    world.oracle.check(took <= limit, "I9", f"nobody owned for {took:.2f} s after the faults stopped")
    assert tenure is not None
    carry(world, heir, work(tenure))


def work(tenure: Tenure) -> Steps[None]:
    """Show that the agent can be worked with."""
    yield from tenure.write("records", [tenure.process.new_value()])
    yield from tenure.fold()
    yield from tenure.write("records", [tenure.process.new_value(), tenure.process.new_value()])
    yield from tenure.write("release")


def clean_handover(world: World) -> None:
    """I11: after a clean release the next one resumes in LIST, GETs, claim, LIST, and appends in one request."""
    heir, counted = newcomer(world), Counter[str]()
    tenure = carry(world, heir, own(heir), counted)
    assert tenure is not None
    wanted = {"List": 2, "GetMany": 1, "Create": 1}
    world.oracle.check(counted == wanted, "I11", f"resuming after a clean release took {dict(counted)}")
    counted.clear()
    carry(world, heir, tenure.write("renew"), counted)
    world.oracle.check(counted == {"Create": 1}, "I11", f"an append took {dict(counted)}")


def everything_is_there(world: World) -> None:
    """I1, "for ever": the chain, read in two ways, has every record that was acknowledged, once and in order."""
    oracle, one = world.oracle, newcomer(world)
    replay = carry(world, one, one.chain.load())
    oracle.read(replay, oracle.top_settled)
    oracle.check(replay.seq == len(oracle.chain), "I1", f"read up to {replay.seq} of {len(oracle.chain)} entries")
    tail = (link.entry for link in replay.links if link.entry.seq > replay.origin)
    told = [*history(world, replay.origin, replay.base), *(value for entry in tail for value in values_of(entry))]
    true = oracle.fold(replay.seq)
    oracle.check(told == true, "I1", f"history and entries tell {told} and the fold is {true}")


def history(world: World, origin: int, base: int) -> list[str]:
    """The records of the entries above `origin` up to `base`, from the history objects alone; they may overlap."""
    entries: dict[int, Entry] = {}
    for key in world.objects.names(f"{PREFIX}history/"):
        for line in world.objects.stored[key].data.splitlines():
            entry = open_entry(line, key).entry
            entries[entry.seq] = entry
    return [value for seq in range(origin + 1, base + 1) if seq in entries for value in values_of(entries[seq])]


def newcomer(world: World) -> Process:
    """A process that nobody knows and that knows nobody."""
    process = world.new_process("newcomer")
    process.host = Host()
    return process


def carry(world: World, process: Process, steps: Steps[T], counted: Counter[str] | None = None) -> T:
    """Run steps to their end with nothing in between, and count the requests by kind."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if isinstance(step, Sleep):
            world.time += step.seconds
            answer = None
            continue
        if counted is not None:
            counted[type(step).__name__] += 1
        world.tick(REQUEST)
        process.evidence = world.event
        answer = drain(world.network.perform(step))


def drain(parts: Parts) -> Any:
    """Carry out all the parts of a step."""
    while True:
        try:
            next(parts)
        except StopIteration as stop:
            return stop.value
