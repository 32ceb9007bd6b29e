"""Schedules made by hand: for rules that chance seldom tests, and for what the simulation once found."""

from __future__ import annotations

from typing import Any

import pytest
from polign_recall.chain import folding
from polign_recall.chain.steps import Create, Delete, GetMany, Sleep, Step, Steps
from polign_recall.errors import LeaseLost

from . import network
from .oracle import Violation, state_of, values_in
from .process import Process, Task
from .quiet import REQUEST, calm, carry, newcomer
from .roles import Tenure, own
from .world import Plan, World


@pytest.fixture
def world() -> World:
    return World(0, plan=Plan(writers=2, ttl=6.0))


def holding(world: World, entries: int = 0, force: bool = False) -> Tenure:
    """A process that holds the agent and has written a few entries."""
    process = newcomer(world)
    tenure = carry(world, process, own(process, wait=60.0, force=force))
    assert tenure is not None
    write(tenure, entries)
    return tenure


def write(tenure: Tenure, entries: int = 1) -> None:
    for _ in range(entries):
        process = tenure.process
        assert carry(process.world, process, tenure.write("records", [process.new_value()]))


class Slow:
    """A thread that goes on when told to."""

    def __init__(self, process: Process, steps: Steps[Any]) -> None:
        self.world = process.world
        self.results: list[Any] = []
        self.task: Task = process.start("main", steps, self.results.append)
        self.world.resume(self.task)

    def until(self, kind: type[Step]) -> Slow:
        """Go on until a step of this kind is about to be sent."""
        while not isinstance(self.task.step, kind):
            self.step()
        return self

    def step(self) -> Slow:
        """Carry one step out, unless that was done, and hand its answer over."""
        if not self.task.answered:
            self.perform()
        self.world.resume(self.task)
        return self

    def perform(self) -> Slow:
        """Carry one step out, and no more."""
        if isinstance(self.task.step, Sleep):
            self.world.time = max(self.world.time, self.task.wake)
            return self
        self.world.tick(REQUEST)
        while not self.world.carry_out(self.task):
            pass
        return self

    def finish(self) -> Any:
        """Go on to the end; the result."""
        while not self.results:
            self.step()
        return self.results[0]


def test_a_fold_that_is_heard_of_in_a_later_tenure_changes_nothing(world: World):
    one = holding(world, entries=2)
    job = folding.fold_job(one.chain, state_of(one.values))
    assert job is not None
    carry(world, one.process, folding.fold(job, one.process.env))
    carry(world, one.process, one.write("release"))
    other = holding(world, entries=2)
    carry(world, other.process, other.fold())
    carry(world, other.process, other.write("release"))
    again = carry(world, one.process, own(one.process))
    assert again is not None
    folding.folded(again.chain, job)
    write(again, 2)
    carry(world, one.process, again.fold())
    calm(world)


@pytest.mark.parametrize(("kind", "erased", "landed"), [
    ("records", False, True), ("renew", False, None), ("records", True, None),
])  # fmt: skip
def test_what_became_of_a_write_is_told_where_it_can_be(world: World, kind: Any, erased: bool, landed: bool | None):
    """History leaves renewals out, and ends when the agent is deleted."""
    one = holding(world, entries=1)
    slow = Slow(one.process, one.chain.append(kind)).perform()  # it is applied; the answer does not come
    other = holding(world, entries=1)
    carry(world, other.process, other.fold())
    if erased:
        carry(world, other.process, folding.erase(other.chain, state_of([])))
    slow.task.answer = network.Outcome.UNKNOWN
    with pytest.raises(LeaseLost) as caught:
        slow.finish()
    assert caught.value.landed is landed
    assert caught.value.epoch == other.chain.epoch
    calm(world)


def test_a_deposed_process_erases_nothing(world: World):
    one = holding(world, entries=3)
    slow = Slow(one.process, folding.erase(one.chain, state_of([]))).until(Create)
    other = holding(world, entries=1)
    with pytest.raises(LeaseLost):
        slow.finish()
    assert world.stats["deleted"] == world.stats["erased"] == 0
    assert len(other.values) == 4
    calm(world)


def test_a_late_erasure_spares_the_next_holder(world: World):
    one = holding(world, entries=3)
    slow = Slow(one.process, folding.erase(one.chain, state_of([]))).until(Delete)
    other = holding(world, entries=2)
    carry(world, other.process, other.fold())
    write(other)
    slow.finish()
    assert len(other.values) == 3
    calm(world)


def test_who_sent_a_release_is_no_holder_any_more(world: World):
    one = holding(world)
    assert one.chain.current
    slow = Slow(one.process, one.chain.append("release")).perform()
    assert not one.chain.current
    other = newcomer(world)
    assert carry(world, other, own(other)) is not None
    slow.finish()
    assert not one.chain.owned


def test_a_claim_is_checked_again_when_the_snapshot_moved(world: World):
    """R2 (b): the fold of an earlier holder lands between the claimer's replay and its claim."""
    one = holding(world, entries=3)
    fold = Slow(one.process, one.fold()).until(Create).step()  # history is written, the snapshot is not
    carry(world, one.process, one.write("release"))
    other = newcomer(world)
    slow = Slow(other, own(other)).until(Create)
    fold.finish()
    tenure = slow.finish()
    assert tenure is not None
    assert tenure.chain.replay.base == 4
    calm(world)


@pytest.mark.parametrize("tags", [True, False])
def test_what_was_listed_is_what_is_read(world: World, tags: bool, monkeypatch: pytest.MonkeyPatch):
    """R5: a late claim lands in a slot that is folded away between a reader's LIST and its GETs, and its link fits.

    Only the version tag tells: without tags, the reader takes a claim for real that never was part of the chain.
    """
    if not tags:
        monkeypatch.setattr(network, "version_tag", lambda data, serial: "same")
    one = holding(world, entries=1)
    carry(world, one.process, one.fold())
    rival = newcomer(world)
    claim = Slow(rival, own(rival, force=True)).until(Create)  # it read up to entry 2 and is about to claim slot 3
    write(one)
    reader = newcomer(world)
    read = Slow(reader, reader.chain.load()).until(GetMany)  # it listed up to entry 3
    write(one)
    carry(world, one.process, one.fold())
    claim.perform()
    replay = read.finish()
    if tags:
        assert values_in(replay) == one.values
        world.oracle.read(replay, world.oracle.top_settled)
        calm(world)
    else:
        with pytest.raises(Violation):
            world.oracle.read(replay, world.oracle.top_settled)
