"""Who may write for an agent: one process at a time, and everybody else is told who."""

import logging
import subprocess
import sys
import threading

import pytest
from polign_recall import (
    Client,
    Closed,
    Invalid,
    LeaseHeld,
    LeaseLost,
    LeaseNotHeld,
    StoreUnavailable,
    Turn,
    writer,
)
from polign_recall.chain import Chain, agent_prefix, run
from polign_recall.stores import MemoryStore

from .faulty import LOG, Faulty


def writes(agent):
    """Every way to write, for an agent that may not."""
    return [
        lambda: agent.record_turn("user", "x"), lambda: agent.submit(Turn(role="user")), lambda: agent.milestone("x"),
        lambda: agent.update_working_state(goal="x"), lambda: agent.pin("x"), lambda: agent.unpin("x"),
        lambda: agent.set_pointer("n", "k", "t"), lambda: agent.remove_pointer("n"), lambda: agent.store_output("x"),
        lambda: agent.prepare_turn("user", "x" * 100_000), lambda: agent.check_lease(), lambda: agent.release(),
    ]  # fmt: skip


def test_a_held_agent_says_who_holds_it_since_when_and_until_when(client):
    with client.resume("a", holder="pod-1", lease_ttl=30) as agent:
        assert (agent.lease_held, agent.epoch, agent.holder) == (True, 1, "pod-1")
        with pytest.raises(LeaseHeld) as told:
            client.resume("a")

        error = told.value
        assert (error.holder, error.agent_id, error.since[:2]) == ("pod-1", "a", "20")
        assert 25 < error.expires_in <= 31
        assert str(error).startswith("[lease_held] agent 'a': held by pod-1 since 20")
        assert "wait for it (wait=), or take it over (takeover=True)" in str(error)


def test_a_holder_has_a_name_of_its_own_at_every_start(client):
    with client.resume("a") as first, client.resume("b") as second:
        assert first.holder != second.holder


def test_released_it_is_free_at_once_and_can_be_acquired_again(client):
    with client.resume("a") as agent:
        agent.record_turn("user", "one")
        agent.submit(Turn(role="user", content="two"))
        agent.release()

        assert (agent.lease_held, agent.epoch) == (False, 0)
        for write in writes(agent):
            with pytest.raises(LeaseNotHeld, match="agent 'a'"):
                write()
        with client.resume("a") as other:
            assert (other.epoch, other.record_turn("user", "three")) == (2, 3)
        context = agent.acquire()

        assert (agent.epoch, context.epoch, context.restarts) == (3, 3, 2)
        assert [turn.content for turn in context.recent_turns] == ["one", "two", "three"]
        assert agent.acquire() == context or agent.epoch == 3  # held already: nothing is claimed
        assert agent.record_turn("user", "four") == 4


@pytest.mark.parametrize("write", range(11))
def test_the_next_write_of_a_holder_that_was_taken_over_is_refused(client, write):
    agent = client.resume("a")
    agent.record_turn("user", "before")

    def go_on():
        writes(agent)[write]()
        agent.flush()
        agent.milestone("finds out, where that did not write")

    with client.resume("a", takeover=True, holder="pod-2") as other:
        with pytest.raises(LeaseLost) as told:
            go_on()

        assert (told.value.by, told.value.epoch, told.value.landed) == ("pod-2", 2, False)
        assert told.value.agent_id == "a"
        assert (agent.lease_held, agent.epoch) == (False, 0)
        for refused in writes(agent):
            with pytest.raises(LeaseLost, match="pod-2 took it over with epoch 2; ours was 1"):
                refused()
        assert [turn.content for turn in agent.refresh().recent_turns] == ["before"]
        assert other.lease_held
    agent.close()
    assert client.status("a").epoch == 2


def test_a_holder_that_lost_it_may_acquire_it_again(client):
    with client.resume("a") as agent:
        client.resume("a", takeover=True).close()
        with pytest.raises(LeaseLost):
            agent.milestone("x")

        assert agent.acquire().epoch == 3
        assert agent.record_turn("user", "again") == 1


