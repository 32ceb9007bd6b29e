"""What an agent records, and what it reads back."""

import asyncio
import threading

import pytest
from polign_recall import (
    Call,
    Client,
    Closed,
    Invalid,
    LeaseLost,
    Milestone,
    Pin,
    PlanStep,
    TooLarge,
    Turn,
    WorkingState,
    writer,
)
from polign_recall.chain import Chain, agent_prefix, run
from polign_recall.stores import MemoryStore
from polign_recall.writer import FOLD_AFTER


@pytest.fixture
def agent(client):
    with client.resume("a") as agent:
        yield agent


def entries(store):
    """The kinds of the entries in the chain, and the number of their records."""
    replay = run(Chain(agent_prefix("a"), "a").load(), store)
    return [(link.entry.kind, len(link.entry.records)) for link in replay.links]


# ---- working state -------------------------------------------------------------------------------------------------


def test_only_the_fields_given_change(agent):
    agent.update_working_state(goal="g", notes="n", decisions=["d"], plan=["one", {"step": "two", "status": "done"}])
    merged = agent.update_working_state(notes="", focus="f", open_questions="just one")

    assert (merged.goal, merged.notes, merged.focus, merged.decisions) == ("g", "", "f", ["d"])
    assert merged.open_questions == ["just one"]
    assert [(step.step, step.status) for step in merged.plan] == [("one", "todo"), ("two", "done")]
    assert agent.working_state == merged
    assert [(state.goal, state.focus) for state in agent.working_state_history()] == [(None, "f"), ("g", None)]
    assert [state.focus for state in agent.working_state_history(limit=1)] == ["f"]


def test_a_plan_comes_in_several_shapes(agent):
    steps = ("a", PlanStep("b", "doing"), {"step": "c", "owner": "ann"})

    assert agent.update_working_state(plan=(step for step in steps)).plan == [
        PlanStep("a"), PlanStep("b", "doing"), PlanStep("c", extra={"owner": "ann"}),
    ]  # fmt: skip
    assert agent.update_working_state(plan="one step").plan == [PlanStep("one step")]
    assert agent.update_working_state(plan=[]).plan == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "no field of the working state was given"), ({"goal": 5}, "goal is a text, not int"),
        ({"notes": b"n"}, "notes is a text"), ({"decisions": [1]}, "each of decisions is a text, not int"),
        ({"decisions": {"a": 1}}, "decisions is a list of texts"), ({"open_questions": 3}, "open_questions is a list"),
        ({"plan": 7}, "a plan is a list of steps"), ({"plan": {"step": "s"}}, "a plan is a list of steps"),
        ({"plan": [{"status": "done"}]}, "step.*todo, doing, done"), ({"plan": [3]}, "a step of a plan"),
        ({"plan": [PlanStep("s", "soon")]}, "'soon'"), ({"plan": [{"step": object()}, None]}, "a step of a plan"),
    ],
)  # fmt: skip
def test_a_working_state_that_cannot_be_used_is_named(store, agent, fields, told):
    before = entries(store)

    with pytest.raises(Invalid, match=told):
        agent.update_working_state(**fields)

    assert entries(store) == before


def test_a_record_larger_than_a_briefing_could_ever_show_is_refused(store, agent):
    before = entries(store)

    for record in (
        lambda: agent.update_working_state(notes="x" * 100_000),
        lambda: agent.pin("x" * 100_000),
        lambda: agent.set_pointer("p", "object", "x" * 100_000),
    ):
        with pytest.raises(TooLarge, match=r"agent 'a'.*store_output"):
            record()

    assert entries(store) == before


# ---- pins, pointers, milestones ------------------------------------------------------------------------------------


def test_pins_hold_until_they_are_taken_back(client, agent):
    first, second = agent.pin("one"), agent.pin("two")
    agent.pin("own id", id="rule")
    agent.pin("replaced", id="rule")
    agent.unpin(first)
    agent.unpin("never there")

    assert first != second
    assert [(pin.id, pin.text) for pin in agent.pins()] == [(second, "two"), ("rule", "replaced")]
    agent.close()
    with client.resume("a") as again:
        assert [pin.text for pin in again.context.pins] == ["two", "replaced"]
        assert "  - replaced\n" in again.context.briefing


