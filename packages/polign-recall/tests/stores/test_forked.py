"""Stores in forked processes: a child uses connections of its own, or is told that it cannot."""

import multiprocessing
import os
import threading
from collections.abc import Callable

import pytest
from polign_recall.errors import StoreUnsupported
from polign_recall.stores import Store, open_store
from polign_recall.testing.servers import Postgres, Server

FORK = multiprocessing.get_context("fork")
LONG = 60.0
"""Seconds after which a child hangs; they take milliseconds."""


def in_child(work: Callable[[], str], meanwhile: Callable[[], object] = lambda: None) -> str:
    """What `work` gives in a forked process; `meanwhile` is done in this one."""
    here, there = FORK.Pipe(duplex=False)

    def run() -> None:
        there.send(work())

    child = FORK.Process(target=run)
    child.start()
    there.close()
    try:
        here_too = threading.Thread(target=meanwhile, daemon=True)
        here_too.start()
        here_too.join(LONG)
        assert not here_too.is_alive(), "the parent hangs"
        assert here.poll(LONG), "the child hangs"
        answer = here.recv()
        child.join(LONG)
        assert child.exitcode == 0
        return str(answer)
    finally:
        child.kill()
        child.join(LONG)


def use(store: Store, key: str) -> str:
    try:
        return store.create(key, b"value").name
    except StoreUnsupported as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_child_of_a_process_that_used_s3_is_told_so(ministack: Server, area: str) -> None:
    store = open_store(ministack.url(area), env=ministack.env)
    assert use(store, "before") == "CREATED"
    assert "forked" in in_child(lambda: use(store, "child"))
    assert "spawn" in in_child(lambda: use(open_store(ministack.url(area), env=ministack.env), "child"))
    assert "forked" in in_child(lambda: str([use(store, "x"), store.close(), os.getpid()]))
    assert use(store, "after") == "CREATED", "the parent goes on"
    assert [stat.key for stat in store.list("")] == ["after", "before"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_children_use_gcs_with_connections_of_their_own(fake_gcs: Server, area: str) -> None:
    check_children(open_store(fake_gcs.url(area), env=fake_gcs.env))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_children_use_postgres_with_connections_of_their_own(postgres: Postgres, area: str) -> None:
    check_children(open_store(postgres.schema(area), env=postgres.env))


def check_children(store: Store) -> None:
    assert use(store, "before") == "CREATED"

    def create_many(by: str) -> str:
        return " ".join({use(store, f"{by}/{number}") for number in range(60)})

    told = []
    assert in_child(lambda: create_many("child"), lambda: told.append(create_many("parent"))) == "CREATED"
    assert told == ["CREATED"]
    assert len(store.list("")) == 121
    store.close()