def test_without_the_lease_it_reads_and_does_not_write(client):
    with client.resume("a", holder="busy") as holder:
        holder.record_turn("user", "one")
        with client.resume("a", defer_lease=True) as agent:
            assert (agent.lease_held, agent.epoch, agent.context.epoch) == (False, 0, 0)
            assert (agent.context.fresh, agent.context.restarts) == (False, 1)
            for write in writes(agent):
                with pytest.raises(LeaseNotHeld):
                    write()
            holder.record_turn("user", "two")
            assert [turn.content for turn in agent.context.recent_turns] == ["one"]
            assert [turn.content for turn in agent.refresh().recent_turns] == ["one", "two"]
            with pytest.raises(LeaseHeld):
                agent.acquire()
            holder.release()

            assert [turn.content for turn in agent.acquire().recent_turns] == ["one", "two"]
            assert (agent.lease_held, agent.epoch) == (True, 2)
            assert agent.record_turn("user", "three") == 3
            assert [turn.seq for turn in agent.refresh().recent_turns] == [1, 2, 3]


def test_a_slow_read_does_not_undo_what_was_recorded_meanwhile():
    store = Faulty()
    with Client(store=store).resume("a") as agent:
        agent.record_turn("user", "one")
    agent = Client(store=store).resume("a", defer_lease=True)
    reading, go_on = threading.Event(), threading.Event()

    def slow(real):
        found = real()
        reading.set()
        assert go_on.wait(30)
        return found

    store.fail("list", LOG, [slow])
    refreshing = threading.Thread(target=agent.refresh)
    refreshing.start()
    assert reading.wait(30)
    agent.acquire()
    agent.record_turn("user", "two")
    go_on.set()
    refreshing.join()

    assert [turn.content for turn in agent.recent_turns()] == ["one", "two"]
    assert agent.record_turn("user", "three") == 3
    agent.close()


def test_an_agent_that_never_acquired_leaves_no_trace(client, store):
    with client.resume("a", defer_lease=True) as agent:
        assert agent.context.fresh
        agent.flush()

    assert store.list("") == []


class Overheard(logging.Handler):
    """Calls back, in a thread of its own, when somebody says that they wait; keeps what they said."""

    def __init__(self, then):
        super().__init__()
        self.said = []
        self.thread = threading.Thread(target=then)

    def emit(self, record):
        if record.getMessage().startswith("waiting"):
            self.said.append(record.getMessage())
            if len(self.said) == 1:
                self.thread.start()


def test_waiting_ends_when_the_holder_releases(client, place):
    holder = client.resume("a", holder="busy")

    def release():
        holder.record_turn("user", "last words")
        holder.close()

    overheard = Overheard(release)
    writer.log.addHandler(overheard)
    try:
        with place.client() as other, other.resume("a", wait=60) as agent:
            assert [turn.content for turn in agent.context.recent_turns] == ["last words"]
            assert agent.epoch == 2
    finally:
        writer.log.removeHandler(overheard)
    overheard.thread.join()
    assert len(overheard.said) == 1
    assert "held by busy since" in overheard.said[0]


def test_waiting_in_vain_tells_who_holds_it(client):
    with client.resume("a", holder="busy"), pytest.raises(LeaseHeld, match="held by busy"):
        client.resume("a", wait=0.05)


def test_past_the_deadline_a_check_renews_first(client):
    with client.resume("a") as agent:
        agent.check_lease()
        before = client.status("a").seq
        agent._chain.deadline = 0.0

        assert not agent.lease_held
        agent.check_lease()

        assert agent.lease_held
        assert client.status("a").seq == before + 1


