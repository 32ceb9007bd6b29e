"""A replica that hangs: it takes connections and requests, and answers nothing. The other one goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from polign_db.server.limits import Limits
from polign_recall import Client, remote

from ..server.running import LONG, Server, serving
from .telling import run_all


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    with serving(tmp_path / "records") as first, serving(tmp_path / "records") as second:
        yield first, second


@pytest.fixture
def client(replicas: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of both that asks the first of them. It waits just for a moment for a chain's own requests."""
    monkeypatch.setattr(remote, "QUICK", httpx.Timeout(0.5))
    monkeypatch.setattr(remote, "TIMEOUT", httpx.Timeout(10 * LONG))
    with Client(url=",".join(server.url for server in replicas), env={}) as client:
        _ask_first(client)
        yield client


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """The server's process is stopped; the system goes on taking connections for it, and what is sent on them."""
    os.kill(server.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def _ask_first(client: Client) -> None:
    assert isinstance(client.backend, remote.RemoteBackend)
    client.backend._at = 0


def test_a_writer_goes_on_with_the_other_replica(
    replicas: tuple[Server, Server], client: Client, tmp_path: Path
) -> None:
    agent = client.resume("agent")
    assert agent.record_turn("user", "one") == 1
    works: list[Callable[[], object]] = [
        lambda: agent.record_turn("user", "two"),
        agent.refresh,
        agent.release,
        agent.acquire,
        lambda: agent.record_turn("user", "three"),
    ]
    for work in works:
        _ask_first(client)
        with hanging(replicas[0]):
            run_all([work], LONG)
    agent.close()
    assert replicas[0].terminate() == 0  # what it was sent while it hung changes nothing
    with Client(local_dir=tmp_path / "records") as behind:
        assert [turn.content for turn in behind.resume("agent", defer_lease=True).turns()] == ["one", "two", "three"]
        claims = [entry.epoch for entry in behind.backend.entries("agent") if entry.kind == "claim"]
        assert claims == [1, 2]


def test_a_server_answers_a_write_before_its_client_gives_up() -> None:
    assert remote.QUICK.read
    assert Limits().write_seconds < remote.QUICK.read
