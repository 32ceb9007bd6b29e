"""polign release, takeover and delete."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from polign_recall import Client, DeleteReport, LeaseLost, NotFound

from ..server.running import LONG, Server
from .running import in_process, on_terminal, polign

HOLDER = """
import sys
from polign_recall import Client
agent = Client(local_dir=sys.argv[1]).resume("x", holder="the-dead-one")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_free_agent_stays_as_it_is(records: Path) -> None:
    with Client(local_dir=records) as client:
        before = client.status("other")
        for command in ("release", "takeover"):
            done = polign(command, "other", "-store", records)
            assert (done.returncode, done.stdout) == (0, "other is free already; nothing was changed\n")
        assert json.loads(polign("release", "other", "--json", "-store", records).stdout)["freed"] is False
        assert client.status("other") == before


def test_a_living_holder_is_only_deposed_by_takeover(records: Path) -> None:
    with Client(local_dir=records) as client, client.resume("other", holder="me\x1b[31m") as agent:
        refused = polign("release", "other", "-store", records)
        assert refused.returncode == 3
        assert "[lease_held]" in refused.stderr
        assert "polign takeover" in refused.stderr
        agent.record_turn("user", "still mine")
        done = polign("takeover", "other", "-store", records)
        assert done.returncode == 0
        assert "deposed me\ufffd[31m" in done.stdout
        assert client.status("other").held is False
        with pytest.raises(LeaseLost):
            agent.record_turn("user", "too late")
    with Client(local_dir=records) as client, client.resume("other") as agent:
        assert [turn.content for turn in agent.turns()] == ["hello", "still mine"]


def test_release_with_takeover(records: Path) -> None:
    with Client(local_dir=records) as client, client.resume("other", holder="me"):
        told = json.loads(polign("release", "other", "--takeover", "--json", "-store", records).stdout)
    assert told["freed"] is True
    assert told["deposed"]["holder"] == "me"
    assert told["epoch"] == told["deposed"]["epoch"] + 1


def test_release_frees_what_a_dead_process_held(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.wait(LONG)
    done = polign("release", "x", "-store", tmp_path)
    assert done.returncode == 0
    assert "deposed the-dead-one" in done.stdout
    assert "free already" in polign("release", "x", "-store", tmp_path).stdout


def test_through_a_server(server: Server) -> None:
    with Client(url=server.url) as client, client.resume("x", holder="me") as agent:
        agent.record_turn("user", "hello")
        assert polign("release", "x", "-url", server.url).returncode == 3
        assert "deposed me" in polign("takeover", "x", "-url", server.url).stdout
        with pytest.raises(LeaseLost):
            agent.record_turn("user", "too late")
        assert polign("delete", "x", "-yes", "-url", server.url).returncode == 0
        with pytest.raises(NotFound):
            client.status("x")


def test_delete_asks(records: Path) -> None:
    def agents() -> list[str]:
        with Client(local_dir=records) as client:
            return [agent.agent_id for agent in client.agents()]

    refused = on_terminal("delete", "other", "-store", records, typed="n\n")
    assert refused.returncode == 1
    assert "Delete all that 'other' recorded? [y/N]" in refused.shown
    unasked = polign("delete", "other", "-store", records)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert agents() == ["billing/migrator", "other"]
    assert on_terminal("delete", "other", "-store", records, typed="y\n").returncode == 0
    assert agents() == ["billing/migrator"]
    assert json.loads(polign("delete", "billing/migrator", "--yes", "--json", "-store", records).stdout)["deleted"] > 0
    assert agents() == []
    assert polign("delete", "other", "--yes", "-store", records).returncode == 4


def test_what_the_store_would_not_delete(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = DeleteReport(3, ["agents/other/one\x1b"])
    monkeypatch.setattr(Client, "delete_agent", lambda *args, **options: report)
    done = in_process("delete", "other", "--yes", "--json", "-store", records)
    assert done.exit_code == 5
    assert json.loads(done.stdout)["refused"] == report.refused
    assert "[store_denied]" in done.stderr
    assert "agents/other/one\ufffd" in done.stderr


def test_delete_of_an_agent_that_is_held(records: Path) -> None:
    with Client(local_dir=records) as client, client.resume("other") as agent:
        assert polign("delete", "other", "--yes", "-store", records).returncode == 3
        agent.record_turn("user", "still here")
        assert polign("delete", "other", "--yes", "--takeover", "-store", records).returncode == 0
        with pytest.raises(LeaseLost):
            agent.record_turn("user", "too late")
