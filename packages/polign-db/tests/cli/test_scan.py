"""polign scan: what was recorded before redaction, or without it, is found, and never shown.

No secret in here is real, and none stands in the file: each is put together from parts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from polign_recall import Call, Client, Turn
from polign_recall.writer import FOLD_AFTER

from .running import in_process, polign
from .test_everywhere import PLACES, Spot

KEY = "gh" + "p_" + "a1B2c3D4e5F6" * 3
PASSWORD = "pA55" + "w0rdq7"
LONG = "a line of a log\n" * 3_000


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: place.__name__)
def spot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spot]:
    with request.param(tmp_path_factory.mktemp(request.param.__name__)) as spot:
        yield spot


def fill(client: Client, agent_id: str, **how: Any) -> str:
    """An agent with a secret in each kind of record; gives the reference of an output that has one in the middle."""
    with client.resume(agent_id, **how) as agent:
        agent.record_turn("user", "nothing")
        agent.record_turn("tool", f"found {KEY} there")
        agent.record_turn("assistant", calls=[Call(id="c", name="login", args={"password": PASSWORD})])
        agent.pin(f"use {KEY}")
        agent.set_pointer("repo", "git_ref", f"https://u:{PASSWORD}@example.org/x.git")
        action = agent.begin_action("login", "external", {"key": KEY})
        agent.end_action(action.seq, "failed", error=f"{KEY} was refused")
        agent.record_turn("tool", LONG + KEY + LONG)
        return agent.store_output(io.BytesIO((LONG * 20 + KEY + LONG * 20).encode()))


def ask(spot: Spot, *args: str, code: int) -> list[dict[str, Any]]:
    result = in_process("scan", *args, "--json", *spot.options, env=spot.credentials)
    assert result.exit_code == code, result.output
    for secret in (KEY, PASSWORD):
        assert secret not in result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_every_place_of_a_secret_is_named(spot: Spot) -> None:
    with spot.client() as client:
        ref = fill(client, "leaky", redact=None)
        whole = next(turn.output_ref for turn in client.resume("leaky", defer_lease=True).turns() if turn.output_ref)
    found = ask(spot, "leaky", code=1)
    assert {each["agent_id"] for each in found} == {"leaky"}
    recorded = [(each["kind"], each["seq"], each["rule"]) for each in found if each["kind"] not in ("output", "state")]
    assert recorded == [
        ("turn", 2, "github-token"), ("turn", 3, "named-secret"), ("pin", None, "github-token"),
        ("pointer", None, "url-password"), ("action_started", 1, "github-token"), ("action_ended", 1, "github-token"),
    ]  # fmt: skip
    assert all(isinstance(each["entry"], int) for each in found if each["kind"] != "output")
    assert sorted(each["ref"] for each in found if each["ref"]) == sorted([ref, whole])


def test_what_was_recorded_with_redaction_is_clean(spot: Spot) -> None:
    with spot.client() as client:
        fill(client, "clean")
    assert ask(spot, "clean", code=0) == []
    result = in_process("scan", "clean", *spot.options, env=spot.credentials)
    assert result.stdout == "no secrets of known shapes in 1 agent\n"


def test_all_agents_and_nobody(spot: Spot) -> None:
    with spot.client() as client:
        for name in ("one/leaky", "two"):
            with client.resume(name, redact=None) as agent:
                agent.milestone(KEY if name != "two" else "done")
    found = ask(spot, code=1)
    assert "one/leaky" in {each["agent_id"] for each in found}
    assert "two" not in {each["agent_id"] for each in found}
    result = in_process("scan", "two", "nobody", *spot.options, env=spot.credentials)
    assert result.exit_code == 4
    assert "[not_found] agent 'nobody'" in result.stderr


def test_what_was_folded_and_what_a_deletion_left(spot: Spot) -> None:
    with spot.client() as client:
        with client.resume("folded", redact=None) as agent:
            agent.record_turn("user", KEY)
            agent.update_working_state(notes=KEY)
            for number in range(FOLD_AFTER):
                agent.record_turn("user", str(number))
        with client.resume("folded") as agent:
            agent.record_turn("user", "the last")
        kinds = [(each["kind"], each["seq"]) for each in ask(spot, "folded", code=1)]
        assert {("turn", 1), ("working_state", None), ("state", None)} <= set(kinds)
        client.delete_agent("folded")
        if spot.has_keys:
            assert ask(spot, "folded", code=0) == []


def test_as_a_table(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client:
        ref = fill(client, "leaky", redact=None)
    done = polign("scan", "-store", tmp_path)
    assert done.returncode == 1
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["leaky", "turn", "2", "3", "github-token"] in rows
    assert ["leaky", "output", ref, "github-token"] in rows
    assert "rotate" in done.stderr
    assert KEY not in done.stdout + done.stderr


def test_ids_damaged_objects_and_leftovers_are_looked_at_too(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client, client.resume("x") as agent:
        agent.submit(Turn(role="user", content="hello", message_id=KEY)).result()
        ref = agent.store_output(b"\xff" + KEY.encode() + b"\0")  # no text, so it is stored as it is
    (tmp_path / "agents/x/log/cut.off").write_text('{"v":1,"records":[{"content":"' + KEY)
    (tmp_path / "agents/gone/history").mkdir(parents=True)
    (tmp_path / "agents/gone/history/1").write_text(KEY)
    found = json.loads(polign("scan", "-store", tmp_path, "--json").stdout)
    places = [(each["agent_id"], each["kind"], each["seq"], each["ref"]) for each in found]
    assert set(places) == {
        ("x", "turn", 1, None), ("x", "output", None, ref), ("x", "object", None, "log/cut.off"),
        ("gone", "object", None, "history/1"),
    }  # fmt: skip


def test_an_agent_behind_a_server_that_cannot_be_read(tmp_path: Path) -> None:
    from ..server.running import serving

    with Client(local_dir=tmp_path / "records") as client:
        for name in ("broken", "leaky"):
            with client.resume(name, redact=None) as agent:
                agent.milestone(KEY)
        with client.resume("fine") as agent:
            agent.milestone("done")
    log = tmp_path / "records/agents/broken/log"
    min(log.iterdir()).write_bytes(b"{")
    with serving(tmp_path / "records") as server:
        done = polign("scan", "-url", server.url, "--json")
        assert done.returncode == 1
        assert {each["agent_id"] for each in json.loads(done.stdout)} == {"leaky"}
        assert "[corrupt] agent 'broken'" in done.stderr
        assert polign("scan", "fine", "-url", server.url).returncode == 0
        with Client(local_dir=tmp_path / "records") as client:
            client.delete_agent("leaky")
        done = polign("scan", "-url", server.url)
    assert done.returncode == 7
    assert done.stdout == ""
