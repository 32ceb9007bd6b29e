"""A client behind a network that breaks, cuts, delays and repeats: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from polign_recall import Client, NotFound
from polign_recall.testing.proxy import Answer, Fault, FaultProxy, Request

from ..server.running import serving
from .telling import Tale, is_deletion_repeated, mishaps, take_turns_over

FAULTS: list[Fault | Answer] = [
    Fault.RESET, Fault.LOST, Fault.CUT, Fault.TWICE, Fault.LATE, Answer(503), Answer(503, after=True),
    Answer(500, after=True), Answer(502), Answer(404), Answer(200), Answer(204, after=True),
]  # fmt: skip
TURNS = 40


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def proxy(directory: Path) -> Iterator[FaultProxy]:
    with serving(directory) as server, FaultProxy(httpx.URL(server.url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def connect(proxy: FaultProxy) -> Callable[[], Client]:
    return lambda: Client(url=f"http://127.0.0.1:{proxy.port}", env={})


def test_nothing_acknowledged_is_lost_or_doubled(
    proxy: FaultProxy, connect: Callable[[], Client], directory: Path
) -> None:
    proxy.plan = mishaps(0.15, FAULTS)
    tale = Tale("agent")
    take_turns_over(tale, connect, holders=4, turns=TURNS)
    proxy.plan = lambda request: None
    proxy.release()  # what is late arrives now, and must change nothing
    with Client(local_dir=directory) as behind:
        tale.check(behind)
    assert len(tale.of_the_last()) >= TURNS // 2, "nobody fenced the last holder, so most of it must have gone through"


def test_all_that_a_client_does_survives_it(proxy: FaultProxy, connect: Callable[[], Client]) -> None:
    large = random.Random(1).randbytes(300_000)
    with connect() as client:
        proxy.plan = mishaps(0.3, FAULTS)
        with client.resume("a/b", takeover=True) as agent:
            ref = agent.store_output(io.BytesIO(large), name="large")
            for number in range(20):
                agent.record_turn("user", f"turn {number}")
            agent.update_working_state(goal="g")
        with client.resume("a/b", takeover=True) as again:
            assert again.context.working_state.goal == "g"
            assert [turn.content for turn in again.turns()] == [f"turn {number}" for number in range(20)]
            assert again.fetch_output(ref) == large
            assert again.fetch_output(ref, start=299_990, length=20) == large[-10:]
        assert [(status.agent_id, status.turns) for status in client.agents()] == [("a/b", 20)]
        assert "turn 19" in client.briefing("a/b")
        client.delete_agent("a/b", takeover=True)
        with pytest.raises(NotFound):
            client.status("a/b")
    assert proxy.asked() > 45, "some requests were sent again"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_on_each_kind_of_write(
    proxy: FaultProxy, connect: Callable[[], Client], directory: Path, fault: Fault | Answer
) -> None:
    """The first attempt of every write meets with it: a claim, records, a renewal, a release, a deletion."""
    met: set[str] = set()

    def first_attempts(request: Request) -> Fault | Answer | None:
        name = f"{request.method} {request.target}"
        if request.method == "GET" or name in met:
            return None
        met.add(name)
        return None if is_deletion_repeated(request, fault) else fault

    proxy.plan = first_attempts
    with connect() as client:
        with client.resume("a") as agent:
            assert (agent.epoch, agent.context.fresh) == (1, True)
            assert agent.record_turn("user", "one") == 1
            agent._chain.deadline = 0.0
            agent.check_lease()
            assert agent.store_output("whole").startswith("out-")
        with Client(local_dir=directory) as behind:
            kinds = [entry.kind for entry in behind.backend.entries("a")]
            assert kinds == ["claim", "records", "renew", "records", "release"]
            assert [turn.content for turn in behind.resume("a", defer_lease=True).turns()] == ["one"]
        client.delete_agent("a")
        assert client.agents() == []
    assert len(met) == 6
