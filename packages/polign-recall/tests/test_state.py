"""The fold: the same through a snapshot as without one, bounded, and it loses nothing of a newer version."""

import json
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polign_recall import (
    Call,
    Client,
    Corrupt,
    FormatTooNew,
    Milestone,
    OutputStored,
    Pin,
    Pointer,
    Turn,
    Unpin,
    WorkingState,
    writer,
)
from polign_recall.chain import Chain, FoldJob, agent_prefix, fold, fold_job, new_holder, run, this_host
from polign_recall.records import Unknown, encode
from polign_recall.state import (
    RECENT_BYTES,
    RECENT_MILESTONES,
    RECENT_OUTPUTS,
    RECENT_RESULTS,
    RECENT_TURNS,
    State,
    describe,
    fold_state,
)
from polign_recall.stores import MemoryStore

from . import strategies as ours

PREFIX = agent_prefix("a")


def contents(store):
    return {stat.key: store.get(stat.key).data for stat in store.list("")}


def newest(store, ending):
    """The key of the newest entry or snapshot."""
    return max(stat.key for stat in store.list(f"{PREFIX}log/") if stat.key.endswith(ending))


def replace(store, key, data):
    store.delete([key])
    store.create(key, data)


def write_raw(store, *raws):
    """Append records as they would be written by another version, and give the agent back."""
    chain = Chain(PREFIX, "a")
    run(chain.acquire(ttl=60.0, holder=new_holder(), host=this_host()), store)
    run(chain.append("records", [msgspec.Raw(json.dumps(raw).encode()) for raw in raws]), store)
    run(chain.append("release"), store)


def fold_now(store):
    """Fold the whole chain, as its last holder would."""
    chain = Chain(PREFIX, "a")
    chain.replay = run(chain.load(), store)
    job = fold_job(chain, fold_state(PREFIX, chain.replay).to_json())
    assert isinstance(job, FoldJob)
    assert run(fold(job, chain.env), store) == []


# ---- the fold ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.lists(ours.records, max_size=3), max_size=8), st.integers(0, 8))
def test_a_snapshot_taken_anywhere_changes_nothing(groups, cut):
    entries = [ours.claim(), *(ours.entry_of(group, seq, f"{seq}") for seq, group in enumerate(groups, 1))]
    straight = State()
    for entry in entries:
        straight.apply_entry(entry)

    through = State()
    for entry in entries[:cut]:
        through.apply_entry(entry)
    through = State.from_json(through.to_json())
    for entry in entries[cut:]:
        through.apply_entry(entry)

    assert through.to_json() == straight.to_json()
    assert State.from_json(straight.to_json()).to_json() == straight.to_json()


def test_each_record_does_what_it_says():
    output = OutputStored(ref="out-1", size=5)
    state = ours.state_of(
        WorkingState(goal="g", notes="n"), WorkingState(notes=""), Milestone(text="m"), Pin(id="1", text="old"),
        Pin(id="2", text="gone"), Pin(id="1", text="new"), Unpin(id="2"), Unpin(id="3"), output, output,
        Pointer(name="p", kind="k", target="t"),
        Turn(role="user", content="hi", seq=1, output_ref="out-2", size=9, name="f"), starts=3,
    )  # fmt: skip

    assert (state.working.goal, state.working.notes, state.starts) == ("g", "", 3)
    assert [pin.text for pin in state.pins.values()] == ["new"]
    assert list(state.pointers) == ["p"]
    assert [(o.ref, o.size, o.name) for o in state.outputs] == [("out-1", 5, None), ("out-2", 9, "f")]
    assert (state.turn_count, state.milestone_count, state.output_count) == (1, 1, 2)
    assert (state.started_at, state.last_at) == ("2026-11-29T14:00:00.000Z", "2026-11-29T15:00:00.000Z")
    assert not state.empty
    assert describe(state.working) == {"goal": "g"}


def test_a_state_that_only_saw_claims_is_empty():
    state = State()
    state.apply_entry(ours.claim())

    assert state.empty
    assert State().to_json() == State.from_json(State().to_json()).to_json()


