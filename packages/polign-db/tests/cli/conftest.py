"""Fixtures: a directory with two agents, and a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from polign_recall import Client

from ..server.running import Server, serving


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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("served") / "records") as server:
        yield server