def test_leaving_with_an_error_hands_it_back(client):
    def work():
        with client.resume("a") as agent:
            agent.submit(Turn(role="user", content="one"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()

    with client.resume("a") as again:
        assert [turn.content for turn in again.context.recent_turns] == ["one"]


def test_a_closed_agent_can_be_read_and_not_be_written(client):
    agent = client.resume("a")
    ref = agent.store_output("whole")
    agent.record_turn("user", "one")
    agent.close()
    agent.close()

    assert (agent.lease_held, agent.epoch) == (False, 0)
    for write in [*writes(agent), agent.acquire]:
        with pytest.raises(Closed, match=r"agent 'a': the agent was closed \(open it again with resume"):
            write()
    agent.flush()
    assert agent.fetch_output(ref) == b"whole"
    assert [turn.content for turn in agent.turns()] == ["one"]
    assert agent.refresh().recent_turns == agent.recent_turns()


def test_a_client_closes_what_it_opened(client, place):
    agent = client.resume("a")
    agent.submit(Turn(role="user", content="one"))
    other = place.client()
    kept = other.resume("b")

    client.close()

    with pytest.raises(Closed):
        agent.milestone("x")
    assert kept.lease_held
    other.close()
    with place.client() as looking:
        assert not looking.status("a").held
        assert [turn.content for turn in looking.resume("a", defer_lease=True).turns()] == ["one"]


def test_an_agent_that_cannot_be_opened_holds_nothing(client):
    class Broken:
        def count(self, text):
            raise RuntimeError("no counter today")

    with client.resume("a") as agent:
        agent.record_turn("user", "x" * 10_000)
    with pytest.raises(RuntimeError, match="no counter today"):
        client.resume("a", counter=Broken())

    assert not client.status("a").held


@pytest.mark.parametrize("problem", [StoreUnavailable("gone"), Invalid("odd")])
def test_a_failed_claim_leaves_the_agent_usable(problem):
    class Failing(MemoryStore):
        fail = True

        def list(self, prefix):
            if self.fail:
                raise problem
            return super().list(prefix)

    failing = Failing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("polign_recall.chain.protocol.ATTEMPTS", 1)
        agent = Client(store=MemoryStore()).resume("a", defer_lease=True)
        agent._backend.store = failing
        with pytest.raises(type(problem)):
            agent.acquire()
    failing.fail = False

    assert agent.acquire().epoch == 1
    agent.close()


# ---- processes -----------------------------------------------------------------------------------------------------


def python(code, folder):
    """Run a script in a process of its own; gives what it printed."""
    script = f"import os, sys\nfrom polign_recall import *\nclient = Client(local_dir={str(folder)!r})\n{code}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "agent = client.resume('a')\nagent.submit(Turn(role='user', content='kept'))",
        "client.resume('a').record_turn('user', 'kept')",
        "agent = client.resume('a')\n[agent.submit(Turn(role='user', content='kept')).result() for _ in range(64)]",
        "agent = client.resume('a')\nagent.record_turn('user', 'kept')\nsys.exit()",
    ],
    ids=["forgotten", "out of sight", "about to fold", "sys.exit"],
)
def test_a_process_that_forgets_to_close_hands_it_back(tmp_path, code):
    python(code, tmp_path)

    with Client(local_dir=tmp_path) as client:
        # Not just free because the process is gone: it said so itself.
        assert run(Chain(agent_prefix("a"), "a").load(), client.backend.store).kind == "release"
        with client.resume("a") as agent:
            assert {turn.content for turn in agent.turns()} == {"kept"}


FORK = """
import traceback, warnings
warnings.simplefilter("ignore")  # that forking with threads is a bad idea is known
agent = client.resume("a")
agent.record_turn("user", "parent")
child = os.fork()
if child == 0:
    codes = [str(agent.lease_held), str(agent.epoch)]
    for write in (
        lambda: agent.record_turn("user", "child"), lambda: agent.submit(Turn(role="user")), agent.check_lease,
        lambda: agent.milestone("child"), lambda: agent.update_working_state(goal="child"), lambda: agent.pin("child"),
        lambda: agent.set_pointer("n", "k", "t"), lambda: agent.store_output("child"), agent.release, agent.acquire,
        lambda: agent.prepare_turn("user", "x" * 100_000), agent.flush,
    ):
        try:
            write()
            codes.append("written")
        except RecallError as error:
            codes.append(error.code)
    codes.append(str(len(list(agent.turns()))))
    with client.resume("b") as own:
        codes.append(str(own.record_turn("user", "of its own")))
    agent.close()
    client.close()
    print(*codes, flush=True)
    sys.exit()
os.waitpid(child, 0)
print(agent.lease_held, agent.epoch, agent.record_turn("user", "still the parent"), client.status("a").held)
"""


def test_a_forked_child_writes_nothing_and_gives_nothing_back(tmp_path):
    told = python(FORK, tmp_path)

    assert told[:2] == ["False", "0"]
    assert told[2:14] == ["lease_not_held"] * 12
    assert told[14:] == ["1", "1", "True", "1", "2", "True"]
    with Client(local_dir=tmp_path) as client:
        agent = client.resume("a")
        assert [turn.content for turn in agent.turns()] == ["parent", "still the parent"]
