"""Folding beside the writer: it may fail, be slow or be refused its deletions, and nothing is lost by it."""

import threading

import pytest
from polign_recall import Client, LeaseLost, StoreDenied, StoreUnavailable, TooLarge, history, writer
from polign_recall.chain import Chain, agent_prefix
from polign_recall.chain.protocol import ATTEMPTS
from polign_recall.stores import MemoryStore

from .faulty import LOG, Faulty, away, contents, kinds, until


@pytest.fixture
def store(monkeypatch, no_pauses):
    monkeypatch.setattr(writer, "FOLD_AFTER", 8)
    monkeypatch.setattr(writer, "FOLD_AGAIN_AFTER", 4)
    return Faulty()


@pytest.fixture
def agent(store):
    with Client(store=store).resume("a") as agent:
        yield agent


def folded(agent):
    """Wait until no fold is under way."""
    until(lambda: agent._writer._folding is None)


def record(agent, first, last):
    for number in range(first, last + 1):
        agent.record_turn("user", str(number))
        folded(agent)


@pytest.mark.parametrize("error", [StoreDenied("denied"), TooLarge("large"), OSError("cable"), StoreUnavailable("503")])
def test_a_fold_that_fails_is_tried_again_without_hammering(store, agent, error, caplog):
    def failing(_real):
        raise error

    store.fail("create", "/history/", [failing] * 10_000)

    record(agent, 1, 40)

    tries = 1 + (40 + 1 - 8) // 4
    calls = ATTEMPTS if isinstance(error, StoreUnavailable) else 1
    assert store.count("create", "/history/") == tries * calls
    assert len([r for r in caplog.records if "folding failed and is tried again later" in r.getMessage()]) == tries
    store.fail("create", "/history/", [])
    record(agent, 41, 60)
    assert contents(store) == [str(n) for n in range(1, 61)]
    assert len(kinds(store)) <= 8
    agent.close()
    assert contents(store) == [str(n) for n in range(1, 61)]


def test_a_fold_that_was_cut_off_anywhere_loses_nothing(store, agent):
    for number, part in enumerate(["/history/", ".snap", "/log/"], 1):
        operation = "delete" if part == "/log/" else "create"
        store.fail(operation, part, [away] * ATTEMPTS)
        record(agent, 20 * number - 19, 20 * number)

        assert contents(store) == [str(n) for n in range(1, 20 * number + 1)]
        entries = history.entries(Chain(agent_prefix("a"), "a"), store.store, newest_first=True)
        back = history.records(entries, "a", newest_first=True)
        assert [turn.content for turn in back] == [str(n) for n in range(20 * number, 0, -1)]


def test_deletions_that_are_refused_are_survived_and_logged(store, agent, caplog):
    refused = []

    def refuse(_real):
        refused.extend(store.calls[-1][1].split())
        return store.calls[-1][1].split()

    store.fail("delete", LOG, [refuse] * 1_000)

    record(agent, 1, 60)

    assert refused
    assert any("objects could not be deleted (is the delete right missing?)" in r.getMessage() for r in caplog.records)
    assert len(kinds(store)) <= 9
    assert contents(store) == [str(n) for n in range(1, 61)]


def test_folding_a_chain_that_somebody_else_folded_further_changes_nothing(store, agent):
    """A fold that takes so long that the agent was taken over, folded and given back meanwhile."""
    slow, going = threading.Event(), threading.Event()

    def wait(real):
        going.set()
        assert slow.wait(30)
        return real()

    store.fail("create", "/history/", [wait])
    for number in range(1, 11):
        agent.record_turn("user", str(number))
    assert going.wait(30)
    with Client(store=store.store).resume("a", takeover=True) as other:
        for number in range(11, 41):
            other.record_turn("user", str(number))
            folded(other)
    with pytest.raises(LeaseLost):
        agent.milestone("x")
    agent.acquire()
    base = agent._chain.replay.base

    slow.set()
    folded(agent)

    assert agent._chain.replay.base == base > 10
    record(agent, 41, 60)
    assert contents(store) == [str(n) for n in range(1, 61)]


def test_folding_does_not_begin_while_closing(store):
    agent = Client(store=store).resume("a")
    for _ in range(6):
        agent.milestone("m")

    def last_one(real):
        closing.start()
        until(lambda: agent._writer._closed)
        return real()

    closing = threading.Thread(target=agent.close)
    store.fail("create", LOG, [last_one])
    agent.milestone("the eighth entry, at which a fold is due")
    closing.join()

    assert store.count("create", "/history/") == 0
    assert kinds(store)[-1] == "release"


def test_threads_of_closed_agents_are_gone(store):
    before = set(threading.enumerate())
    for _ in range(5):
        with Client(store=MemoryStore()).resume("a") as agent:
            for _ in range(20):
                agent.milestone("m")

    assert set(threading.enumerate()) <= before
