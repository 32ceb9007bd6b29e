"""Fixtures: the servers, started once for all tests of a process, and a prefix of its own for each test."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from polign_recall.stores import Store, open_store
from polign_recall.testing import servers
from polign_recall.testing.servers import Postgres, Server


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.fake_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with servers.postgres() as server:
        yield server


@pytest.fixture
def area() -> str:
    """A name that no other test uses."""
    return f"t{uuid4().hex[:12]}"


@pytest.fixture
def postgres_store(postgres: Postgres, area: str) -> Iterator[Store]:
    """A store in an empty schema."""
    store = open_store(postgres.schema(area), env=postgres.env)
    yield store
    store.close()