def test_an_erase_leaves_nothing_but_the_mark():
    state = ours.state_of(Turn(role="user", content="secret"), Unknown(data={"type": "later", "secret": 1}))
    state = State.from_json(state.to_json()[:-1] + b',"newer":"secret"}')
    erase = ours.entry_of([])
    erase.kind = "erase"

    state.apply_entry(erase)

    assert (state.empty, state.deleted, state.starts) == (True, True, 0)
    assert b"secret" not in state.to_json()


# ---- bounds --------------------------------------------------------------------------------------------------------


def test_the_state_stays_small_over_ten_thousand_turns():
    state, sizes = ours.state_of(), []
    for number in range(1, 10_001):
        turn = Turn(role="user", content=f"{number} " + "x" * 400, seq=number, output_ref=f"out-{number}", size=1)
        records = [turn, Milestone(text=f"m{number}")]
        state.apply_entry(ours.entry_of(records, number))
        if number % 1_000 == 0:
            sizes.append(len(state.to_json()))

    assert max(sizes) < RECENT_BYTES + 10_000
    assert max(sizes) < 1.1 * min(sizes)
    assert (len(state.turns), len(state.milestones), len(state.outputs)) == (
        RECENT_TURNS, RECENT_MILESTONES, RECENT_OUTPUTS
    )  # fmt: skip
    assert [turn.seq for turn in state.turns] == list(range(9_961, 10_001))
    assert (state.turn_count, state.milestone_count, state.output_count) == (10_000, 10_000, 10_000)


def test_large_turns_leave_two_at_least():
    state = ours.state_of(*(Turn(role="user", content="x" * 2 * RECENT_BYTES, seq=seq) for seq in range(1, 6)))

    assert [turn.seq for turn in state.turns] == [4, 5]


def _reply(calls, size, first=1):
    """A turn that makes so many calls, and their results."""
    made = Turn(role="assistant", seq=first, calls=[Call(f"c{n}", "read", {"n": n}) for n in range(calls)])
    results = [Turn(role="tool", seq=first + 1 + n, call_id=f"c{n}", content="y" * size) for n in range(calls)]
    return [made, *results]


def test_a_reply_stays_with_the_results_of_its_calls():
    before = [Turn(role="user", content="x" * 500, seq=seq) for seq in range(1, 31)]

    state = ours.state_of(*before, *_reply(60, 5_000, first=31))

    assert [turn.seq for turn in state.turns] == list(range(31, 92))


def test_a_row_of_results_without_end_is_bounded_too():
    results = [Turn(role="tool", call_id="c", content="y" * 5_000, seq=seq) for seq in range(1, 1_000)]

    assert len(ours.state_of(*results).turns) <= RECENT_RESULTS
    assert len(ours.state_of(*_reply(500, 10)).turns) <= RECENT_RESULTS


