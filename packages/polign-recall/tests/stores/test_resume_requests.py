"""What a resume from S3 costs in requests: the same after 1 turn as after 100,000.

They are counted at a proxy, as HTTP requests: what a client repeats or asks besides would show. A reader gets the
newest snapshot and the entries above it, and where the last fold fell is chance; so each agent sets a pointer until as
many entries lie above its snapshot as above the others'.
"""

from collections.abc import Iterator
from threading import Barrier

import pytest
from polign_recall import Client, ResumedAgent, Turn
from polign_recall.chain import agent_prefix
from polign_recall.chain.keys import Listing, sort_listing
from polign_recall.stores import MemoryStore, Store, open_store
from polign_recall.stores.bucket import BucketStore
from polign_recall.testing.proxy import FaultProxy, Request
from polign_recall.testing.servers import Server
from polign_recall.writer import FOLD_AFTER

AGES = {"newborn": 1, "grown": 1_000, "old": 100_000}
"""Agents, and how many turns each has recorded."""
READS = BucketStore.parallel
"""Objects that a resume gets here, the snapshot among them: as many as are asked for side by side."""
GROUP = 1_000
"""Turns that are committed together."""


def record(store: Store, name: str, turns: int) -> None:
    """Record so many turns, and set a pointer until, once it is closed, READS objects are left to get."""
    with Client(store=store) as client, client.resume(name) as agent:
        for first in range(0, turns, GROUP):
            numbers = range(first, min(first + GROUP, turns))
            agent.submit(*(Turn(role="user", content=f"Message {number}") for number in numbers)).result()
        pad(store, agent)
    assert above(listing(store, name)) == READS - 1


def pad(store: Store, agent: ResumedAgent) -> None:
    for number in range(3 * FOLD_AFTER):
        found = listing(store, agent.agent_id)
        if found.base and above(found) == READS - 2:  # the snapshot and the release are read, too
            return
        agent.set_pointer("worker", "process", str(number))
    raise AssertionError("no fold left as many entries as all are to have")


def listing(store: Store, name: str) -> Listing:
    return sort_listing(store.list(f"{agent_prefix(name)}log/"))


def above(found: Listing) -> int:
    return sum(seq > found.base for seq in found.entries)


@pytest.fixture
def place(ministack: Server, area: str) -> Server:
    """Where the agents of all ages are: recorded in memory, then copied object by object."""
    source, target = MemoryStore(), open_store(ministack.url(area), env=ministack.env)
    for name, turns in AGES.items():
        record(source, name, turns)
    for stat in source.list("agents/"):
        target.create(stat.key, source.get(stat.key).data)
    with Client(store=target) as client:
        assert {name: client.status(name).turns for name in AGES} == AGES
        assert {name: read_back(client, name) for name in AGES} == AGES
    target.close()
    return ministack


def read_back(client: Client, name: str) -> int:
    """How many turns the history has."""
    with client.resume(name, defer_lease=True) as reader:
        return sum(1 for _ in reader.turns())


@pytest.fixture
def proxy(place: Server) -> Iterator[FaultProxy]:
    with FaultProxy(place.port) as proxy:
        yield proxy


def kind(request: Request) -> str:
    return "LIST" if request.method == "GET" and "list-type=2" in request.target else request.method


def test_resume_makes_the_same_requests_after_1_turn_and_after_100_000(
    place: Server, proxy: FaultProxy, area: str
) -> None:
    all_under_way = Barrier(READS, timeout=10)

    def held_until_all_are_under_way(request: Request) -> None:
        if kind(request) == "GET":
            all_under_way.wait()  # one that waits for another's answer breaks it

    made = {}
    with Client(store=place.url(area, proxy.port), env=place.env) as client:
        client.resume("another").close()  # a client tries once whether it may write
        proxy.plan = held_until_all_are_under_way
        for name in AGES:
            before = len(proxy.seen)
            with client.resume(name) as agent:
                made[name] = [kind(request) for request in proxy.seen[before:]]
                assert agent.context.recent_turns[-1].seq == AGES[name]

    four_rounds = ["LIST", *["GET"] * READS, "PUT", "LIST"]
    assert made == {name: four_rounds for name in AGES}  # noqa: C420 - a mutable value
