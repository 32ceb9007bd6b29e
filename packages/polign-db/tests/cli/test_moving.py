"""polign export and import."""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from polign_db.cli import archive, carrying
from polign_recall import Call, Client, ResumedAgent
from polign_recall.history import records as records_of
from polign_recall.records import Unknown, decode

from ..server.running import Server
from .running import LONG, POLIGN, in_process, on_terminal, polign

RANDOM = random.Random(2)
LARGE = RANDOM.randbytes(archive.PART + 1)
ODD = 'a\x1b[31m\u2028\u202e\U0001f600 \ud7ff\ufffe \\u0041 "quoted"'


def work(agent: ResumedAgent, turns: int = 60) -> list[str]:
    """Everything that an agent can record; gives the outputs that it stored by itself."""
    agent.update_working_state(goal="Move", plan=["one", {"step": "two", "status": "doing", "owner": "me"}])
    agent.update_working_state(progress="half", decisions=[ODD], notes="")
    agent.pin("a rule", id="kept")
    agent.pin("another", id="gone")
    agent.unpin("gone")
    agent.set_pointer("repo", "git_ref", "main@abc", ODD)
    agent.set_pointer("old", "object", "x")
    agent.remove_pointer("old")
    agent.milestone("begun")
    agent.submit(Unknown(data={"type": "of_a_newer_version", "value": [1, {"a": None}]})).result()
    agent.submit(decode(b'{"type":"turn","seq":0,"role":"user","content":"","mood":{"x":1}}')).result()
    agent.record_turn("assistant", ODD, message_id="m1", calls=[Call("c1", "put", {"data": "word " * 9000})])
    agent.record_turn("tool", "long " * 5000, call_id="c1", status="error", brief="in short")
    image = base64.b64encode(RANDOM.randbytes(3000)).decode()
    agent.record_turn("user", [{"type": "text", "text": "words " * 5000}, {"type": "image", "data": image}])
    action = agent.begin_action("send", "external", {"text": "words " * 5000}, call_id="c9")
    agent.end_action(action.seq, "done", result="lines " * 5000)
    agent.begin_action("send", "external", {"to": ODD})
    for number in range(turns):
        agent.record_turn("user", f"turn {number}")
    agent.update_working_state(goal="Moved")
    return [agent.store_output(value, name="v") for value in (LARGE, b"", ODD)]


def known(client: Client, agent_id: str = "x") -> dict[str, Any]:
    """All that must survive: every record, the state, every output."""
    agent = client.resume(agent_id, defer_lease=True)
    refs = {path for raw in _raws(client, agent_id) for path in carrying.REFERENCE.findall(raw)}
    nested = set()
    for ref in refs:
        nested |= set(carrying.REFERENCE.findall(agent.fetch_output(ref.decode())))
    context = agent.context
    return {
        "records": [msgspec.json.decode(raw) for raw in _raws(client, agent_id)],
        "turns": list(agent.turns()), "history": agent.working_state_history(100), "state": context.working_state,
        "pins": context.pins, "pointers": context.pointers, "milestones": context.milestones,
        "recent": context.recent_turns, "recent outputs": context.outputs, "actions": context.pending_actions,
        "outputs": {ref: agent.fetch_output(ref.decode()) for ref in refs | nested},
        "last activity": client.status(agent_id).last_activity,
    }  # fmt: skip


def _raws(client: Client, agent_id: str) -> list[bytes]:
    return [bytes(raw) for entry in client.backend.entries(agent_id) for raw in entry.records]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("source") / "records"
    with Client(local_dir=directory) as client, client.resume("x") as agent:
        work(agent)
    return directory


