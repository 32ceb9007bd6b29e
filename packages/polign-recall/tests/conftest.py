"""Settings that all of the core's tests share, and the place where the client's tests keep their agents."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from polign_recall import Client
from polign_recall.chain import Env
from polign_recall.chain.steps import Sleep
from polign_recall.stores import Store

from .places import KIND, PLACES, NewPlace, Place

# How long an example takes says more about the machine than about the code.
settings.register_profile("recall", deadline=None)
settings.load_profile("recall")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another at once; how long the pauses are is the chain's own affair."""
    monkeypatch.setattr(Env, "pause", lambda self, attempt, base=0.0, cap=0.0: Sleep(0.0))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Elsewhere than in memory, only the tests that are about a place say anything new."""
    if KIND == "memory":
        return
    others = [item for item in items if "place" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def new_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewPlace]:
    with PLACES[KIND](tmp_path_factory.mktemp("places")) as new_place:
        yield new_place


@pytest.fixture
def place(new_place: NewPlace) -> Iterator[Place]:
    """An empty place for agents; RECALL_TEST_PLACE says of which kind."""
    place = new_place()
    yield place
    place.store.close()


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    with place.client() as client:
        yield client


@pytest.fixture
def store(place: Place) -> Store:
    """What lies in the client's place, past the client."""
    return place.store