def test_many_pins_in_one_moment_are_all_kept(agent):
    ids = {agent.pin(f"rule {n}") for n in range(50)}

    assert len(ids) == len(agent.pins()) == 50


def test_pointers_are_replaced_and_removed_by_name(client, agent):
    agent.set_pointer("repo", "git_ref", "main@1", note="pushed")
    agent.set_pointer("repo", "git_ref", "main@2")
    agent.set_pointer("vm", "environment", "i-123")
    agent.remove_pointer("vm")
    agent.remove_pointer("never there")

    assert [(p.name, p.kind, p.target, p.note) for p in agent.pointers()] == [("repo", "git_ref", "main@2", "")]
    agent.close()
    assert "  - repo (git_ref): main@2\n" in client.briefing("a")


def test_milestones_are_in_the_next_context(client, agent):
    agent.milestone("half way")
    agent.close()

    with client.resume("a") as again:
        assert [stone.text for stone in again.context.milestones] == ["half way"]


@pytest.mark.parametrize("text", ["", "  \n", 5, b"x"])
def test_texts_that_say_nothing_are_named(store, agent, text):
    before = entries(store)

    for record in (
        agent.milestone, agent.pin, agent.unpin, agent.remove_pointer, lambda t: agent.pin("p", id=t),
        lambda t: agent.set_pointer(t, "k", "t"), lambda t: agent.set_pointer("n", t, "t"),
        lambda t: agent.set_pointer("n", "k", t),
    ):  # fmt: skip
        with pytest.raises(Invalid, match="is a text that is not empty"):
            record(text)

    with pytest.raises(Invalid, match="a pointer's note is a text"):
        agent.set_pointer("n", "k", "t", note=5)
    assert entries(store) == before


# ---- turns ---------------------------------------------------------------------------------------------------------


def test_turns_are_numbered_and_read_back_word_for_word(client, agent):
    call = Call("c1", "run", {"cmd": "ls"})
    assert agent.record_turn("user", "hello", message_id="m1", at="2026-11-29T15:00:00Z") == 1
    assert agent.record_turn("assistant", calls=[call], brief="looks around") == 2
    assert agent.record_turn("tool", [{"type": "text", "text": "a.py"}], call_id="c1", name="run", status="error") == 3

    user, reply, result = agent.turns()
    assert (user.role, user.content, user.message_id, user.at) == ("user", "hello", "m1", "2026-11-29T15:00:00Z")
    assert (reply.calls, reply.brief) == ([call], "looks around")
    assert (result.content, result.call_id, result.name, result.status) == (
        [{"type": "text", "text": "a.py"}], "c1", "run", "error",
    )  # fmt: skip
    assert agent.recent_turns() == [user, reply, result]
    assert [turn.seq for turn in agent.recent_turns(2)] == [2, 3]
    assert agent.recent_turns(0) == agent.recent_turns(-1) == []


def test_all_turns_are_read_back_across_folds(client, store, agent):
    for number in range(4 * FOLD_AFTER):
        agent.record_turn("user", f"turn {number}", message_id=f"m{number}")
        if number % 50 == 0:
            agent.update_working_state(progress=str(number))
    agent.close()

    with client.resume("a") as again:
        assert store.list("agents/a/history/")
        assert [turn.content for turn in again.turns()] == [f"turn {n}" for n in range(256)]
        assert [turn.seq for turn in again.turns(after=100, limit=3)] == [101, 102, 103]
        assert list(again.turns(limit=-1)) == list(again.turns(after=999)) == []
        assert [s.progress for s in again.working_state_history()] == ["250", "200", "150", "100", "50", "0"]
        assert again.recorded_ids(["m0", "m255", "m256", "never"]) == {"m0", "m255"}
        assert again.recorded_ids([]) == set()
        assert again.record_turn("user", "next") == 257