def test_kept_turns_do_not_keep_large_entries_alive():
    state = State()
    entry = ours.entry_of([WorkingState(notes="x" * 1_000_000), Turn(role="user", content="small")])
    stored = msgspec.json.encode(entry)
    tracemalloc.start()
    try:
        for _ in range(RECENT_TURNS):
            state.apply_entry(msgspec.json.decode(bytearray(stored), type=type(entry)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 5_000_000


# ---- other versions ------------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(writer, "FOLD_AFTER", 8)
    return MemoryStore()


def test_records_of_a_newer_version_survive_folding(store):
    turn = {"type": "turn", "role": "user", "content": "hi", "seq": 1, "mood": "good"}
    call = {"id": "c", "name": "pay", "args": {"sum": 1}, "key": "once"}
    reply = {"type": "turn", "role": "assistant", "seq": 2, "calls": [call]}
    plan = {"type": "working_state", "plan": [{"step": "s", "status": "todo", "owner": "ann"}], "risk": "low"}
    action = {"type": "from_the_future", "id": 7, "args": {"deep": [1]}}
    pin = {"type": "pin", "id": "p", "text": "rule", "since": 3}
    write_raw(store, turn, reply, plan, action, pin)

    fold_now(store)
    with Client(store=store).resume("a") as agent:
        for number in range(20):  # enough to fold once more
            agent.update_working_state(focus=str(number))

    snapshot = json.loads(store.get(newest(store, ".snap")).data)["state"]
    assert turn in snapshot["turns"]
    assert reply in snapshot["turns"]
    assert snapshot["unknown"] == [action]
    assert (snapshot["working"]["plan"], snapshot["working"]["risk"]) == (plan["plan"], "low")
    assert snapshot["pins"] == [pin]
    history = b"".join(data for key, data in contents(store).items() if "/history/" in key)
    assert json.dumps(action, separators=(",", ":")).encode() in history.replace(b": ", b":").replace(b", ", b",")


def test_turns_lie_in_a_snapshot_as_they_were_written():
    raw = msgspec.Raw(b'{ "content": "spaced",\n "role": "user", "type": "turn", "n": 1e5 }')
    entry = ours.entry_of([])
    entry.records = [raw]
    state = State()
    state.apply_entry(entry)

    assert bytes(raw) in state.to_json()
    assert bytes(raw) in State.from_json(state.to_json()).to_json()


def test_fields_of_a_newer_snapshot_survive_the_next_fold(store):
    write_raw(store, {"type": "milestone", "text": "m"})
    fold_now(store)
    key = newest(store, ".snap")
    snapshot = json.loads(store.get(key).data)
    snapshot["state"]["actions"] = [{"id": 1, "open": True}]
    replace(store, key, json.dumps(snapshot).encode())

    with Client(store=store).resume("a") as agent:
        for number in range(20):
            agent.milestone(str(number))

    assert newest(store, ".snap") > key
    assert json.loads(store.get(newest(store, ".snap")).data)["state"]["actions"] == [{"id": 1, "open": True}]


def test_a_type_that_became_known_is_folded_in():
    known = State.from_json(b'{"last_at":"1","unknown":[{"type":"milestone","text":"m"},{"type":"later"}]}')

    assert [stone.text for stone in known.milestones] == ["m"]
    assert known.unknown == [Unknown(data={"type": "later"})]


@pytest.mark.parametrize("ending", ["", ".snap"], ids=["entry", "snapshot"])
def test_a_format_too_new_is_refused_by_name_and_left_alone(store, ending):
    write_raw(store, {"type": "milestone", "text": "m"})
    fold_now(store)
    write_raw(store, {"type": "milestone", "text": "n"})
    key = newest(store, ending)
    stored = json.loads(store.get(key).data)
    replace(store, key, json.dumps({**stored, "v": 2, "kind": "sealed", "state": 7}).encode())
    before = contents(store)
    client = Client(store=store)

    for opened in (
        lambda: client.resume("a"),
        lambda: client.resume("a", defer_lease=True),
        lambda: client.resume("a", takeover=True),
        lambda: client.status("a"),
        lambda: client.briefing("a"),
        lambda: client.delete_agent("a"),
    ):
        with pytest.raises(FormatTooNew, match=f"{key} was written by a newer version.*upgrade"):
            opened()

    assert {k: v for k, v in contents(store).items() if not k.startswith("probe/")} == before
    assert client.agents()[0].problem.startswith(f"[format_too_new] {key}")


@pytest.mark.parametrize(
    "state",
    [b"[]", b'{"turns":[{"type":"turn"}]}', b'{"turns":[{"type":"pin","id":"","text":""}]}', b'{"starts":"x"}',
     b'{"unknown":[1]}', b'{"working":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b'{"started_at":"\xff"}'],
    ids=range(7),
)  # fmt: skip
def test_a_state_that_cannot_be_read_is_corrupt(state):
    with pytest.raises(Corrupt):
        State.from_json(state)


def test_a_record_that_cannot_be_read_is_named_by_its_key(store):
    write_raw(store, {"type": "milestone", "text": "m"}, {"type": "turn", "role": "robot"})

    with pytest.raises(Corrupt, match=r"agents/a/log/0{19}2 cannot be read: .*robot.*restore that object"):
        Client(store=store).resume("a")

    assert Client(store=store).agents()[0].problem
    assert run(Chain(PREFIX, "a").load(), store).kind == "release"


def test_one_record_encodes_the_same_however_it_came():
    record = Turn(role="user", content="hi", seq=1, extra={"b": 1, "a": 2, "c": 3})

    assert bytes(encode(record)) == b'{"b":1,"a":2,"c":3,"type":"turn","role":"user","content":"hi","seq":1}'
