"""The writer on a store that fails: what was acknowledged is there once, what was refused is not, and it goes on."""

import threading

import pytest
from polign_recall import (
    Client,
    Closed,
    Corrupt,
    FormatTooNew,
    LeaseLost,
    StoreDenied,
    StoreUnavailable,
    TooLarge,
    Turn,
    WriteUnknown,
    writer,
)
from polign_recall import client as client_module
from polign_recall.chain.protocol import ATTEMPTS
from polign_recall.stores import Outcome

from .faulty import LOG, Faulty, answer_lost, away, contents, kinds, request_lost, until

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store():
    return Faulty()


@pytest.fixture
def agent(store):
    with Client(store=store).resume("a") as agent:
        yield agent


def denied(_real):
    raise StoreDenied("no right to write")


# ---- answers that do not come, or say no ---------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["create", "list", "get"])
def test_ten_refusals_in_a_row_are_survived(store, operation):
    Client(store=store).resume("a").close()
    store.fail(operation, "", [away] * 10)

    with Client(store=store).resume("a") as agent:
        store.fail(operation, "", [away] * 10)
        assert agent.record_turn("user", "one") == 1
        agent.release()

    assert contents(store) == ["one"]


@pytest.mark.parametrize(
    "faults",
    [
        [request_lost], [answer_lost], [request_lost] * 3, [answer_lost] * 3, [away, answer_lost, away, request_lost],
        [request_lost] * (ATTEMPTS + 3), [answer_lost, *[away] * (2 * ATTEMPTS)],
    ],
    ids=range(7),
)  # fmt: skip
def test_a_write_without_an_answer_is_resolved_and_there_once(store, agent, faults):
    store.fail("create", LOG, faults)

    futures = [agent.submit(Turn(role="user", content=str(n))) for n in range(5)]

    assert [future.result() for future in futures] == [[n + 1] for n in range(5)]
    assert store.left("create", LOG) == 0
    assert agent.record_turn("user", "5") == 6
    assert contents(store) == [str(n) for n in range(6)]


def test_what_is_refused_for_certain_is_not_there_and_the_next_works(store, agent):
    agent.record_turn("user", "one")
    for faults, error in (([away] * ATTEMPTS, StoreUnavailable), ([denied], StoreDenied)):
        store.fail("create", LOG, faults)
        with pytest.raises(error):
            agent.record_turn("user", "refused")
        assert agent.lease_held

    assert agent.record_turn("user", "two") == 2
    assert contents(store) == ["one", "two"]


def test_a_write_that_is_denied_after_it_was_sent_is_resolved_later(store, agent):
    store.fail("create", LOG, [request_lost, denied, denied, denied])

    assert agent.record_turn("user", "one") == 1
    assert contents(store) == ["one"]


def test_an_answer_that_never_comes_is_told_when_the_lease_has_run_out(store, agent):
    agent.record_turn("user", "one")
    store.fail("create", LOG, [answer_lost, *[away] * (2 * ATTEMPTS - 1)])
    agent._chain.deadline = 0.0  # as if the lease had run out meanwhile

    with pytest.raises(WriteUnknown, match="agent 'a': entry 3 was sent and no answer says whether it was saved"):
        agent.record_turn("user", "two")
    store.fail("create", LOG, [away] * ATTEMPTS)
    with pytest.raises(StoreUnavailable, match="agent 'a': an earlier write is not resolved yet; nothing of this one"):
        agent.record_turn("user", "refused")

    assert agent.record_turn("user", "three") == 3
    assert contents(store) == ["one", "two", "three"]
    assert [turn.seq for turn in agent.recent_turns()] == [1, 2, 3]


@pytest.mark.parametrize(("first", "landed"), [(answer_lost, True), (request_lost, False)])
def test_a_takeover_meanwhile_tells_what_became_of_the_write(store, agent, first, landed):
    def taken_over(real):
        answer = first(real)
        Client(store=store.store).resume("a", takeover=True, holder="other").close()
        return answer

    store.fail("create", LOG, [taken_over])

    with pytest.raises(LeaseLost) as told:
        agent.record_turn("user", "one")

    assert (told.value.by, told.value.epoch, told.value.landed) == ("other", 2, landed)
    assert contents(store) == ["one"] * landed


@pytest.mark.parametrize("error", [OSError("cable"), ZeroDivisionError("bug"), TooLarge("a file too large")])
def test_an_error_nobody_expects_reaches_the_caller_and_ends_nothing(store, agent, error):
    def broken(_real):
        raise error

    store.fail("create", LOG, [broken])
    with pytest.raises(type(error)):
        agent.record_turn("user", "first")

    assert agent.record_turn("user", "second") in (1, 2)
    assert contents(store)[-1] == "second"


@pytest.mark.parametrize(("raw", "error"), [(b"garbage", Corrupt), (b'{"v":99,"kind":"seal"}', FormatTooNew)])
def test_something_odd_in_the_next_slot_is_named_every_time(store, agent, raw, error):
    agent.record_turn("user", "one")
    store.store.create(f"{LOG}{3:020}", raw)

    for _ in range(2):
        with pytest.raises(error, match=f"{LOG}{3:020}"):
            agent.record_turn("user", "two")

    store.store.delete([f"{LOG}{3:020}"])
    agent.flush()
    assert agent.record_turn("user", "after") == 3  # the write that met it was never given up
    assert contents(store) == ["one", "two", "after"]


