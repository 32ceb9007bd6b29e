"""Ends of actions that nobody waits for."""

import logging
import threading

import pytest
from polign_recall import Client, NotFound, StoreDenied
from polign_recall.stores import MemoryStore


class HeldStore(MemoryStore):
    """Holds back, or refuses, what is created once it is told to."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()
        self.refuse = False

    def create(self, key, data):
        assert self.go_on.wait(60)
        if self.refuse:
            raise StoreDenied("no")
        return super().create(key, data)


@pytest.fixture
def store():
    return HeldStore()


@pytest.fixture
def agent(store):
    with Client(store=store).resume("a") as agent:
        yield agent


def seen(store):
    with Client(store=store).resume("a", defer_lease=True) as agent:
        return agent.pending_actions(), agent.ended_actions()


@pytest.mark.parametrize("class_", ["pure", "idempotent", "external"])
def test_an_end_that_is_not_waited_for_is_on_its_way(class_, agent, store):
    action = agent.begin_action("t", class_, call_id="c")
    store.go_on.clear()
    agent.end_action(action.seq, "done", result=7, wait=False)
    assert agent.pending_actions() == []
    assert agent.refresh().briefing.count("nobody knows") == 0
    with pytest.raises(NotFound):
        agent.end_action(action.seq, "failed")
    store.go_on.set()
    agent.flush()
    assert [(each.status, each.result) for each in agent.ended_actions()] == [("done", 7)]
    assert seen(store) == ([], agent.ended_actions())


def test_a_turn_is_not_durable_before_the_end_that_it_follows(agent, store):
    action = agent.begin_action("t", "idempotent", call_id="c")
    agent.end_action(action.seq, "done", wait=False)
    agent.record_turn("tool", "x", call_id="c")
    assert seen(store) == ([], [])


@pytest.mark.parametrize("status", ["done", "failed"])
def test_the_same_call_waits_for_the_end_of_the_one_before(status, agent, store):
    action = agent.begin_action("t", "external", call_id="c")
    store.go_on.clear()
    agent.end_action(action.seq, status, wait=False)
    again = []
    thread = threading.Thread(target=lambda: again.append(agent.begin_action("t", "external", call_id="c")))
    thread.start()
    store.go_on.set()
    thread.join()
    assert [(each.key, each.status) for each in again] == [(action.key, "done" if status == "done" else "open")]


def test_an_end_that_could_not_be_written_leaves_the_outcome_unknown_and_is_told(agent, store, caplog):
    action = agent.begin_action("t", "external")
    store.refuse = True
    with caplog.at_level(logging.WARNING):
        agent.end_action(action.seq, "done", wait=False)
        with pytest.raises(StoreDenied):
            agent.flush()
    assert "action 1 (t) stays open: its end could not be recorded" in caplog.text
    store.refuse = False
    assert [(each.key, each.status) for each in agent.pending_actions()] == [(action.key, "unknown")]
