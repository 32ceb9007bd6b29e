"""Claiming, renewing and releasing over HTTP: the core's own rules, and repeats that change nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from polign_recall import Client, LeaseHeld
from polign_recall.chain import Host, this_host

from .holding import AT, TTL, Holder, claim_body, path_of, problem, sealed

Make = Callable[..., Holder]


def claim(holder: Holder, body: dict[str, Any]) -> httpx.Response:
    return holder.client.post(path_of(holder.agent_id, "/lease"), json=body)


def test_a_claim_gives_the_end_of_the_chain(new_holder: Make) -> None:
    holder = new_holder()
    head = holder.claim(ttl=120, host={"boot": "b", "pid_ns": "n", "pid": 1, "started": 2})
    assert (head["seq"], head["epoch"], head["kind"]) == (1, 1, "claim")
    assert head["lease"] == {
        "holder": "me", "epoch": 1, "ttl": 120.0, "since": AT,
        "host": {"boot": "b", "pid_ns": "n", "pid": 1, "started": 2},
    }  # fmt: skip
    assert head["state"]["starts"] == 1


def test_a_repeated_claim_gives_the_same_answer(new_holder: Make) -> None:
    holder, body = new_holder(), claim_body()
    first = claim(holder, body)
    assert first.status_code == 201
    for more in ({}, {"takeover": True}):
        assert claim(holder, {**body, **more}).json() == first.json()


def test_an_old_claim_repeated_takes_nothing(new_holder: Make) -> None:
    holder = new_holder()
    body = claim_body(takeover=True)
    head = claim(holder, body).json()
    holder.seq, holder.epoch, holder.prev = head["seq"], head["epoch"], head["digest"]
    holder.record("going on")
    assert problem(claim(holder, body), 409, "lease_held")["holder"] == "me"
    holder.release()
    assert problem(claim(holder, body), 409, "lease_lost")["landed"] is True
    assert holder.client.get(path_of(holder.agent_id)).json()["held"] is False


def test_a_put_id_is_for_one_claim(new_holder: Make) -> None:
    holder, body = new_holder(), claim_body()
    claim(holder, body)
    problem(claim(holder, {**body, "holder": "another"}), 409, "invalid")


def test_a_held_lease_says_who_and_where(held: Holder) -> None:
    found = problem(claim(held, claim_body("another")), 409, "lease_held")
    assert (found["holder"], found["since"], found["epoch"], found["host"]) == ("me", AT, 1, {})
    assert 0 < found["expires_in"] <= TTL + 1
    assert found["agent_id"] == held.agent_id
    assert found["retryable"] is False


def test_takeover_deposes_the_holder(held: Holder, new_holder: Make) -> None:
    other = new_holder(held.agent_id, "other")
    other.claim(takeover=True)
    assert other.epoch == 2
    lost = problem(held.send(held.body("too late")), 409, "lease_lost")
    assert (lost["by"], lost["epoch"], lost["landed"]) == ("other", 2, False)
    other.record("mine now")
    problem(held.renew(), 409, "lease_lost")
    problem(held.release(), 409, "lease_lost")


def test_an_expired_lease_is_free(held: Holder, new_holder: Make, directory: Path) -> None:
    """By the store's own times: here those of the files."""
    entry = directory / "agents" / held.agent_id / "log" / f"{1:020d}"
    modified = entry.stat().st_mtime
    other = new_holder(held.agent_id, "other")
    os.utime(entry, (modified, modified - TTL + 60))
    assert problem(claim(other, claim_body("other")), 409, "lease_held")["expires_in"] < 61
    os.utime(entry, (modified, modified - TTL - 2))
    assert held.client.get(path_of(held.agent_id)).json()["held"] is False
    assert other.claim()["epoch"] == 2
    problem(held.renew(), 409, "lease_lost")


def test_release_frees_at_once(held: Holder, new_holder: Make) -> None:
    assert held.release().status_code == 200
    other = new_holder(held.agent_id, "other")
    assert other.claim()["epoch"] == 2


def test_nothing_is_written_after_a_release(held: Holder, server: Any) -> None:
    held.release()
    problem(held.send(held.body("after the end")), 409, "lease_not_held")
    problem(held.renew(), 409, "lease_not_held")
    assert held.client.get(path_of(held.agent_id)).json()["turns"] == 0


def test_a_repeated_release_gives_the_same_answer(held: Holder, new_holder: Make) -> None:
    body = held.body()
    first = held.send(body, "/lease/release")
    assert held.send(body, "/lease/release").json() == first.json()
    new_holder(held.agent_id, "other").claim()
    lost = problem(held.send(body, "/lease/release"), 409, "lease_lost")
    assert (lost["landed"], lost["by"]) == (True, "other")


