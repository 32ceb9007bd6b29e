"""Appending over HTTP: one entry exactly as asked, no gap, no fork, and repeats that change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from polign_recall import Client
from polign_recall.agent import MAX_WORKING_STATE

from .holding import AT, Holder, new_put, path_of, problem, sealed, turn
from .running import Server, serving

Make = Callable[..., Holder]


@pytest.fixture(scope="module")
def replica(directory: Path, server: Server) -> Iterator[httpx.Client]:
    """A client of a second server on the same store, which knows no heads."""
    with serving(directory) as second, second.client() as client:
        yield client


def contents(holder: Holder) -> list[str]:
    turns = holder.client.get(path_of(holder.agent_id, "/turns"), params={"limit": 1000}).json()["turns"]
    return [turn["content"] for turn in turns]


def spent(server: Server, before: dict[str, int]) -> dict[str, int]:
    after = server.store_requests()
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


def test_the_bytes_are_those_of_a_local_holder(held: Holder, directory: Path) -> None:
    body = held.body("one", "two")
    answer = held.send(body).json()
    assert answer == {"seq": 2, "epoch": 1, "digest": sealed(body)}
    with Client(local_dir=directory) as client:
        assert [turn.content for turn in client.resume(held.agent_id, defer_lease=True).turns()] == ["one", "two"]


def test_an_append_is_one_store_request(held: Holder, server: Server) -> None:
    before = server.store_requests()
    for number in range(20):
        held.record(str(number))
    held.renew()
    assert spent(server, before) == {"create": 21}


def test_a_repeat_of_the_newest_asks_the_store_nothing(held: Holder, server: Server) -> None:
    body = held.body("once")
    first = held.send(body).json()
    before = server.store_requests()
    assert held.send(body).json() == first
    assert held.send({**body, "again": True}).json() == first
    assert spent(server, before) == {}
    assert contents(held) == ["once"]


def test_a_server_that_knows_nothing_looks_before_and_after(held: Holder, replica: httpx.Client) -> None:
    held.record("here")
    assert held.send(held.body("there"), by=replica).status_code == 200
    held.record("here again")  # the first server's head is out of date now
    assert contents(held) == ["here", "there", "here again"]


def test_repeats_on_another_server(held: Holder, replica: httpx.Client) -> None:
    body = held.body("once")
    first = held.send(body).json()
    for again in (False, True):
        assert held.send({**body, "again": again}, by=replica).json() == first
    held.record("next")
    assert held.send(body, by=replica).json() == first  # an old repeat is as good
    held.seq, held.prev = held.seq + 1, ""
    assert contents(held) == ["once", "next"]


def test_a_repeat_of_what_was_folded(held: Holder, replica: httpx.Client) -> None:
    bodies = []
    for number in range(130):
        bodies.append(held.body(str(number)))
        assert held.send(bodies[-1]).status_code == 200
    for body in (bodies[0], bodies[62], bodies[63], bodies[-1]):
        seq = held.seq
        answer = replica.post(path_of(held.agent_id, "/records"), json=body)
        assert answer.json() == {"seq": body["seq"], "epoch": 1, "digest": sealed(body)}
        held.seq = seq
    assert contents(held) == [str(number) for number in range(130)]
    forged = {**bodies[10], "put": new_put()}
    assert problem(replica.post(path_of(held.agent_id, "/records"), json=forged), 409, "lease_lost")["landed"] is False
    assert contents(held) == [str(number) for number in range(130)]


def test_a_stalled_holder_whose_entries_were_folded(held: Holder, new_holder: Make, replica: httpx.Client) -> None:
    held.record("mine")
    late = held.body("too late")
    other = new_holder(held.agent_id, "other")
    other.claim(takeover=True)
    for number in range(130):
        other.record(str(number))
    for by in (held.client, replica):
        lost = problem(held.send(late, by=by), 409, "lease_lost")
        assert (lost["by"], lost["epoch"], lost["landed"]) == ("other", 2, False)
    assert "too late" not in contents(held)


@pytest.mark.parametrize("ahead", [1, 5, 1000])
def test_a_gap_is_refused(held: Holder, replica: httpx.Client, ahead: int) -> None:
    held.record("one")
    for by in (held.client, replica):
        found = problem(held.send(held.body("far ahead", seq=held.seq + 1 + ahead), by=by), 409, "invalid")
        assert f"ends at {held.seq}" in found["detail"]
    assert contents(held) == ["one"]


@pytest.mark.parametrize("change", [{"prev": "0" * 32}, {"holder": "another"}, {"epoch": 2}], ids=str)
def test_what_does_not_follow_is_refused(held: Holder, replica: httpx.Client, change: dict[str, Any]) -> None:
    held.record("one")
    for by in (held.client, replica):
        problem(held.send(held.body("forged", **change), by=by), 409, "invalid")
    held.record("two")
    assert contents(held) == ["one", "two"]


def test_a_fork_is_refused(held: Holder, replica: httpx.Client) -> None:
    first, second = held.body("first"), held.body("second")
    assert held.send(first).status_code == 200
    for by in (held.client, replica):
        lost = problem(by.post(path_of(held.agent_id, "/records"), json=second), 409, "lease_lost")
        assert (lost["by"], lost["epoch"], lost["landed"]) == ("me", 1, False)
    assert contents(held) == ["first"]


def test_a_put_id_is_for_one_entry(held: Holder, replica: httpx.Client) -> None:
    body = held.body("first")
    held.send(body)
    other = {**body, "records": [turn("second", 1)]}
    for by in (held.client, replica):
        problem(by.post(path_of(held.agent_id, "/records"), json=other), 409, "invalid")
    problem(replica.post(path_of(held.agent_id, "/lease/renew"), json={**held.body(), **only(body)}), 409, "invalid")


def only(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("seq", "prev", "put")}


def test_an_agent_that_nobody_claimed(new_holder: Make) -> None:
    holder = new_holder()
    holder.seq, holder.epoch, holder.prev = 1, 1, "0" * 32
    problem(holder.send(holder.body("out of nothing")), 409, "invalid")
    problem(holder.client.get(path_of(holder.agent_id)), 404, "not_found")


def test_many_writers_of_one_lease_write_one_chain(held: Holder, replica: httpx.Client) -> None:
    """Two with one lease is a mistake; each slot has one winner, and the others are told."""
    bodies = [held.body(f"writer {number}") for number in range(6)]
    statuses = [held.client.post(path_of(held.agent_id, "/records"), json=body).status_code for body in bodies[:3]]
    statuses += [replica.post(path_of(held.agent_id, "/records"), json=body).status_code for body in bodies[3:]]
    assert statuses == [200, 409, 409, 409, 409, 409]
    assert contents(held) == ["writer 0"]


def test_records_are_stored_on_one_line(held: Holder, directory: Path) -> None:
    """History has an entry a line, so the white space of a pretty body must not get there."""
    body = held.body("one\nline", "two")
    pretty = json.dumps(body, indent=2, ensure_ascii=False).encode()
    headers = {"content-type": "application/json; charset=utf-8"}
    response = held.client.post(path_of(held.agent_id, "/records"), content=pretty, headers=headers)
    assert response.json()["digest"] == sealed(body)
    stored = (directory / "agents" / held.agent_id / "log" / f"{body['seq']:020d}").read_bytes()
    assert b"\n" not in stored
    assert msgspec.json.decode(stored)["records"] == body["records"]


BAD_RECORDS: list[Any] = [
    [], [1], ["turn"], [None], [{}], [{"type": 1}], [{"type": "turn"}], [{"type": "turn", "role": "nerd"}],
    [{"type": "turn", "role": "user", "content": 1}], [{"type": "pin", "text": "no id"}], [{"type": []}],
    [{"type": "working_state", "plan": [{"step": "x", "status": "later"}]}], {"type": "turn"}, None,
]  # fmt: skip


@pytest.mark.parametrize("records", BAD_RECORDS, ids=str)
def test_records_that_cannot_be_used(held: Holder, records: Any) -> None:
    found = problem(held.send(held.body(records=records)), 422, "invalid")
    assert "records" in found["detail"] or found["agent_id"] == held.agent_id
    held.record("fine")
    assert contents(held) == ["fine"]


def test_records_too_deep_to_be_read_back(held: Holder) -> None:
    headers = {"content-type": "application/json"}
    for depth, status in ((100_000, 400), (900, 422), (120, 422), (100, 200)):
        deep = b"[" * depth + b"]" * depth
        body = msgspec.json.encode(held.body("x")).replace(b'"content":"x"', b'"content":' + deep)
        response = held.client.post(path_of(held.agent_id, "/records"), content=body, headers=headers)
        assert response.status_code == status, response.text
    assert held.client.get(path_of(held.agent_id, "/state")).status_code == 200
    assert held.client.get(path_of(held.agent_id, "/briefing")).status_code == 200


def test_numbers_that_nobody_can_read_back(held: Holder) -> None:
    body = msgspec.json.encode(held.body("x")).replace(b'"content":"x"', b'"content":[1e999]')
    headers = {"content-type": "application/json"}
    problem(held.client.post(path_of(held.agent_id, "/records"), content=body, headers=headers), 422, "invalid")


def test_what_lies_in_every_snapshot_is_small(held: Holder) -> None:
    pin = {"type": "pin", "id": "p", "text": "x" * MAX_WORKING_STATE, "at": AT}
    assert problem(held.send(held.body(records=[pin])), 413, "too_large")["agent_id"] == held.agent_id
    assert held.send(held.body("x" * MAX_WORKING_STATE)).status_code == 200


def test_only_json_is_taken(held: Holder) -> None:
    """A page of another site can send text/plain to a loopback server without asking it first."""
    data = msgspec.json.encode(held.body("x"))
    for headers in ({"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}, {}):
        problem(held.client.post(path_of(held.agent_id, "/records"), content=data, headers=headers), 415, "invalid")


def test_folding_follows_the_acknowledged(held: Holder, directory: Path) -> None:
    log = directory / "agents" / held.agent_id / "log"
    for number in range(64 * 3 + 5):
        held.record(str(number))
    assert contents(held) == [str(number) for number in range(64 * 3 + 5)]
    snapshots = sorted(int(path.name.removesuffix(".snap")) for path in log.glob("*.snap"))
    assert snapshots
    assert all(seq % 64 == 0 for seq in snapshots)
