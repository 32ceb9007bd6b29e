"""A server whose network to its store breaks, cuts, delays and repeats: nothing acknowledged is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from polign_recall import Client
from polign_recall.testing.proxy import Answer, Fault, FaultProxy, Request
from polign_recall.testing.servers import Server, ministack, polign_server

from .telling import Tale, mishaps, take_turns_over

# What a network or a store may do. An answer that says a write succeeded which did not would be a store that lies.
FAULTS: list[Fault | Answer] = [
    Fault.RESET, Fault.LOST, Fault.CUT, Fault.TWICE, Fault.LATE, Answer(503), Answer(503, after=True), Answer(429),
    Answer(500, after=True), Answer(409),
]  # fmt: skip
TURNS = 25


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Server]:
    with ministack(tmp_path) as server:
        yield server


@pytest.fixture
def proxy(bucket: Server) -> Iterator[FaultProxy]:
    with FaultProxy(bucket.port) as proxy:
        yield proxy


@pytest.fixture
def url(bucket: Server, proxy: FaultProxy, tmp_path: Path) -> Iterator[str]:
    """A server that sees its bucket only through the proxy."""
    with polign_server(bucket.url("records", proxy.port), tmp_path, env=bucket.env) as url:
        yield url


def test_nothing_acknowledged_is_lost_or_doubled(bucket: Server, proxy: FaultProxy, url: str) -> None:
    proxy.plan = mishaps(0.1, FAULTS)
    tale = Tale("agent")
    take_turns_over(tale, lambda: Client(url=url, env={}), holders=3, turns=TURNS)
    proxy.plan = lambda request: None
    proxy.release()  # what is late arrives now, and must change nothing
    with Client(store=bucket.url("records"), env=bucket.env) as direct:
        tale.check(direct)
    assert len(tale.of_the_last()) >= TURNS // 2, "nobody fenced the last holder, so most of it must have gone through"
    written = {request.target for request in proxy.seen if request.method == "PUT"}
    assert proxy.asked("PUT") > len(written), "some writes were sent again"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_on_the_first_attempt_of_every_write(
    bucket: Server, proxy: FaultProxy, url: str, fault: Fault | Answer
) -> None:
    met: set[str] = set()

    def first_attempts(request: Request) -> Fault | Answer | None:
        target = f"{request.method} {request.target}"
        if not target.startswith("PUT") or target in met:
            return None
        met.add(target)
        return fault

    with Client(url=url, env={}) as client:
        client.resume("first").close()  # the server has looked at its store
        proxy.plan = first_attempts
        with client.resume("a") as agent:
            assert (agent.epoch, agent.context.fresh) == (1, True)
            assert [agent.record_turn("user", text) for text in ("one", "two")] == [1, 2]
            assert agent.store_output("whole").startswith("out-")
    proxy.plan = lambda request: None
    proxy.release()
    with Client(store=bucket.url("records"), env=bucket.env) as direct:
        kinds = [entry.kind for entry in direct.backend.entries("a")]
        assert kinds == ["claim", "records", "records", "records", "release"]
        assert [turn.content for turn in direct.resume("a", defer_lease=True).turns()] == ["one", "two"]
    assert len(met) == 6