@pytest.fixture(scope="module")
def exported(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("exported") / "x.jsonl"
    done = polign("export", "x", "-store", source, "-o", file)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("exported x: ")
    return file


def test_round_trip(source: Path, exported: Path, tmp_path: Path) -> None:
    done = polign("import", exported, "-store", tmp_path)
    assert done.returncode == 0, done.stderr
    with Client(local_dir=source) as old, Client(local_dir=tmp_path) as new:
        before, after = known(old), known(new)
        for what, value in before.items():
            assert after[what] == value, what
        assert {LARGE, b""} <= set(before["outputs"].values())
        # The image of the turn whose whole content is an output is mentioned in that output alone.
        assert len(before["outputs"]) == 9
        status = new.status("x")
        assert (status.held, status.epoch, status.restarts) == (False, 1, 0)
        with new.resume("x") as agent:
            assert agent.record_turn("user", "on it goes") == before["turns"][-1].seq + 1


def test_the_records_are_word_for_word(source: Path, exported: Path, tmp_path: Path) -> None:
    with Client(local_dir=source) as client:
        lines = [json.loads(line) for line in exported.read_bytes().splitlines()]
        assert lines[0]["type"] == "agent"
        assert (lines[0]["format"], lines[0]["records"], lines[0]["agent_id"]) == (1, 1, "x")
        with exported.open("rb") as file:
            groups = [line for line in archive.lines(file) if isinstance(line, archive.Group)]
        raws = [bytes(raw) for group in groups for raw in group.records]
        assert raws == _raws(client, "x")


def test_through_a_server_and_back(source: Path, exported: Path, server: Server, tmp_path: Path) -> None:
    there = {"POLIGN_URL": server.url}
    told = json.loads(polign("import", exported, "--json", env=there).stdout)
    with exported.open("rb") as file:
        head, end = archive.check(file)
    assert (told["agent_id"], told["records"], told["outputs"]) == (head.agent_id, end.records, 9)
    file = tmp_path / "back.jsonl"
    assert json.loads(polign("export", "x", "-o", file, "--json", env=there).stdout)["turns"] == end.turns
    assert polign("import", file, "-store", tmp_path / "back").returncode == 0
    with Client(local_dir=source) as old, Client(local_dir=tmp_path / "back") as new:
        assert known(new) == known(old)


def test_by_pipe(source: Path, tmp_path: Path) -> None:
    command = [POLIGN, "export", "x", "-store", str(source)]
    exported = subprocess.run(command, capture_output=True, env={}, timeout=LONG, check=True)
    done = polign("import", "-", "-store", tmp_path, stdin=exported.stdout)
    assert done.returncode == 0, done.stderr
    with Client(local_dir=source) as old, Client(local_dir=tmp_path) as new:
        assert new.status("x").turns == old.status("x").turns
    assert polign("export", "x", "-store", source, "--json").returncode == 2
    assert on_terminal("export", "x", "-store", source).returncode == 2


def test_an_import_that_was_interrupted_goes_on(source: Path, exported: Path, tmp_path: Path) -> None:
    """At any record: what is there is a beginning of what the file has."""
    with Client(local_dir=source) as old:
        records = list(records_of(old.backend.entries("x"), "x"))
        for done in (1, len(records) - 1):
            place = tmp_path / str(done)
            with Client(local_dir=place) as new:
                with new.resume("x") as agent:
                    agent.submit(*records[:done]).result()
                told = in_process("import", exported, "-store", place)
                assert told.exit_code == 0, told.stderr
                assert known(new)["records"] == known(old)["records"]
        again = json.loads(polign("import", exported, "--json", "-store", place).stdout)
        assert again["already"] == again["records"] == len(records)


def other_beginning(agent: ResumedAgent) -> None:
    agent.record_turn("user", "mine")


@pytest.mark.parametrize("make", [other_beginning, lambda agent: work(agent, 1)])
def test_an_agent_with_other_records_is_left_alone(
    exported: Path, tmp_path: Path, make: Callable[[ResumedAgent], object]
) -> None:
    with Client(local_dir=tmp_path) as client:
        with client.resume("x") as agent:
            make(agent)
        before = client.status("x")
        done = polign("import", exported, "-store", tmp_path)
        assert done.returncode == 2
        assert "[invalid]" in done.stderr
        assert client.status("x") == before


def test_an_agent_that_went_on_is_left_alone(exported: Path, tmp_path: Path) -> None:
    assert polign("import", exported, "-store", tmp_path).returncode == 0
    with Client(local_dir=tmp_path) as client:
        with client.resume("x") as agent:
            agent.record_turn("user", "on it goes")
        assert polign("import", exported, "-store", tmp_path).returncode == 2
        assert polign("delete", "x", "-yes", "-store", tmp_path).returncode == 0
        assert polign("import", exported, "-store", tmp_path).returncode == 0
        assert client.status("x").epoch == 4


def test_an_agent_that_is_held_is_left_alone(exported: Path, tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client, client.resume("x") as agent:
        assert polign("import", exported, "-store", tmp_path).returncode == 3
        agent.check_lease()


def changed(exported: Path, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """The file with other lines and a digest that fits them."""
    before = exported.read_bytes().splitlines(keepends=True)[:-1]
    lines = change(before)
    assert lines != before
    end = json.loads(exported.read_bytes().splitlines()[-1])
    end["digest"] = blake2b(b"".join(lines), digest_size=16).hexdigest()
    return b"".join(lines) + json.dumps(end).encode() + b"\n"


def without_the_third(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], *lines[3:]]


def swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def other_turn(lines: list[bytes]) -> list[bytes]:
    """A turn with the number of the one after it."""
    return [re.sub(rb'(?<="content":"turn 30","seq":)35', b"36", line) for line in lines]


def other_output(lines: list[bytes]) -> list[bytes]:
    """Outputs of one part, with three bytes more at their beginning."""
    whole = b'"start":0,"last":true,"data":"'
    return [line.replace(whole, whole + b"AAAA") for line in lines]


def moved_output(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"start":3000000', b'"start":3000001') for line in lines]


def cut_output(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if b'"start":3000000' not in line]


@pytest.mark.parametrize("change", [without_the_third, swapped, other_turn, other_output, moved_output, cut_output])
def test_a_file_that_was_changed_is_refused(
    exported: Path, tmp_path: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    refused(changed(exported, change), tmp_path, "corrupt")


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.999])
def test_a_file_that_was_cut_is_refused(exported: Path, tmp_path: Path, part: float) -> None:
    data = exported.read_bytes()
    refused(data[: int(len(data) * part)], tmp_path, "corrupt")


def test_a_file_without_its_last_line_or_with_more_is_refused(exported: Path, tmp_path: Path) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)
    refused(b"".join(lines[:-1]), tmp_path, "corrupt")
    refused(b"".join([*lines, lines[-1]]), tmp_path, "corrupt")
    refused(b"".join(lines).replace(b"turn 7", b"turn 8", 1), tmp_path, "corrupt")


NO_ARCHIVES = [b"[]\n", b"{}\n", b'{"type":"agent"}\n', b"\xff\n", b'{"type":"agent","format":"1","records":1}\n']


@pytest.mark.parametrize("data", NO_ARCHIVES)
def test_what_is_no_such_file_is_refused(tmp_path: Path, data: bytes) -> None:
    refused(data, tmp_path, "corrupt")


@pytest.mark.parametrize("field", ["format", "records"])
def test_a_newer_version_is_refused(exported: Path, tmp_path: Path, field: str) -> None:
    newer = exported.read_bytes().replace(f'"{field}":1'.encode(), f'"{field}":2,"new":[]'.encode(), 1)
    refused(newer, tmp_path, "format_too_new")


def refused(data: bytes, tmp_path: Path, code: str) -> None:
    """Such a file is not brought in, and nothing is written."""
    place = tmp_path / "refused"
    done = in_process("import", "-", "-store", place, stdin=data)
    assert f"[{code}]" in done.stderr
    assert done.exit_code == 7
    assert not place.exists()


def test_an_agent_without_records_can_be_moved(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path / "old") as client:
        client.resume("empty").close()
    assert polign("export", "empty", "-store", tmp_path / "old", "-o", tmp_path / "file").returncode == 0
    assert polign("import", tmp_path / "file", "-store", tmp_path / "new").returncode == 0
    with Client(local_dir=tmp_path / "new") as client:
        assert [agent.agent_id for agent in client.agents()] == ["empty"]


def test_what_export_says_of_a_held_agent_and_of_a_missing_output(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client, client.resume("x", holder="me\x1b") as agent:
        ref = agent.store_output(b"soon gone")
        agent.record_turn("user", f"never there: out-{'0' * 32}")
        (tmp_path / "agents/x/outputs" / ref.removeprefix("out-")).unlink()
        done = polign("export", "x", "-store", tmp_path, "-o", tmp_path / "file", "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["missing"] == [ref]
        assert "held by me\ufffd" in done.stderr
        assert "\x1b" not in done.stderr
        agent.check_lease()


def test_a_file_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    done = polign("export", "x", "-store", source, "-o", tmp_path / "no" / "where")
    assert done.returncode == 1
    assert "No such file" in done.stderr


def test_what_is_mentioned_across_the_parts_of_an_output_goes_along(tmp_path: Path) -> None:
    shifts = (1, 20, 35, 36)
    with Client(local_dir=tmp_path / "old") as client, client.resume("x") as agent:
        for shift in shifts:
            inner = client.backend.put_output("x", f"inner {shift}".encode()).ref
            agent.store_output(b"-" * (archive.PART - shift) + inner.encode() + b"-")
    exported = in_process("export", "x", "-store", tmp_path / "old", "-o", tmp_path / "file", "--json")
    assert json.loads(exported.stdout)["outputs"] == 2 * len(shifts)
