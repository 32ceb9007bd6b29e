"""Records survive a round trip, those of a newer version included; what cannot be one is named."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from polign_recall import (
    ActionEnded,
    ActionStarted,
    Call,
    Corrupt,
    Invalid,
    Milestone,
    OutputStored,
    Pin,
    PlanStep,
    Pointer,
    PointerRemoved,
    Turn,
    Unpin,
    WorkingState,
)
from polign_recall.records import TYPES, Unknown, decode, decode_as, encode

from . import strategies as ours

ONE_OF_EACH = [
    Turn(role="assistant", content="hi", seq=3, calls=[Call("c1", "run", {"a": 1})], at="2026-11-29T15:23:00Z"),
    WorkingState(goal="g", plan=[PlanStep("one", "done"), PlanStep("two")], decisions=["d"], open_questions=[]),
    Milestone(text="half"), Pin(id="p", text="never"), Unpin(id="p"),
    Pointer(name="repo", kind="git_ref", target="main"), PointerRemoved(name="repo"),
    OutputStored(ref="out-" + "0" * 32, size=7),
    ActionStarted(tool="pay", class_="external", key="k", epoch=2, seq=1, args={"sum": 5}, call_id="c1"),
    ActionEnded(seq=1, status="done", result=[1], resolution="asked the bank"),
]  # fmt: skip


def test_there_is_one_of_each_type_here():
    assert {type(record) for record in ONE_OF_EACH} == set(TYPES.values())


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record):
    assert decode(encode(record)) == record
    assert "extra" not in ours.as_json(record)


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_fields_of_a_newer_version_survive(record):
    newer = {**ours.as_json(record), "urgency": {"level": 3}, "tags": ["a"]}

    read = decode(json.dumps(newer).encode())

    assert type(read) is type(record)
    assert read.extra == {"urgency": {"level": 3}, "tags": ["a"]}
    assert ours.as_json(read) == newer


def test_fields_of_a_newer_version_inside_calls_and_steps_survive():
    turn = {"type": "turn", "role": "assistant", "plan": 1, "calls": [{"id": "1", "name": "n", "args": 0, "key": "k"}]}
    state = {"type": "working_state", "plan": [{"step": "s", "status": "todo", "due": [1]}], "calls": "other"}

    assert ours.as_json(decode(json.dumps(turn).encode())) == turn
    assert ours.as_json(decode(json.dumps(state).encode())) == state


def test_a_type_of_a_newer_version_survives_whole():
    newer = {"type": "action", "key": "k", "nested": [{"type": "turn"}], "data": None}

    read = decode(json.dumps(newer).encode())

    assert isinstance(read, Unknown)
    assert ours.as_json(read) == newer


@given(ours.records)
def test_any_record_comes_back_as_it_was(record):
    raw = encode(record)

    assert bytes(encode(decode(raw))) == bytes(raw)


@given(st.dictionaries(ours.texts, ours.json_values, max_size=4), ours.texts)
def test_any_object_of_an_unknown_type_survives(fields, kind):
    assume(kind not in TYPES)
    raw = json.dumps({**fields, "type": kind}).encode()

    assert ours.as_json(decode(raw)) == json.loads(raw)


BROKEN = [
    b"", b"{", b"[]", b"null", b'"turn"', b"{}", b'{"type":["turn"]}', b'{"type":"turn"}',
    b'{"type":"pin","id":1,"text":""}', b'{"type":"turn","role":"robot"}',
    b'{"type":"working_state","plan":[{"step":"s","status":"soon"}]}',
    b'{"type":"turn","role":"user","calls":[1]}', b'{"type":"\xff"}', b'{"type":"later","deep":' + b"[" * 99_999,
    b'{"type":"turn","role":"user","content":"\\ud800"}',
]  # fmt: skip


@pytest.mark.parametrize("raw", BROKEN, ids=lambda raw: str(raw[:60]))
def test_what_is_no_record_is_corrupt(raw):
    with pytest.raises(Corrupt, match="a record cannot be read"):
        decode(raw)


def test_a_record_in_the_wrong_place_is_corrupt():
    with pytest.raises(Corrupt, match="a Pin stands where a Turn should"):
        decode_as(encode(Pin(id="p", text="t")), Turn)


def _endless() -> list:
    values: list = []
    values.append(values)
    return values


@pytest.mark.parametrize(
    "args",
    [object(), {1, object()}, "\ud800", {"\udfff": 1}, _endless()],
    ids=["object", "set", "surrogate", "key", "endless"],
)
def test_what_json_cannot_hold_is_invalid(args):
    with pytest.raises(Invalid, match="a Turn cannot be saved as JSON"):
        encode(Turn(role="assistant", calls=[Call("1", "run", args)]))


def test_a_working_state_takes_only_what_is_given():
    before = WorkingState(goal="g", notes="n", decisions=["d"], at="1", extra={"old": 1})

    after = before.merged(WorkingState(notes="", decisions=[], focus="f", at="2", extra={"new": 2}))

    assert after == WorkingState(goal="g", notes="", decisions=[], focus="f", at="2", extra={"old": 1, "new": 2})
    assert before == WorkingState(goal="g", notes="n", decisions=["d"], at="1", extra={"old": 1})
