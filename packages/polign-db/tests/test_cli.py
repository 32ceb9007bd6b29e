"""The polign command, run as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from polign_db import __version__
from polign_recall import Client


def polign(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("polign")
    return subprocess.run([command, *args], capture_output=True, text=True, env=env or {"COLUMNS": "200"}, timeout=60)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    with Client(local_dir=tmp_path / "records") as client:
        with client.resume("billing/migrator") as agent:
            agent.update_working_state(goal="Move billing", plan=["one", {"step": "two", "status": "done"}])
            agent.pin("Never touch \x1b[31mprod")
            agent.set_pointer("repo", "git_ref", "main@abc123")
            agent.record_turn("user", "Carry on with [bold]the[/bold] migration.")
        with client.resume("other") as agent:
            agent.record_turn("user", "hello")
    return tmp_path / "records"


def test_version() -> None:
    assert polign("--version").stdout == f"polign, version {__version__}\n"


def test_agents(records: Path) -> None:
    out = polign("--store", str(records), "agents").stdout
    assert "billing/migrator" in out
    assert "Move billing" in out
    assert out.index("billing/migrator") < out.index("other")


def test_agents_json(records: Path) -> None:
    with Client(local_dir=records) as client, client.resume("other") as agent:
        found = json.loads(polign("-store", f"fs:{records}", "agents", "--json").stdout)
        assert [a["agent_id"] for a in found] == ["billing/migrator", "other"]
        assert [a["held"] for a in found] == [False, True]
        assert found[1]["holder"] == agent.holder
        assert 0 < found[1]["expires_in"] <= 61


def test_store_from_the_environment(records: Path) -> None:
    result = polign("agents", env={"POLIGN_STORE": str(records), "COLUMNS": "200"})
    assert "billing/migrator" in result.stdout


def test_show(records: Path) -> None:
    out = polign("--store", str(records), "agents", "show", "billing/migrator").stdout
    for text in ("Move billing", "[todo] one", "[done] two", "main@abc123", "Never touch \ufffd[31mprod"):
        assert text in out
    assert "\x1b" not in out
    found = json.loads(polign("--store", str(records), "agents", "show", "billing/migrator", "--json").stdout)
    assert found["working_state"]["goal"] == "Move billing"
    assert found["epoch"] == 1


def test_briefing(records: Path) -> None:
    out = polign("--store", str(records), "briefing", "billing/migrator").stdout
    assert "Goal: Move billing" in out
    assert "Carry on with [bold]the[/bold] migration." in out
    short = polign("--store", str(records), "briefing", "billing/migrator", "--token-budget", "300").stdout
    assert 0 < len(short) <= len(out)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("agents", "show", "nobody"), "not_found"),
        (("briefing", "nobody"), "not_found"),
        (("briefing", "other", "--token-budget", "10"), "invalid"),
    ],
)
def test_errors_are_named(records: Path, args: tuple[str, ...], code: str) -> None:
    result = polign("--store", str(records), *args)
    assert result.returncode == 1
    assert f"[{code}]" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_store_given() -> None:
    result = polign("agents")
    assert result.returncode == 1
    assert "POLIGN_STORE" in result.stderr


def test_an_empty_place(tmp_path: Path) -> None:
    assert polign("--store", str(tmp_path / "nothing"), "agents").stdout == "no agents\n"
    assert not (tmp_path / "nothing").exists()