def test_reading_needs_no_lease_and_goes_on_while_others_write(client, agent):
    agent.record_turn("user", "one")
    reader = client.resume("a", defer_lease=True)
    turns = reader.turns()
    for number in range(2 * FOLD_AFTER):
        agent.record_turn("user", f"more {number}")

    assert [turn.content for turn in turns][:1] == ["one"]
    assert len(list(reader.turns())) == 1 + 2 * FOLD_AFTER
    assert reader.recorded_ids(["nothing"]) == set()


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ({"role": "robot"}, "role is user, assistant, tool or system, not 'robot'"), ({"role": None}, "role is"),
        ({"content": 5}, "content is text"), ({"content": {"type": "text"}}, "content is text"),
        ({"content": b"raw"}, "content is text"), ({"calls": [{"id": "1", "name": "n"}]}, "calls are Call objects"),
        ({"calls": [Call(None, "n")]}, "calls are Call objects"), ({"calls": [Call("1", 7)]}, "calls are Call objects"),
    ],
)  # fmt: skip
def test_a_turn_that_cannot_be_used_is_named(store, agent, turn, told):
    before = entries(store)

    with pytest.raises(Invalid, match=f"agent 'a'.*{told}"):
        agent.record_turn(**{"role": "user", **turn})

    assert entries(store) == before


BROKEN = [
    Turn(role="robot"), Turn(role="user", content=7), Turn(role="user", calls=[3]),
    WorkingState(plan=[PlanStep("s", "soon")]), WorkingState(decisions="text"), Milestone(text=None),
    Pin(id=1, text="t"),
]  # fmt: skip


@pytest.mark.parametrize("record", BROKEN, ids=lambda record: repr(record)[:30])
def test_a_record_that_could_not_be_read_back_is_never_written(client, agent, record):
    good = agent.submit(Turn(role="user", content="before"))
    bad = agent.submit(Turn(role="user", content="with it"), record)
    after = agent.submit(Turn(role="user", content="after"))

    with pytest.raises(Invalid, match="agent 'a'"):
        bad.result()

    assert (good.result(), after.result()) == ([1], [2])
    agent.close()
    with client.resume("a") as again:
        assert [turn.content for turn in again.turns()] == ["before", "after"]


@pytest.mark.parametrize("how", [{}, {"redact": None}], ids=["redacting", "not redacting"])
def test_the_texts_of_a_record_made_by_hand_are_made_safe_to_save(client, how):
    deep = here = []
    for _ in range(200):
        here.append([])
        here = here[0]
    call = Call(id="\ud800", name="t\0", args={"\0": ["\ud800"]})
    turn = Turn(role="user", content=["\ud800", deep], message_id="m\0", calls=[call], extra={"new": "\0"})
    with client.resume("a", **how) as agent:
        agent.submit(turn, Milestone(text="\0")).result()

    assert (turn.content[0], turn.message_id, call.args) == ("\ud800", "m\0", {"\0": ["\ud800"]})  # and not changed
    with client.resume("a") as again:
        (read,) = again.turns()
        assert (read.content[0], read.message_id, read.extra) == ("\ufffd", "m␀", {"new": "␀"})
        assert read.calls == [Call(id="\ufffd", name="t␀", args={"␀": ["\ufffd"]})]
        assert "..." in str(read.content[1])
        assert again.context.milestones[0].text == "␀"


def test_what_is_no_record_is_refused_at_once(agent):
    with pytest.raises(Invalid, match=r"agent 'a'.*a record is expected, not dict"):
        agent.submit({"type": "turn"})


# ---- submit and flush ----------------------------------------------------------------------------------------------


class Gate:
    """A store that lets entries in only while it is open."""

    def __init__(self, store):
        self.store = store
        self.open = threading.Event()
        self.open.set()

    def __getattr__(self, name):
        return getattr(self.store, name)

    def create(self, key, data):
        assert self.open.wait(30)
        return self.store.create(key, data)


