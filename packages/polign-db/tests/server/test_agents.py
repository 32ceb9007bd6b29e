"""Reading and deleting agents: every route, and the same agents as a client of the store itself sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from polign_recall import Client
from polign_recall.chain.entries import Snapshot, open_snapshot
from polign_recall.state import State

from .holding import Holder, path_of, problem
from .running import serving

AWKWARD = ["a/b", "..", ".", "a b", "é漢😀", "%2F", "a%b", "?x=1#y", "lease", "x" * 240, "-", "~tilde", '"quoted"']


@pytest.mark.parametrize("agent_id", AWKWARD)
def test_any_id_is_one_segment(new_holder: Callable[..., Holder], directory: Path, agent_id: str) -> None:
    holder = new_holder(agent_id)
    holder.claim()
    holder.record("hello")
    status = holder.client.get(path_of(agent_id)).json()
    assert (status["agent_id"], status["turns"], status["held"]) == (agent_id, 1, True)
    with Client(local_dir=directory) as client:
        assert client.status(agent_id).turns == 1


@pytest.mark.parametrize("agent_id", ["x" * 241, "\x01", "é" * 100])
def test_ids_that_cannot_be_used(client: httpx.Client, agent_id: str) -> None:
    problem(client.get(path_of(agent_id)), 422, "invalid")


def test_an_id_that_is_not_utf8(client: httpx.Client) -> None:
    problem(client.get("/v1/agents/%ff"), 400, "invalid")


def test_a_new_agent(client: httpx.Client) -> None:
    problem(client.get(path_of("nobody")), 404, "not_found")
    problem(client.get(path_of("nobody", "/briefing")), 404, "not_found")
    problem(client.delete(path_of("nobody")), 404, "not_found")
    head = open_snapshot(client.get(path_of("nobody", "/state")).content, "state")
    assert (head.seq, head.epoch, head.digest, head.kind) == (0, 0, "", "release")
    assert State.from_json(head.state).empty
    assert client.get(path_of("nobody", "/turns")).json() == {"turns": [], "next": None, "entry": 0}
    assert client.get(path_of("nobody", "/entries")).json() == {"entries": [], "next": None}


def test_state_is_the_fold_of_the_chain(held: Holder, directory: Path) -> None:
    held.record("one", "two")
    records = [{"type": "working_state", "goal": "Move billing"}, {"type": "pin", "id": "p", "text": "careful"}]
    held.send(held.body(records=[*records, {"type": "from_the_future", "x": 1}]))
    head = state_of(held)
    assert (head.seq, head.epoch, head.digest, head.kind) == (3, 1, held.prev, "records")
    assert head.lease.holder == "me"
    assert head.claims == [1]
    state = State.from_json(head.state)
    assert [turn.content for turn in state.turns] == ["one", "two"]
    assert state.working.goal == "Move billing"
    assert state.pins["p"].text == "careful"
    assert state.unknown[0].data == {"type": "from_the_future", "x": 1}
    with Client(local_dir=directory) as client:
        assert client.resume(held.agent_id, defer_lease=True).context.working_state.goal == "Move billing"


def test_state_right_after_a_fold(held: Holder) -> None:
    for number in range(63):
        held.record(str(number))
    assert state_of(held).seq == held.seq == 64
    assert State.from_json(state_of(held).state).turn_count == 63


def state_of(holder: Holder) -> Snapshot:
    return open_snapshot(holder.client.get(path_of(holder.agent_id, "/state")).content, "state")


def test_briefing(held: Holder) -> None:
    held.send(held.body(records=[{"type": "working_state", "goal": "Move billing"}]))
    for number in range(30):
        held.record(f"{number} " + "word " * 50)
    where = path_of(held.agent_id, "/briefing")
    whole = held.client.get(where).json()
    assert "Goal: Move billing" in whole["briefing"]
    short = held.client.get(where, params={"token_budget": 300, "model": "gpt-4o"}).json()
    assert "Move billing" in short["briefing"]
    assert 0 < short["tokens"] <= 300
    assert short["omitted"]
    problem(held.client.get(where, params={"token_budget": 299}), 422, "invalid")


def test_delete(held: Holder) -> None:
    held.record("a secret plan")
    problem(held.client.delete(path_of(held.agent_id)), 409, "lease_held")
    held.release()
    assert held.client.delete(path_of(held.agent_id)).json()["refused"] == []
    problem(held.client.get(path_of(held.agent_id)), 404, "not_found")
    problem(held.client.delete(path_of(held.agent_id)), 404, "not_found")
    assert "secret" not in held.client.get(path_of(held.agent_id, "/entries")).text


def test_delete_takes_over_when_told(held: Holder) -> None:
    held.record("one")
    answer = held.client.delete(path_of(held.agent_id), params={"takeover": "true"}).json()
    assert answer["deleted"] > 0
    lost = problem(held.send(held.body("two")), 409, "lease_lost")
    assert (lost["epoch"], lost["landed"]) == (2, None)  # what was deleted cannot tell


@pytest.fixture
def many(tmp_path: Path) -> Path:
    with Client(local_dir=tmp_path / "many") as client:
        for number in range(7):
            with client.resume(f"agent/{number}") as agent:
                agent.record_turn("user", f"hello {number}")
        client.delete_agent("agent/3")
    return tmp_path / "many"


def test_agents_page_by_page(many: Path) -> None:
    (many / "agents" / "agent%2F5" / "log" / "00000000000000000002").write_bytes(b"{")
    with serving(many) as server, server.client() as client:
        assert [agent["agent_id"] for agent in client.get("/v1/agents").json()["agents"]] == [
            f"agent/{number}" for number in (0, 1, 2, 4, 5, 6)
        ]
        found, after = [], ""
        for _ in range(7):
            page = client.get("/v1/agents", params={"limit": 2, **({"after": after} if after else {})}).json()
            assert len(page["agents"]) <= 2
            found += page["agents"]
            if page["next"] is None:
                break
            after = page["next"]
        assert [agent["agent_id"] for agent in found] == [f"agent/{number}" for number in (0, 1, 2, 4, 5, 6)]
        assert "corrupt" in found[4]["problem"]
        damaged = problem(client.get(path_of("agent/5")), 500, "corrupt")
        assert not damaged["retryable"]
        problem(client.get("/v1/agents", params={"limit": 0}), 422, "invalid")
        problem(client.get("/v1/agents", params={"limit": 201}), 422, "invalid")
        problem(client.get("/v1/agents", params={"limti": 2}), 422, "invalid")
        problem(client.get("/v1/agents?limit=1&limit=2"), 422, "invalid")


def test_a_newer_format_is_named(many: Path) -> None:
    (many / "agents" / "agent%2F5" / "log" / "00000000000000000004").write_bytes(b'{"v":99}')
    with serving(many) as server, server.client() as client:
        problem(client.get(path_of("agent/5", "/state")), 501, "format_too_new")
