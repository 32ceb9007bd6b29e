"""Every scenario, with something going wrong at every one of its store calls.

Each scenario is first run undisturbed, which tells its calls. Then it is run again for each call and each kind of
trouble: the process dies before the call, or after it was applied, or its answer is lost, or it is held up until
another process took over and wrote, or it is applied a second time. After that every process dies, and a newcomer must
own the agent within ttl + 2 s, find everything that was acknowledged exactly once, and work with it. The oracle of the
simulation watches throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from polign_recall.chain import Host
from polign_recall.chain.steps import Create, Delete, Sleep, Steps
from polign_recall.errors import StoreUnavailable
from polign_recall.stores.base import Outcome

from .oracle import Violation
from .process import Process, Task
from .quiet import REQUEST, calm, carry, newcomer
from .roles import Tenure, own
from .world import Plan, World

TTL = 6.0
MAX_CALLS = 100
"""No scenario needs more, whatever happens to it."""

# ---- scenarios -------------------------------------------------------------------------------------------------------


def holding(world: World, entries: int = 0) -> Tenure:
    """A process that holds the agent and has written a few entries."""
    process = newcomer(world)
    tenure = carry(world, process, own(process))
    assert tenure is not None
    for _ in range(entries):
        carry(world, process, tenure.write("records", [process.new_value()]))
    return tenure


def aged(world: World) -> None:
    """An agent with some history, held by nobody."""
    tenure = holding(world, entries=3)
    carry(world, tenure.process, tenure.fold())
    carry(world, tenure.process, tenure.write("records", [tenure.process.new_value()]))
    carry(world, tenure.process, tenure.write("release"))


def own_and_write(process: Process, force: bool = False) -> Steps[None]:
    tenure = yield from own(process, force=force)
    if tenure is not None:
        yield from tenure.write("records", [process.new_value()])


Begun = tuple[Process, Steps[object]]


def create(world: World) -> Begun:
    process = newcomer(world)
    return process, own_and_write(process)


def open_again(world: World) -> Begun:
    aged(world)
    return create(world)


def append(world: World) -> Begun:
    tenure = holding(world, entries=1)
    return tenure.process, tenure.write("records", ["one"])


def batch(world: World) -> Begun:
    tenure = holding(world, entries=1)
    return tenure.process, tenure.write("records", [f"record {number}" for number in range(5)])


def renew(world: World) -> Begun:
    tenure = holding(world, entries=1)
    return tenure.process, tenure.write("renew")


def takeover(world: World) -> Begun:
    """From a holder that stopped, after its lease ran out."""
    aged(world)
    holding(world, entries=2).process.end()
    world.time += 2 * TTL
    return create(world)


def takeover_of_dead(world: World) -> Begun:
    """From a holder on the same host that is gone; nobody waits."""
    aged(world)
    dead, heir = newcomer(world), newcomer(world)
    for process in (dead, heir):
        process.host = Host("here", "ns", process.number, 1)
    assert carry(world, dead, own(dead)) is not None
    dead.end()
    return heir, own_and_write(heir)


def forced_takeover(world: World) -> Begun:
    """From a holder that is well and goes on."""
    aged(world)
    holding(world, entries=2)
    process = newcomer(world)
    return process, own_and_write(process, force=True)


def release(world: World) -> Begun:
    tenure = holding(world, entries=1)
    return tenure.process, tenure.write("release")


def fold(world: World) -> Begun:
    aged(world)
    tenure = holding(world, entries=3)
    return tenure.process, tenure.fold()


def delete(world: World) -> Begun:
    aged(world)
    tenure = holding(world, entries=2)
    return tenure.process, tenure.erase()


@dataclass(frozen=True)
class Scenario:
    """`calls` are the scenario's store calls when nothing goes wrong, by their first letters."""

    begin: Callable[[World], Begun]
    calls: str
    unanswered: int = 0
    """This call's answer is lost in the scenario itself."""


SCENARIOS = {
    "create": Scenario(create, "LLCLC"),
    "open": Scenario(open_again, "LGCLC"),
    "append": Scenario(append, "C"),
    "batch": Scenario(batch, "C"),
    "unknown append": Scenario(append, "CCGL", unanswered=1),
    "renew": Scenario(renew, "C"),
    "takeover": Scenario(takeover, "LGNCLC"),
    "takeover of a dead holder": Scenario(takeover_of_dead, "LGCLC"),
    "forced takeover": Scenario(forced_takeover, "LGCLC"),
    "release": Scenario(release, "C"),
    "fold": Scenario(fold, "CCLD"),
    "delete": Scenario(delete, "LCCLDC"),
}

# ---- trouble ---------------------------------------------------------------------------------------------------------


def perform(world: World, task: Task) -> None:
    """The call reaches the store, and its answer the process."""
    world.tick(REQUEST)
    while not world.carry_out(task):
        pass


def next_owner(world: World) -> Tenure:
    """Another process waits for the lease to run out and owns the agent."""
    process = newcomer(world)
    tenure = carry(world, process, own(process, wait=60.0))
    assert tenure is not None
    return tenure


def claims(world: World) -> None:
    next_owner(world)


def writes(world: World) -> None:
    tenure = next_owner(world)
    for _ in range(3):
        carry(world, tenure.process, tenure.write("records", [tenure.process.new_value()]))