def test_renewals_are_entries_like_a_local_holders(held: Holder) -> None:
    body = held.body()
    answer = held.send(body, "/lease/renew").json()
    assert answer == {"seq": 2, "epoch": 1, "digest": sealed(body, "renew")}
    assert held.send(body, "/lease/renew").json() == answer


def test_a_dead_holder_is_seen_by_the_contender(held: Holder, new_holder: Make) -> None:
    other = new_holder(held.agent_id, "other")
    problem(claim(other, claim_body("other", dead_epoch=7)), 409, "lease_held")
    assert other.claim(dead_epoch=1)["epoch"] == 2
    problem(claim(held, claim_body("third", dead_epoch=1)), 409, "lease_held")


def test_a_dead_holder_is_seen_by_the_server(new_holder: Make) -> None:
    """The server runs where this test runs, so it sees for itself that a process of this host is gone."""
    here = this_host()
    gone = Host(boot=here.boot, pid_ns=here.pid_ns, pid=here.pid, started=here.started + 1)
    fields = ("boot", "pid_ns", "pid", "started")
    holder = new_holder()
    holder.claim(host={name: getattr(gone, name) for name in fields})
    other = new_holder(holder.agent_id, "other")
    assert other.claim(host={name: getattr(here, name) for name in fields})["epoch"] == 2
    problem(claim(holder, claim_body("third")), 409, "lease_held")


def test_a_process_on_the_store_and_one_on_the_server_exclude_each_other(new_holder: Make, directory: Path) -> None:
    holder = new_holder()
    with Client(local_dir=directory) as client:
        with client.resume(holder.agent_id) as agent:
            agent.record_turn("user", "from the store")
            found = problem(claim(holder, claim_body()), 409, "lease_held")
            assert found["holder"] == agent.holder
            assert found["host"]["pid"] == os.getpid()
        head = holder.claim()
        assert head["state"]["turns"][0]["content"] == "from the store"
        holder.record("from the server")
        with pytest.raises(LeaseHeld):
            client.resume(holder.agent_id)
        holder.release()
        with client.resume(holder.agent_id) as agent:
            assert [turn.content for turn in agent.turns()] == ["from the store", "from the server"]


def test_a_state_that_cannot_be_read_is_not_held(held: Holder, directory: Path) -> None:
    held.record("fine")
    held.release()
    log = directory / "agents" / held.agent_id / "log"
    entry = log / f"{held.seq - 1:020d}"
    damaged = entry.read_bytes().replace(b'"role":"user"', b'"role":"nerd"')
    (log / f"{held.seq - 1:020d}").write_bytes(damaged)
    # The chain's digests notice first; so the damage has to go on to the end of it.
    problem(claim(held, claim_body()), 500, "corrupt")


BAD: list[dict[str, Any]] = [
    {"ttl": 4}, {"ttl": 3601}, {"ttl": "60"}, {"ttl": None}, {"holder": ""}, {"holder": "x" * 201}, {"holder": "a\nb"},
    {"holder": "a\x00"}, {"put": "short"}, {"put": "a" * 65}, {"put": "with.dots.in.it"}, {"put": "a" * 32 + "\n"},
    {"at": "yesterday"}, {"at": "2026-11-29T12:00:00"}, {"at": "2026-11-29"}, {"host": {"pid": 2**31}},
    {"host": {"pid": -1}}, {"host": {"boot": "x" * 201}}, {"host": None}, {"takeover": 1}, {"dead_epoch": 0},
    {"wait": 5},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=str)
def test_claims_that_cannot_be_used(new_holder: Make, change: dict[str, Any]) -> None:
    holder = new_holder()
    problem(claim(holder, {**claim_body(), **change}), 422, "invalid")
    problem(holder.client.get(path_of(holder.agent_id)), 404, "not_found")


@pytest.mark.parametrize("name", ["holder", "ttl", "put", "at"])
def test_claims_that_lack_something(new_holder: Make, name: str) -> None:
    body = claim_body()
    del body[name]
    problem(claim(new_holder(), body), 422, "invalid")


NOT_JSON = [b"", b"{", b"\xff", b"x{}", b'{"put":"\\ud800"}', b'{"holder":"\xff"}', b"{\"at\":'x'}"]


@pytest.mark.parametrize("data", NOT_JSON)
def test_bodies_that_are_not_json(new_holder: Make, data: bytes) -> None:
    holder = new_holder()
    headers = {"content-type": "application/json"}
    response = holder.client.post(path_of(holder.agent_id, "/lease"), content=data, headers=headers)
    problem(response, 400, "invalid")
