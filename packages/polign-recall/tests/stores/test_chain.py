"""Agents on real servers, with a broken network in between: what was acknowledged is there, once, in order."""

import random
import threading
from collections.abc import Iterator

import pytest
from polign_recall import Client
from polign_recall.errors import LeaseError, WriteUnknown
from polign_recall.stores import Store, open_store
from polign_recall.testing.proxy import Answer, Fault, FaultProxy, Request
from polign_recall.testing.servers import Server

FAULTS: list[Fault | Answer] = [
    Fault.RESET, Fault.LOST, Fault.CUT, Fault.TWICE, Fault.LATE, Answer(503, "SlowDown"),
    Answer(503, "SlowDown", after=True), Answer(500, after=True), Answer(409, "ConditionalRequestConflict"),
]  # fmt: skip
HOLDERS, TURNS = 4, 25


@pytest.fixture(params=["ministack", "azurite", "fake_gcs"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.port, rewrite_host=server.place.startswith("gs")) as proxy:
        yield proxy


def turns_of(store: Store, agent_id: str) -> list[str]:
    """All that was recorded, from a new process's point of view. The chain must hold together for that."""
    with Client(store=store) as client, client.resume(agent_id, takeover=True) as agent:
        turns = list(agent.turns())
        assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
        return [str(turn.content) for turn in turns]


def work(store: Store, number: int, acknowledged: list[str], taken: threading.Event) -> None:
    """Take the agent over and record turns until another takes it."""
    with Client(store=store) as client:
        agent = client.resume("agent", takeover=True, lease_ttl=5)
        taken.set()
        try:
            for turn in range(TURNS):
                text = f"holder {number} turn {turn}"
                try:
                    agent.record_turn("user", text)
                except WriteUnknown:
                    continue  # nobody was told that it is saved
                acknowledged.append(text)
        except LeaseError:
            pass
        finally:
            agent.close()


def test_nothing_acknowledged_is_lost_or_doubled(server: Server, proxy: FaultProxy, area: str) -> None:
    rng = random.Random(7)
    proxy.plan = lambda request: rng.choice(FAULTS) if rng.random() < 0.15 else None
    acknowledged: list[list[str]] = [[] for _ in range(HOLDERS)]
    stores = [open_store(server.url(area, proxy.port), env=server.env) for _ in range(HOLDERS)]
    threads = []
    for number, store in enumerate(stores):
        taken = threading.Event()
        threads.append(threading.Thread(target=work, args=(store, number, acknowledged[number], taken)))
        threads[-1].start()
        assert taken.wait(120), "no holder could take the agent over"
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    proxy.plan = lambda request: None
    proxy.release()
    found = turns_of(open_store(server.url(area), env=server.env), "agent")
    assert len(found) == len(set(found)), "something is there twice"
    told = [text for texts in acknowledged for text in texts]
    assert set(told) <= set(found), "something acknowledged is lost"
    for texts in acknowledged:
        assert [text for text in found if text in texts] == texts, "one holder's turns change places"
    assert len(acknowledged[-1]) >= TURNS // 2, "the last holder was not fenced, so most of it must have gone through"
    assert proxy.asked() > 100


def test_ten_refusals_in_a_row_are_survived(server: Server, proxy: FaultProxy, area: str) -> None:
    with Client(store=open_store(server.url(area, proxy.port), env=server.env)) as client, client.resume("a") as agent:
        before = proxy.asked()

        def ten_refusals(request: Request) -> Answer | None:
            return Answer(503, "SlowDown") if proxy.asked() - before <= 10 else None

        proxy.plan = ten_refusals
        assert agent.record_turn("user", "kept") == 1
        assert proxy.asked() - before >= 11
    assert turns_of(open_store(server.url(area), env=server.env), "a") == ["kept"]


def is_deletion(request: Request) -> bool:
    """Azure's deletes come as batches of them."""
    return request.method == "DELETE" or "comp=batch" in request.target


def test_deletes_that_are_denied_are_survived_and_reported(server: Server, proxy: FaultProxy, area: str) -> None:
    proxy.plan = lambda request: Answer(403, "AccessDenied") if is_deletion(request) else None
    texts = [f"turn {number}" for number in range(150)]  # enough to be folded twice
    with Client(store=open_store(server.url(area, proxy.port), env=server.env)) as client:
        with client.resume("a") as agent:
            for text in texts:
                agent.record_turn("user", text)
        assert any(map(is_deletion, proxy.seen)), "folding did try"
        direct = open_store(server.url(area), env=server.env)
        assert turns_of(direct, "a") == texts
        report = client.delete_agent("a")
        assert report.deleted == 0
        assert len(report.refused) > 150
        proxy.plan = lambda request: None
        assert client.delete_agent("a").refused == []


@pytest.mark.parametrize("server", ["ministack", "azurite", "fake_gcs", "seaweedfs", "postgres"], indirect=True)
def test_requests_of_an_agent_do_not_grow_with_its_history(server: Server, area: str) -> None:
    """What the store is asked for one append and one resume, early and late (I11)."""
    if server.place.startswith("postgres"):
        server.schema(area)
    opened = open_store(server.url(area), env=server.env)
    store = Counting(opened)
    with Client(store=store) as client:
        counts = []
        for _ in range(2):
            with client.resume("a") as agent:
                resumed = store.take()
                agent.record_turn("user", "hello")
                counts.append((resumed, store.take()))
                for number in range(130):
                    agent.record_turn("user", f"turn {number}")
            with client.resume("a", takeover=True):  # after folding
                store.take()
            store.take()
    opened.close()
    (first, append), (late, late_append) = counts
    assert append == late_append == {"create": 1}
    assert late["list"] == 2
    assert late["create"] == 1
    assert first["create"] == 3, "its claim, and two for the probe"


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, int] = {}

    def take(self) -> dict[str, int]:
        counts, self._counts = self._counts, {}
        return counts

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        if name in ("create", "get", "list", "names", "delete", "now"):
            self._counts[name] = self._counts.get(name, 0) + 1
        return found
