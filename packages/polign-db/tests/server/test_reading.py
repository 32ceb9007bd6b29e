"""Turns and entries, page by page, across folded history and the end of the chain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from polign_db.server.reading import PAGE_BYTES

from .holding import Holder, path_of, problem

TURNS = 200


@pytest.fixture(scope="module")
def long(server: Any) -> Any:
    """An agent with 200 turns, two to an entry, most of them folded."""
    with server.client() as client:
        holder = Holder(client, "long")
        holder.claim()
        for number in range(0, TURNS, 2):
            holder.record(f"turn {number + 1}", f"turn {number + 2}")
        yield holder


def get(holder: Holder, what: str, **params: Any) -> dict[str, Any]:
    response = holder.client.get(path_of(holder.agent_id, what), params=params)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize("limit", [1000, 37, 7])
def test_all_turns(long: Holder, limit: int) -> None:
    seen: list[int] = []
    after = entry = 0
    for _ in range(TURNS):
        page = get(long, "/turns", after=after, limit=limit, entry=entry)
        assert len(page["turns"]) <= limit
        assert all(turn["content"] == f"turn {turn['seq']}" for turn in page["turns"])
        seen += [turn["seq"] for turn in page["turns"]]
        if page["next"] is None:
            break
        after, entry = page["next"], page["entry"]
    assert seen == list(range(1, TURNS + 1))


def test_turns_without_the_entry_hint(long: Holder) -> None:
    assert [turn["seq"] for turn in get(long, "/turns", after=150, limit=3)["turns"]] == [151, 152, 153]


def test_following_turns(long: Holder) -> None:
    page = get(long, "/turns", after=TURNS, entry=long.seq)
    assert page == {"turns": [], "next": None, "entry": long.seq}


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1000, 17])
def test_all_entries(long: Holder, order: str, limit: int) -> None:
    seen: list[int] = []
    bounds: dict[str, int] = {}
    for _ in range(TURNS):
        page = get(long, "/entries", order=order, limit=limit, **bounds)
        seen += [entry["seq"] for entry in page["entries"]]
        if page["next"] is None:
            break
        bounds = {"after" if order == "asc" else "before": page["next"]}
    assert seen == sorted(range(1, long.seq + 1), reverse=order == "desc")


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_entries_between(long: Holder, order: str) -> None:
    entries = get(long, "/entries", after=60, before=70, order=order)["entries"]
    assert sorted(entry["seq"] for entry in entries) == list(range(61, 70))


def test_a_page_reads_no_more_than_it_needs(long: Holder, server: Any) -> None:
    before = server.store_requests()
    get(long, "/entries", after=10, limit=5)
    after = server.store_requests()
    read = {name: after[name] - before[name] for name in after}
    # The end of the chain (its listing, its snapshot and the entries above), the listing of history, one part of it.
    assert read["list"] <= 4  # a directory is listed as often as it takes to see it twice the same; counted once here
    assert read["get"] <= 64 + 2
    assert read["create"] == 0


def test_a_page_ends_early_when_it_is_large(held: Holder) -> None:
    for number in range(3):
        held.record(f"{number}" + "x" * (PAGE_BYTES // 2))
    page = get(held, "/entries", after=1)
    assert [entry["seq"] for entry in page["entries"]] == [2]
    assert page["next"] == 2
    assert len(get(held, "/turns")["turns"]) == 1


def test_unknown_fields_and_types_are_given_back(held: Holder) -> None:
    records = [{"type": "turn", "role": "user", "content": "x", "seq": 1, "mood": {"a": [1]}}, {"type": "odd", "y": 2}]
    held.send(held.body(records=records))
    assert get(held, "/entries", after=1)["entries"][0]["records"] == records
    assert get(held, "/turns")["turns"] == records[:1]


@pytest.mark.parametrize("query", ["after=-1", "limit=0", "limit=1001", "order=up", "before=0", "limit=x", "limit=1.5"])
def test_queries_that_cannot_be_used(held: Holder, query: str) -> None:
    problem(held.client.get(path_of(held.agent_id, f"/entries?{query}")), 422, "invalid")


def test_answers_are_not_cached(held: Holder) -> None:
    response = held.client.get(path_of(held.agent_id, "/turns"))
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    json.loads(response.text)
