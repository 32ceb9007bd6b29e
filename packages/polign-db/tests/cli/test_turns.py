"""polign turns."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from polign_recall import Call, Client

from ..server.running import Server
from .running import LONG, POLIGN, in_process, polign


def numbers(*args: object) -> list[int]:
    done = in_process("turns", "x", "--json", *args)
    assert done.exit_code == 0, done.stderr
    return [turn["seq"] for turn in json.loads(done.stdout)]


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """An agent whose first turns are folded away."""
    with Client(local_dir=tmp_path / "long") as client, client.resume("x") as agent:
        for number in range(1, 101):
            agent.record_turn("user", f"turn {number}")
    return tmp_path / "long"


def test_which_turns(long: Path) -> None:
    assert numbers("-store", long) == list(range(1, 101))
    assert numbers("-store", long, "--limit", 3) == [98, 99, 100]
    assert numbers("-store", long, "--after", 10, "--limit", 2) == [11, 12]
    assert numbers("-store", long, "-after", 97) == [98, 99, 100]
    assert numbers("-store", long, "-after", 100) == []
    assert numbers("-store", long, "-limit", 0) == []
    assert numbers("-store", long, "-after", 0) == list(range(1, 101))


def test_as_text(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client, client.resume("x") as agent:
        agent.record_turn("user", "first\n\tsecond", name="ann")
        agent.record_turn("assistant", [{"type": "text", "text": "look"}], calls=[Call("c1", "ls", {"path": "/"})])
        agent.record_turn("tool", "long " * 5000, call_id="c1", status="error")
    out = polign("turns", "x", "-store", tmp_path).stdout
    for text in ("#1 ", " user (ann)\n    first\n    \tsecond\n", '    look\n    -> ls [c1] {"path":"/"}\n'):
        assert text in out
    assert " tool answers c1 error\n" in out
    assert "... the whole has 25,000 bytes: out-" in out


def test_json_is_what_was_recorded(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client, client.resume("x") as agent:
        agent.record_turn("user", "a\x1bb", message_id="m1")
    assert json.loads(polign("turns", "x", "--json", "-store", tmp_path).stdout)[0]["content"] == "a\x1bb"


def following(*args: object) -> subprocess.Popen[str]:
    command = [POLIGN, "turns", "x", "--follow", "--json", *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={})


def test_follow_until_interrupted(long: Path) -> None:
    with following("-store", long, "-limit", 1) as process, Client(local_dir=long) as client:
        assert process.stdout
        assert json.loads(process.stdout.readline())["seq"] == 100
        with client.resume("x") as agent:
            for number in (101, 102, 103):
                agent.record_turn("user", f"turn {number}")
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(3)] == [101, 102, 103]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (0, "", "")


def test_follow_through_a_server_until_the_agent_is_deleted(server: Server) -> None:
    with Client(url=server.url) as client, client.resume("x") as agent:
        agent.record_turn("user", "one")
        with following("-url", server.url) as process:
            assert process.stdout
            assert json.loads(process.stdout.readline())["content"] == "one"
            agent.record_turn("user", "two")
            assert json.loads(process.stdout.readline())["content"] == "two"
            agent.release()
            client.delete_agent("x")
            _, err = process.communicate(timeout=LONG)
    assert process.returncode == 4
    assert "[not_found]" in err
