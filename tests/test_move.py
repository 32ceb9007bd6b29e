"""The move: an agent is killed in one place and goes on in another, through a bucket, a server or a database alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from polign_recall import Client, open_store
from polign_recall.testing import servers

PROGRAM = Path(__file__).with_name("moving_agent.py")
LONG = 120.0
"""Seconds; a process takes 2, and up to 6 more where it must wait for the lease to expire."""


@dataclass
class Meeting:
    """All that the two processes share: arguments that say where the records are, and credentials."""

    where: dict[str, str]
    env: dict[str, str]


Through = Callable[[Path], AbstractContextManager[Meeting]]


@contextmanager
def bucket(folder: Path) -> Iterator[Meeting]:
    with servers.ministack(folder) as server:
        yield Meeting({"store": server.url("agents/of/mine")}, server.env)


@contextmanager
def server(folder: Path) -> Iterator[Meeting]:
    with servers.polign_server(folder / "records", folder, "-require-key") as url:
        from polign_db.server import keys

        store = open_store(str(folder / "records"))
        key, _ = keys.create(store, collection="movers", access="write")
        store.close()
        yield Meeting({"url": url, "api_key": key}, {})


@contextmanager
def database(folder: Path) -> Iterator[Meeting]:
    with servers.postgres() as found:
        yield Meeting({"store": found.schema("movers")}, found.env)


def elsewhere() -> list[str]:
    """A prefix that gives a command process ids of its own, as on another host; empty where that is not allowed.

    Without it the second process sees that the first is dead; with it, it has to wait for the lease to expire.
    """
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=LONG, check=False)
    except FileNotFoundError:
        return []
    return command if done.returncode == 0 else []


def run_in(
    folder: Path, meeting: Meeting, die_at: int = 0, prefix: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the agent in a directory of its own, which is its home as well."""
    folder.mkdir()
    command = [*(prefix or []), sys.executable, str(PROGRAM), json.dumps(meeting.where), str(die_at)]
    env = {**os.environ, **meeting.env, "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LONG, check=False)


@pytest.mark.parametrize("through", [bucket, server, database], ids=lambda through: through.__name__)
def test_a_killed_agent_goes_on_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: Through) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with through(shared) as meeting:
        first = run_in(tmp_path / "first host", meeting, die_at=4)
        assert first.returncode == -signal.SIGKILL, first.stderr
        second = run_in(tmp_path / "second host", meeting, prefix=elsewhere())
        assert second.returncode == 0, second.stderr
        assert json.loads(second.stdout) == {
            "fresh": False, "epoch": 2, "goal": "Carry six parcels.", "pins": ["Never carry a parcel twice."],
            "unanswered": [{"parcel": 4}], "manifests": [True], "said": "All six are there.",
        }  # fmt: skip
        for name, value in meeting.env.items():
            monkeypatch.setenv(name, value)
        with Client(**meeting.where, env=os.environ) as client:  # type: ignore[arg-type]
            status = client.status("mover")
            assert (status.held, status.epoch, status.restarts) == (False, 2, 1)
            results = [turn.content for turn in client.resume("mover", defer_lease=True).turns() if turn.role == "tool"]
    assert (tmp_path / "first host" / "carried").read_text().split() == ["1", "2", "3"]
    assert (tmp_path / "second host" / "carried").read_text().split() == ["4", "5", "6"]
    assert results == [f"carried parcel {number}" for number in range(1, 7)]
    left = {path.name for host in ("first host", "second host") for path in (tmp_path / host).iterdir()}
    assert left == {"carried"}, "all else that the agent knew was in the shared place"
