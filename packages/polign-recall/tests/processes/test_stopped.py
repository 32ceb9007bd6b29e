"""A holder that was stopped (a suspended machine, a frozen container) while another process took over: it learns that
it lost the agent, nothing of what it then tries is saved, and at no time do two processes hold the agent.
"""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import Launch, Place, await_true, new_place
from .facts import check_one_after_another

TTL = 5.0
"""Seconds; the shortest there is."""


@pytest.mark.parametrize("threads", ["", "recall-fold"], ids=["any thread", "folding"])
def test_stopped_after_each_step_and_taken_over(tmp_path: Path, launch: Launch, threads: str) -> None:
    """Whoever takes over records and folds a few times: the places where the stopped one goes on are long gone."""
    lives = 12
    places = [new_place(tmp_path, f"agent-{number}") for number in range(2)]
    job = {"lives": lives, "stride": 2, "threads": threads, "count": 1000}
    programs = [
        launch(where.job("stopped_at_each_step", at_step=1 + first, named_files=bool(first), **job))
        for first, where in enumerate(places)
    ]
    assert [program.ended() for program in programs] == [0, 0]
    for where in places:
        assert len(where.journal.read("breakpoint")) == lives
        assert [event["code"] for event in where.journal.read("end")] == [0] * 2 * lives
        losses = [(event["epoch"], event["to"]) for event in where.journal.read("lost")]
        assert losses == [(epoch, epoch + 1) for epoch in range(1, 2 * lives, 2)]
        with where.client() as client:
            check_one_after_another(client, where.agent_id, where.journal.read())


def test_stopped_past_its_ttl(tmp_path: Path, launch: Launch) -> None:
    """Several agents at once, because each has to sit out the ttl."""
    scenarios = [
        (asleep, new_place(tmp_path, "asleep")),
        (replaced_in_turn, new_place(tmp_path, "in-turn-1")),
        (replaced_in_turn, new_place(tmp_path, "in-turn-2")),
    ]
    with ThreadPoolExecutor(len(scenarios)) as pool:
        for future in [pool.submit(scenario, where, launch) for scenario, where in scenarios]:
            future.result()
    for _, where in scenarios:
        with where.client() as client:
            check_one_after_another(client, where.agent_id, where.journal.read())


def asleep(where: Place, launch: Launch) -> None:
    """The holder knows on waking, before anything of it reached the store, that its time is over."""
    holder = launch(where.job("stopped_asleep", ttl=TTL))
    holder.await_stop()
    successor = launch(where.job("record", ttl=TTL, wait=60))
    assert successor.ended() == 0
    holder.signal(signal.SIGCONT)
    assert holder.ended() == 0
    assert [event["held"] for event in where.journal.read("awake")] == [False]
    assert [(event["epoch"], event["to"]) for event in where.journal.read("lost")] == [(1, 2)]


def replaced_in_turn(where: Place, launch: Launch) -> None:
    """Three want the agent. Whoever has it is stopped, until another one has it; the last one is killed."""
    guards = [launch(where.job("guard", ttl=TTL, wait=60, count=10_000)) for _ in range(3)]
    by_pid = {guard.process.pid: guard for guard in guards}
    for turn in range(1, 3):
        holder = by_pid[nth_holder(where, turn)]
        where.await_event("held", by=holder, number=3)
        holder.signal(signal.SIGSTOP)
        nth_holder(where, turn + 1)
        holder.signal(signal.SIGCONT)
        assert holder.ended() == 0
        where.await_event("lost", by=holder)
    last = by_pid[nth_holder(where, 3)]
    where.await_event("held", by=last, number=3)
    last.signal(signal.SIGKILL)
    assert launch(where.job("record")).ended() == 0


def nth_holder(where: Place, number: int) -> int:
    """Wait for the holder number `number`; gives its pid."""
    await_true(lambda: len(where.journal.read("open")) >= number)
    return where.journal.read("open")[number - 1]["pid"]