def folds(world: World) -> None:
    """What comes late then meets slots that are free again."""
    tenure = next_owner(world)
    for _ in range(2):
        carry(world, tenure.process, tenure.write("records", [tenure.process.new_value()]))
    carry(world, tenure.process, tenure.fold())
    carry(world, tenure.process, tenure.write("records", [tenure.process.new_value()]))


Owner = Callable[[World], None]
Trouble = Callable[[World, Task, Owner], None]


def crash_before(world: World, task: Task, owner: Owner) -> None:
    task.process.end()


def applied_and_crash(world: World, task: Task, owner: Owner) -> None:
    perform(world, task)
    task.process.end()


def applied_answer_lost(world: World, task: Task, owner: Owner) -> None:
    perform(world, task)
    lose_answer(task)


def delayed_past_the_next_owner(world: World, task: Task, owner: Owner) -> None:
    """The process and its call are held up together; then both go on."""
    owner(world)
    perform(world, task)


def lost_then_late(world: World, task: Task, owner: Owner) -> None:
    """The call is not applied and not answered; it is applied when another process owns the agent."""
    leave_on_the_way(world, task)
    lose_answer(task)


def orphan_past_the_next_owner(world: World, task: Task, owner: Owner) -> None:
    """The process dies; its call is applied when another one owns the agent."""
    leave_on_the_way(world, task)
    task.process.end()


def duplicated(world: World, task: Task, owner: Owner) -> None:
    """The call is applied and answered, and applied once more when another process owns the agent."""
    leave_on_the_way(world, task)
    perform(world, task)


def lose_answer(task: Task) -> None:
    """A create without an answer is unknown; any other call has merely failed."""
    task.answered, task.answer = True, None
    if isinstance(task.step, Create):
        task.answer = Outcome.UNKNOWN
    else:
        task.problem = StoreUnavailable("simulated timeout")


def leave_on_the_way(world: World, task: Task) -> None:
    match task.step:
        case Create(key, data):
            world.network.copies.append((key, data))
        case Delete(keys):
            world.network.copies += [(key, None) for key in keys]


ANY_CALL, WRITES_ONLY = "LGNCD", "CD"
ALONE: tuple[Owner, ...] = (claims,)
OWNERS = (claims, writes, folds)

TROUBLES: dict[Trouble, tuple[str, tuple[Owner, ...]]] = {
    crash_before: (ANY_CALL, ALONE),
    applied_and_crash: (ANY_CALL, ALONE),
    applied_answer_lost: (ANY_CALL, ALONE),
    delayed_past_the_next_owner: (ANY_CALL, OWNERS),
    lost_then_late: (WRITES_ONLY, OWNERS),
    orphan_past_the_next_owner: (WRITES_ONLY, OWNERS),
    duplicated: (WRITES_ONLY, OWNERS),
}
"""What can go wrong, with which calls, and what the next owner does before the late call arrives.

A read that is carried out late with nobody waiting for it changes nothing.
"""

# ---- running ---------------------------------------------------------------------------------------------------------


def run(world: World, scenario: Scenario, trouble: Trouble | None = None, at: int = 0, owner: Owner = claims) -> str:
    """Run a scenario, with trouble at its call number `at`; gives the calls that it made, by their first letters."""
    process, steps = scenario.begin(world)
    task = process.start("main", steps, lambda _: None)
    calls = ""
    world.resume(task)
    while task in process.tasks and len(calls) < MAX_CALLS:
        if isinstance(task.step, Sleep):
            world.time = task.wake
        else:
            calls += type(task.step).__name__[0]
            if len(calls) == at and trouble is not None:
                trouble(world, task, owner)
            else:
                perform(world, task)
                if len(calls) == scenario.unanswered:
                    lose_answer(task)
        if not process.dead:
            world.resume(task)
    assert len(calls) < MAX_CALLS, f"it never ends: {calls}"
    if world.network.copies:
        owner(world)
        for key, data in world.network.copies:
            world.tick(REQUEST)
            world.network.apply(key, data)
        world.network.copies.clear()
    return calls


def new_world() -> World:
    return World(0, plan=Plan(writers=2, ttl=TTL), tracing=True)


POINTS = [
    pytest.param(name, trouble, at, owner, id=f"{name}, {trouble.__name__}, call {at}, {owner.__name__}")
    for name, scenario in SCENARIOS.items()
    for trouble, (kinds, owners) in TROUBLES.items()
    for at, kind in enumerate(scenario.calls, start=1)
    if kind in kinds
    for owner in owners
]


@pytest.mark.parametrize("name", SCENARIOS)
def test_undisturbed(name: str):
    world, scenario = new_world(), SCENARIOS[name]
    assert run(world, scenario) == scenario.calls
    calm(world)


@pytest.mark.parametrize(("name", "trouble", "at", "owner"), POINTS)
def test_trouble(name: str, trouble: Trouble, at: int, owner: Owner):
    world = new_world()
    try:
        run(world, SCENARIOS[name], trouble, at, owner)
        calm(world)
    except Violation as violation:
        trace = "\n".join(world.trace)
        raise AssertionError(f"{violation}\n{trace}") from violation
