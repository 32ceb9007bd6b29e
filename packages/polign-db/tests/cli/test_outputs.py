"""polign outputs."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from pathlib import Path

import pytest
from polign_db.cli.stored import fetched
from polign_recall import Call, Client

from ..server.running import Server
from .running import LONG, POLIGN, in_process, on_terminal, polign

BINARY = random.Random(1).randbytes(20_000)


def fill(client: Client) -> dict[str, str]:
    """An agent with one output of each kind; gives their references."""
    with client.resume("x") as agent:
        found = {
            "text": agent.store_output("h\xe9llo\x1b[31m", name="greeting"),
            "binary": agent.store_output(BINARY, name="picture", media_type="image/png"),
            "empty": agent.store_output(b""),
        }
        agent.record_turn("tool", "long " * 5000, name="ls")
        agent.record_turn("assistant", calls=[Call("c", "put", {"data": "word " * 9000})])
        agent.record_turn("user", [{"type": "image", "data": base64.b64encode(BINARY[:3000]).decode()}])
        action = agent.begin_action("send", "external", {"text": "word " * 8000, "image": BINARY[:2000]})
        agent.end_action(action.seq, "done", result="long " * 7000)
    return found


@pytest.fixture
def refs(tmp_path: Path) -> dict[str, str]:
    with Client(local_dir=tmp_path) as client:
        return fill(client)


def test_list(tmp_path: Path, refs: dict[str, str]) -> None:
    found = json.loads(polign("outputs", "x", "--json", "-store", tmp_path).stdout)
    names = ["greeting", "picture", "", "ls", "arguments of put", "part of turn 3"]
    names += ["arguments of send", "part of the arguments of send", "result of action 1"]
    assert [each["name"] for each in found] == names
    assert [each["ref"] for each in found[:3]] == list(refs.values())
    assert [each["size"] for each in found] == [11, 20_000, 0, 25_000, None, 3000, None, 2000, 35_000]
    out = polign("outputs", "x", "-store", tmp_path).stdout
    assert all(each["ref"] in out for each in found)
    assert "\x1b" not in out
    for each in found:
        assert in_process("outputs", "x", each["ref"], "-store", tmp_path, "-o", tmp_path / "value").exit_code == 0


def test_none(records: Path) -> None:
    assert polign("outputs", "other", "-store", records).stdout == "no outputs\n"
    assert polign("outputs", "other", "-store", records, "-o", "x").returncode == 2


def test_fetch(tmp_path: Path, refs: dict[str, str]) -> None:
    for name, data in {"text": "h\xe9llo\x1b[31m".encode(), "binary": BINARY, "empty": b""}.items():
        command = [POLIGN, "outputs", "x", refs[name], "-store", str(tmp_path)]
        assert subprocess.run(command, capture_output=True, env={}, timeout=LONG, check=True).stdout == data
        assert in_process(*command[1:], "-o", tmp_path / "value").stdout == ""
        assert (tmp_path / "value").read_bytes() == data
        told = json.loads(in_process(*command[1:], "--json").stdout)
        assert (told["size"], told["encoding"]) == (len(data), "base64" if name == "binary" else "utf-8")
        assert (base64.b64decode(told["data"]) if name == "binary" else told["data"].encode()) == data


def test_fetch_through_a_server(server: Server, tmp_path: Path) -> None:
    with Client(url=server.url) as client:
        refs = fill(client)
    for name in ("binary", "empty"):
        assert polign("outputs", "x", refs[name], "-url", server.url, "-o", tmp_path / name).returncode == 0
    assert (tmp_path / "binary").read_bytes() == BINARY
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.parametrize("part", [1, 7, 11, 12])
def test_in_parts(tmp_path: Path, refs: dict[str, str], part: int) -> None:
    with Client(local_dir=tmp_path) as client:
        parts = list(fetched(client, "x", refs["text"], part))
        assert b"".join(parts) == "h\xe9llo\x1b[31m".encode()
        assert all(len(each) == part for each in parts[:-1])
        assert list(fetched(client, "x", refs["empty"], part)) == [b""]


def test_on_a_terminal(tmp_path: Path, refs: dict[str, str]) -> None:
    done = on_terminal("outputs", "x", refs["text"], "-store", tmp_path)
    assert done.shown == "h\xe9llo\ufffd[31m\r\n"
    done = on_terminal("outputs", "x", refs["binary"], "-store", tmp_path)
    assert done.returncode == 2
    assert "-o FILE" in done.shown


def test_what_cannot_be_had(tmp_path: Path, refs: dict[str, str]) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    assert in_process("outputs", "x", "out-" + "0" * 32, "-store", tmp_path, "-o", kept).exit_code == 4
    assert kept.read_text() == "kept"
    done = polign("outputs", "x", refs["text"], "-store", tmp_path, "-o", tmp_path / "no" / "where")
    assert done.returncode == 1
    assert "No such file" in done.stderr
    path = tmp_path / "agents/x/outputs" / refs["text"].removeprefix("out-")
    path.write_bytes(b"something else")
    done = polign("outputs", "x", refs["text"], "-store", tmp_path)
    assert done.returncode == 7
    assert "[corrupt]" in done.stderr