# ---- renewal -------------------------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch, store):
    """Opens the agent with a lease of less than a second, so that renewals come quickly."""
    monkeypatch.setattr(client_module, "MIN_TTL", 0.1)
    opened = []

    def resume(ttl=0.6):
        opened.append(Client(store=store).resume("a", lease_ttl=ttl))
        return opened[-1]

    yield resume
    for agent in opened:
        store.dead = None
        agent.close()


def test_the_lease_is_renewed_while_the_callers_threads_are_busy(store, short):
    agent = short()
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            sum(range(1_000))

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: kinds(store).count("renew") >= 3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert agent.record_turn("user", "one") == 1


@pytest.mark.parametrize("error", [StoreUnavailable("503"), StoreDenied("denied"), Corrupt("odd"), OSError("cable")])
def test_failed_renewals_are_survived_and_said_once(store, short, caplog, error):
    agent = short(ttl=30)
    agent._chain.deadline -= 20  # it is time to renew, and ten seconds are left

    def failing(_real):
        raise error

    store.fail("create", LOG, [failing] * 60)
    agent._writer._put(writer._Job(command=lambda: None))  # look at the clock now
    until(lambda: store.left("create", LOG) < 60)
    assert agent.lease_held
    agent._writer._failing = False
    store.fail("create", LOG, [])

    assert agent.record_turn("user", "one") == 1
    assert agent.lease_held
    assert contents(store) == ["one"]
    said = [record.getMessage() for record in caplog.records if "could not be renewed" in record.getMessage()]
    assert len(said) == 1


def test_a_renewal_learns_of_a_takeover(store, short):
    agent = short()
    Client(store=store).resume("a", takeover=True, holder="other").close()

    until(lambda: not agent.lease_held and agent._chain.lost is not None)

    with pytest.raises(LeaseLost, match="other took it over"):
        agent.check_lease()


def test_a_holder_that_slept_past_its_lease_goes_on_if_nobody_came(store, short):
    agent = short()
    until(lambda: kinds(store).count("renew") >= 1)
    store.dead = StoreUnavailable("gone")
    until(lambda: not agent.lease_held)
    store.dead = None

    assert agent.record_turn("user", "one") == 1
    assert agent.lease_held


# ---- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), StoreDenied("denied"), OSError("cable")])
def test_closing_on_a_dead_store_ends(store, agent, error, caplog):
    agent.record_turn("user", "kept")
    before = len(store.calls)
    store.dead = error
    futures = [agent.submit(Turn(role="user", content="lost")) for _ in range(20)]

    agent.close()

    assert all(isinstance(future.exception(timeout=0), type(error)) for future in futures)
    assert len(store.calls) - before <= 3 * ATTEMPTS + 20
    assert not agent.lease_held
    assert agent._writer._thread is not None
    assert not agent._writer._thread.is_alive()
    assert any("could not be given back, it expires by itself" in r.getMessage() for r in caplog.records)
    with pytest.raises(Closed):
        agent.milestone("x")
    store.dead = None
    assert contents(store) == ["kept"]


def test_closing_while_an_answer_is_missing_ends(store, agent):
    agent.record_turn("user", "one")
    going, since = threading.Event(), []

    def unanswered(_real):
        going.set()
        if agent._writer._closed:
            since.append("sent")
        return Outcome.UNKNOWN

    store.fail("create", LOG, [unanswered] * 1_000_000)
    future = agent.submit(Turn(role="user", content="two"))
    assert going.wait(30)

    agent.close()

    assert isinstance(future.exception(timeout=0), WriteUnknown)
    assert len(since) <= 4 * ATTEMPTS
    store.fail("create", LOG, [])
    assert contents(store) == ["one"]
    with Client(store=store.store).resume("a", takeover=True) as other:
        assert other.record_turn("user", "two") == 2


def test_closing_waits_for_what_was_queued(store):
    agent = Client(store=store).resume("a")
    futures = [agent.submit(Turn(role="user", content=str(n))) for n in range(100)]

    agent.close()

    assert [future.result(timeout=0) for future in futures] == [[n + 1] for n in range(100)]
    assert len(contents(store)) == 100
    assert kinds(store)[-1] == "release"


# ---- what lingers --------------------------------------------------------------------------------------------------


def test_what_lingers_is_committed_with_what_comes_next(store, agent, monkeypatch):
    monkeypatch.setattr(writer, "LINGER", 600.0)
    first, second = (agent.submit(Turn(role="user", content=content), linger=True) for content in ("one", "two"))
    assert agent.record_turn("assistant", "three") == 3
    assert (first.result(), second.result()) == ([1], [2])
    assert contents(store) == ["one", "two", "three"]
    assert kinds(store) == ["claim", "records"]


def test_what_lingers_alone_is_committed_all_the_same(store, agent):
    assert agent.submit(Turn(role="user", content="one"), linger=True).result(timeout=60) == [1]
    assert contents(store) == ["one"]


@pytest.mark.parametrize("what", ["flush", "release", "close", "check"])
def test_whatever_waits_does_not_wait_for_what_lingers(store, agent, monkeypatch, what):
    monkeypatch.setattr(writer, "LINGER", 600.0)
    agent.submit(Turn(role="user", content="one"), linger=True)
    if what == "check":
        agent._chain.deadline = 0.0  # a renewal is appended first
        agent.check_lease()
    else:
        getattr(agent, what)()
    assert contents(store) == ["one"]