@pytest.fixture
def gate():
    return Gate(MemoryStore())


def test_what_is_submitted_meanwhile_becomes_one_entry_in_order(gate):
    client = Client(store=gate)
    with client.resume("a") as agent:
        gate.open.clear()
        futures = [agent.submit(Turn(role="user", content=str(n)), Milestone(text=str(n))) for n in range(200)]
        gate.open.set()
        agent.flush()

        assert [future.result() for future in futures] == [[n + 1, 0] for n in range(200)]
        assert [turn.content for turn in agent.turns()] == [str(n) for n in range(200)]
        kinds = entries(gate)
        assert kinds[0] == ("claim", 0)
        assert len(kinds) <= 3
        assert sum(records for _, records in kinds) == 400


def test_a_large_group_becomes_several_entries(gate, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 1_000)
    client = Client(store=gate)
    with client.resume("a") as agent:
        gate.open.clear()
        futures = [agent.submit(Turn(role="user", content="x" * 300)) for _ in range(20)]
        gate.open.set()

        assert [future.result() for future in futures] == [[n + 1] for n in range(20)]
        assert max(records for _, records in entries(gate)) <= 4


def test_flush_waits_for_all_of_it_and_no_longer_than_told(gate):
    with Client(store=gate).resume("a") as agent:
        agent.flush()
        gate.open.clear()
        future = agent.submit(Turn(role="user"))
        with pytest.raises(TimeoutError):
            agent.flush(timeout=0.01)
        gate.open.set()

        agent.flush(timeout=30)

        assert future.done()


def test_flush_raises_what_failed_once(agent):
    agent.submit(Turn(role="robot"))
    agent.submit(Turn(role="user"))

    with pytest.raises(Invalid, match="a field that cannot be used"):
        agent.flush()

    agent.flush()
    assert len(list(agent.turns())) == 1


def test_nothing_submitted_is_done_at_once(store, agent):
    before = entries(store)

    assert agent.submit().result(timeout=0) == []
    assert entries(store) == before


async def test_a_cancelled_task_does_not_lose_its_write(gate):
    client = Client(store=gate)
    with client.resume("a") as agent:
        gate.open.clear()
        future = agent.submit(Turn(role="user", content="kept"))
        waiting = asyncio.ensure_future(asyncio.wrap_future(future))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open.set()

        assert await asyncio.wrap_future(agent.submit(Turn(role="user", content="next"))) == [2]
        assert (future.result(), [turn.content for turn in agent.turns()]) == ([1], ["kept", "next"])


def test_many_threads_may_record_at_once(client, agent):
    def work(name):
        for number in range(20):
            agent.record_turn("user", f"{name} {number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    turns = list(agent.turns())
    assert [turn.seq for turn in turns] == list(range(1, 121))
    for name in range(6):
        assert [t.content for t in turns if t.content.startswith(f"{name} ")] == [f"{name} {n}" for n in range(20)]


def test_what_was_submitted_before_a_takeover_is_told_its_fate(gate):
    client = Client(store=gate)
    agent = client.resume("a")
    kept = agent.submit(Turn(role="user", content="kept"))
    agent.flush()
    gate.open.clear()
    lost = agent.submit(Turn(role="user", content="lost"))
    Client(store=gate.store).resume("a", takeover=True, holder="other").close()
    gate.open.set()

    with pytest.raises(LeaseLost) as told:
        lost.result()

    assert (told.value.by, told.value.epoch, told.value.landed) == ("other", 2, False)
    assert kept.result() == [1]
    with pytest.raises(LeaseLost):
        agent.flush()
    with pytest.raises(LeaseLost):
        agent.submit(Turn(role="user"))
    agent.close()
    with pytest.raises(Closed):
        agent.submit(Turn(role="user"))
    assert [turn.content for turn in client.resume("a", defer_lease=True).turns()] == ["kept"]
