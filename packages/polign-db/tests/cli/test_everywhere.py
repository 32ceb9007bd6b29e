"""Every command on every kind of place: said by options or by the environment, as text and as JSON."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from polign_db.cli import main
from polign_recall import Client
from polign_recall.testing import servers
from polign_recall.testing.servers import free_port

from ..server.running import new_key, serving
from .running import LONG, POLIGN, in_process

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Spot:
    """A place for agents. `options` say on the command line where it is, `env` says it in the environment.

    `credentials` are in the environment either way. `nowhere` is the same kind of place where nobody listens.
    """

    options: tuple[str, ...]
    env: Mapping[str, str]
    credentials: Mapping[str, str]
    client: Callable[[], Client]
    nowhere: tuple[str, ...] = ()

    @property
    def has_keys(self) -> bool:
        """Whether keys can be made there: that is, it is a store."""
        return "POLIGN_STORE" in self.env


@contextmanager
def directory(folder: Path) -> Iterator[Spot]:
    yield _store(str(folder / "records"), {})


@contextmanager
def s3(folder: Path) -> Iterator[Spot]:
    with servers.ministack(folder) as server:
        yield _store(server.url("of/the/command"), server.env, server.url("nowhere", free_port()))


@contextmanager
def postgres(folder: Path) -> Iterator[Spot]:
    with servers.postgres() as server:
        yield _store(server.schema("command"), server.env, server.url("nowhere", free_port()))


@contextmanager
def server(folder: Path) -> Iterator[Spot]:
    key = new_key(folder, "team")
    with serving(folder, "-require-key") as found:
        env = {"POLIGN_URL": found.url, "POLIGN_API_KEY": key}
        there = ("-url", f"{found.url},{found.url}", "-key", key)
        nowhere = ("-url", f"http://127.0.0.1:{free_port()}", "-key", key)
        yield Spot(there, env, {}, lambda: Client(url=found.url, api_key=key), nowhere)


def _store(url: str, credentials: Mapping[str, str], nowhere: str | None = None) -> Spot:
    def client() -> Client:
        return Client(store=url, env=credentials)

    return Spot(("-store", url), {"POLIGN_STORE": url}, credentials, client, ("-store", nowhere) if nowhere else ())


Place = Callable[[Path], AbstractContextManager[Spot]]
PLACES: list[Place] = [directory, s3, postgres, server]


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: place.__name__)
def spot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spot]:
    with request.param(tmp_path_factory.mktemp(request.param.__name__)) as spot:
        yield spot


@dataclass(frozen=True)
class Asking:
    """Runs commands there. `way` is how the place is said; with `as_json` they are asked for JSON."""

    spot: Spot
    way: str
    as_json: bool

    def line(self, *args: object) -> list[str]:
        """Arguments with all that is common to them."""
        place = self.spot.options if self.way == "options" else ()
        return [*map(str, args), *place, *(["--json"] if self.as_json else [])]

    @property
    def env(self) -> dict[str, str]:
        """What the command has in its environment."""
        return {**self.spot.credentials, **(self.spot.env if self.way == "environment" else {})}

    def __call__(self, *args: object, code: int = 0) -> Result:
        """Run a command in this process, and check its exit code."""
        result = in_process(*self.line(*args), env=self.env)
        assert result.exit_code == code, result.output
        return result


@pytest.fixture(params=[("options", True), ("environment", False)], ids=["options-json", "environment-text"])
def asking(request: pytest.FixtureRequest, spot: Spot) -> Asking:
    """Both ways of saying the place and both kinds of answer, for they have nothing to do with one another."""
    return Asking(spot, *request.param)


@dataclass(frozen=True)
class Known:
    """An agent that is there, with two turns and one output."""

    id: str
    ref: str


@pytest.fixture
def known(spot: Spot) -> Known:
    with spot.client() as client:
        return fill(client, f"agent/{next(_numbers)}")


def fill(client: Client, agent_id: str) -> Known:
    with client.resume(agent_id) as agent:
        agent.update_working_state(goal="Serve everybody")
        agent.record_turn("user", "the first")
        agent.record_turn("user", "the second")
        return Known(agent_id, agent.store_output("a whole output"))


@dataclass(frozen=True)
class Case:
    """A command, with {id} and {ref} in it, a text that it prints, and what holds of its JSON, given the agent."""

    line: str
    text: str
    says: Callable[[Any, Known], bool]
    held: bool = False

    def run(self, asking: Asking, known: Known) -> None:
        """Run it and check what it prints."""
        result = asking(*(part.format(id=known.id, ref=known.ref) for part in self.line.split()))
        if asking.as_json:
            assert self.says(json.loads(result.stdout), known), result.stdout
        else:
            assert self.text.format(id=known.id, ref=known.ref) in result.output


CASES = [
    Case("agents", "{id}", lambda found, known: (known.id, 2) in [(each["agent_id"], each["turns"]) for each in found]),
    Case("agents show {id}", "Serve everybody", lambda found, _: found["working_state"]["goal"] == "Serve everybody"),
    Case("briefing {id}", "Goal: Serve everybody", lambda found, _: "Goal: Serve everybody" in found["briefing"]),
    Case("turns {id}", "the first", lambda found, _: [turn["seq"] for turn in found] == [1, 2]),
    Case("turns {id} --after 1 --limit 1", "the second", lambda found, _: [turn["seq"] for turn in found] == [2]),
    Case("outputs {id}", "{ref}", lambda found, known: [each["ref"] for each in found] == [known.ref]),
    Case("outputs {id} {ref}", "a whole output", lambda found, _: found["data"] == "a whole output"),
    Case("release {id}", "{id} is free already", lambda found, _: found["freed"] is False),
    Case("release {id} --takeover", "deposed me", lambda found, _: found["deposed"]["holder"] == "me", held=True),
    Case("takeover {id}", "deposed me", lambda found, _: found["deposed"]["holder"] == "me", held=True),
    Case("delete {id} --yes", "deleted {id}", lambda found, _: (found["deleted"] > 3, found["refused"]) == (True, [])),
    Case("delete {id} --yes --takeover", "deleted {id}", lambda found, _: found["deleted"] > 3, held=True),
    Case("scan {id}", "no secrets of known shapes in 1 agent", lambda found, _: found == []),
    Case("doctor", "agents can be read", lambda found, _: {each["result"] for each in found} == {"ok"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_a_command(asking: Asking, known: Known, case: Case) -> None:
    with asking.spot.client() as client:
        if case.held:
            client.resume(known.id, holder="me")
        case.run(asking, known)


def test_the_table_has_every_command() -> None:
    others = {"export", "import", "keys", "completion"}  # below; completion has no place
    assert {case.line.split()[0] for case in CASES} | others == set(main.commands)


def test_export_and_import(asking: Asking, known: Known, tmp_path: Path) -> None:
    archive = tmp_path / "archive.jsonl"
    out = Case(
        f"export {{id}} -o {archive}", "exported {id}", lambda found, _: (found["turns"], found["outputs"]) == (2, 1)
    )
    out.run(asking, known)
    assert len(list(map(json.loads, archive.read_text().splitlines()))) > 3, "it has JSON lines"
    with asking.spot.client() as client:
        client.delete_agent(known.id)
    back = Case(f"import {archive}", "imported {id}", lambda found, _: (found["turns"], found["already"]) == (2, 0))
    back.run(asking, known)
    CASES[1].run(asking, known)
    CASES[6].run(asking, known)


def test_turns_that_are_followed(asking: Asking, known: Known) -> None:
    command = [POLIGN, *asking.line("turns", known.id, "--follow", "-limit", 1)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=asking.env) as process,
        asking.spot.client() as client,
    ):
        assert process.stdout
        lines = 1 if asking.as_json else 2
        shown = [process.stdout.readline() for _ in range(lines)]
        with client.resume(known.id) as agent:
            agent.record_turn("user", "the third")
        shown += [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (0, "", "")
    if asking.as_json:
        assert [json.loads(line)["content"] for line in shown] == ["the second", "the third"]
    else:
        assert [line.strip() for line in shown[1::2]] == ["the second", "the third"]


def test_keys(asking: Asking) -> None:
    if not asking.spot.has_keys:
        refused = asking("keys", "list", code=2)
        assert "--store" in refused.stderr
        return
    created = asking("keys", "create", "--access", "read", "--note", "for the table").stdout
    key: str = json.loads(created)["key"] if asking.as_json else created.strip()
    key_id = key.split("_")[1]
    listed = asking("keys", "list").stdout
    if asking.as_json:
        assert [info["access"] for info in json.loads(listed) if info["id"] == key_id] == ["read"]
    else:
        assert f"{key_id}  read" in listed
    assert key.split("_")[2] not in listed
    revoked = asking("keys", "revoke", key_id).stdout
    if asking.as_json:
        assert json.loads(revoked) == {"id": key_id, "revoked": True}
    else:
        assert revoked == f"revoked {key_id}\n"


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("agents show nobody", 4, "[not_found]"),
        ("turns nobody --follow", 4, "[not_found]"),
        ("outputs {id} out-00000000000000000000000000000000", 4, "[not_found]"),
        ("release {id}", 3, "[lease_held]"),
        ("delete {id} --yes", 3, "[lease_held]"),
        ("delete {id}", 2, "--yes"),
        ("briefing {id} --token-budget 1", 2, "[invalid]"),
    ],
)
def test_exit_codes(asking: Asking, known: Known, line: str, code: int, named: str) -> None:
    with asking.spot.client() as client:
        client.resume(known.id)
        result = asking(*line.format(id=known.id).split(), code=code)
    assert named in result.stderr
    assert result.stdout == "", "what reads JSON there must not find a message"


@pytest.mark.parametrize("line", ["agents", "release x", "keys list"])
@pytest.mark.usefixtures("no_pauses")
def test_a_place_where_nobody_listens(spot: Spot, line: str) -> None:
    if not spot.nowhere or (line == "keys list" and not spot.has_keys):
        return
    result = in_process(*line.split(), *spot.nowhere, env=spot.credentials)
    assert result.exit_code == 5, result.output
    assert "[store_unavailable]" in result.stderr
