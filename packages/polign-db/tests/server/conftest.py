"""Fixtures: a server that asks for no keys, shared by the tests of a module, and an agent of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from .holding import Holder
from .running import Server, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "records"


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    with serving(directory) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def new_holder(client: httpx.Client) -> Callable[..., Holder]:
    """Makes holders, each of an agent of its own unless told otherwise."""

    def make(agent_id: str = "", holder: str = "me") -> Holder:
        return Holder(client, agent_id or f"agent-{next(_numbers)}", holder)

    return make


@pytest.fixture
def held(new_holder: Callable[..., Holder]) -> Holder:
    """A new agent whose lease is held."""
    holder = new_holder()
    holder.claim()
    return holder
