"""The briefing: never over its budget, the same bytes for the same state, and its quotation cannot be broken."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polign_recall import (
    Call,
    Invalid,
    Milestone,
    OutputStored,
    Pin,
    PlanStep,
    Pointer,
    Turn,
    WorkingState,
    counter_for,
)
from polign_recall.briefing import MIN_BUDGET, Briefing, build, check_budget, unanswered
from polign_recall.state import State

from . import strategies as ours

NOW = "2026-11-29T15:30:00.000Z"
MARKER = re.compile(r'</?recall-records id="[0-9a-f]{8}">')
# How our own lines between the markers begin; recorded text is never further left than four blanks.
OURS = re.compile(
    r"  (- |\[[x> ]\] |#\d+ (user|assistant|tool|system)\b|-> )|"
    r"(Goal|Progress|Focus|Notes): |(Decisions|Open questions|Pointers to where the work lives):$|"
    r"Calls with no recorded outcome; check before repeating them:$|Rules that hold \(pinned\):$|"
    r"Plan \(\[x\] done, \[>\] doing, \[ \] to do\):$|Milestones \(\d+ of \d+, newest first\):$|"
    r"Last turns \(\d+ of \d+, oldest first\):$|Stored outputs \(fetch_output reads them\):$"
)


class Letters:
    """A counter of one's own: a token is a letter, or four of anything beyond ASCII."""

    def count(self, text: str) -> int:
        return sum(1 if c.isascii() else 4 for c in text)


class Words:
    """Another one, which counts a text's parts as more than the whole."""

    def count(self, text: str) -> int:
        return len(text) // 4 + 3


COUNTERS = [counter_for(), counter_for("gpt-4"), counter_for("some-model-of-1999"), Letters(), Words()]


def brief(state: State, budget: int = 8_000, counter=COUNTERS[0], agent_id: str = "a", restarts: int = 1) -> Briefing:
    return build(state, agent_id=agent_id, restarts=restarts, now=NOW, budget=budget, counter=counter)


def fenced(text: str) -> str:
    """What stands between the markers."""
    return re.split(r"</?recall-records[^>]*>\n", text)[1]


states = st.lists(st.one_of(ours.turns, ours.working_states, ours.others), max_size=50).map(
    lambda records: ours.state_of(*records, starts=2)
)
budgets = st.one_of(st.just(MIN_BUDGET), st.integers(MIN_BUDGET, 1_200), st.sampled_from([8_000, 100_000]))


@settings(max_examples=120)
@given(states, budgets, st.sampled_from(COUNTERS), ours.texts)
def test_any_state_is_briefed_within_its_budget_and_its_fence(state, budget, counter, agent_id):
    text, omitted = brief(state, budget, counter, agent_id)

    assert counter.count(text) <= budget
    assert brief(State.from_json(state.to_json()), budget, counter, agent_id) == (text, omitted)
    if not MARKER.search(text):
        assert state.empty or budget < 450 or isinstance(counter, Letters)  # no room even for the markers
        assert text.count("\n") <= 1
        return
    opening, closing = MARKER.findall(text)
    assert closing == opening.replace("<", "</")
    assert text.lower().count("<recall-records") == text.lower().count("</recall-records") == 1
    for line in fenced(text).removesuffix("\n").split("\n"):
        assert OURS.match(line) or line.startswith("    ") or not line, repr(line)
    assert not re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]", text)
    assert len(text.splitlines()) == text.count("\n")


@settings(max_examples=80)
@given(states, budgets)
def test_every_cut_is_named(state, budget):
    text, omitted = brief(state, budget)
    told = "\n".join(omitted)

    shown = [int(seq) for seq in re.findall(r"^  #(\d+) ", text, re.MULTILINE)]
    if state.turn_count > len(shown):
        assert f"{state.turn_count - len(shown)} earlier turn" in told
    for name, heading in (("goal", "Goal: "), ("notes", "Notes: "), ("decisions", "Decisions:")):
        if getattr(state.working, name):
            assert f"\n{heading}" in text or f"{name}: left out" in told
    after = re.split(r"</recall-records[^>]*>\n", text)[-1] if "</recall-records" in text else ""
    assert after.startswith("Not shown here:\n- ") == (bool(omitted) and "</recall-records" in text)
    for name in re.findall(r"(.*): (?:cut to fit|left out)", told):
        assert name in after or not after


@settings(max_examples=80)
@given(st.lists(ours.turns, min_size=1, max_size=50), budgets)
def test_turns_are_the_newest_and_calls_keep_their_results(turns, budget):
    for seq, turn in enumerate(turns, 1):
        turn.seq = seq
    state = ours.state_of(*turns)

    shown = [int(seq) for seq in re.findall(r"^  #(\d+) ", brief(state, budget).text, re.MULTILINE)]

    kept = [turn.seq for turn in state.turns]
    assert shown == kept[len(kept) - len(shown) :]
    made = {call.id: turn.seq for turn in state.turns for call in turn.calls}
    for turn in state.turns:
        if turn.call_id in made and turn.seq in shown and made[turn.call_id] < turn.seq:
            assert made[turn.call_id] in shown


# ---- what a user would look for ------------------------------------------------------------------------------------


def _long_run(turns: int = 60) -> list:
    """Turns of a run that reads files, as an agent records them."""
    recorded = [Turn(role="user", content="Carry on with the migration.", seq=1, at="2026-11-29T15:00:00Z")]
    for number in range(turns // 2):
        seq, call = 2 * number + 2, Call(f"call_{number}", "read_file", {"path": f"shop/file_{number}.py"})
        recorded.append(Turn(role="assistant", calls=[call], seq=seq, at="2026-11-29T15:10:00Z"))
        recorded.append(Turn(role="tool", name="read_file", call_id=call.id, content="import os\n" * 40, seq=seq + 1))
    return recorded


WORK = WorkingState(
    goal="Move every module of shop/ to billing.payments.",
    plan=[PlanStep("shop/orders.py", "done"), PlanStep("shop/returns.py", "doing"), PlanStep("run the tests")],
    progress="2 of 3", decisions=["keep the public names", "round half up\nas the ledger does"],
)  # fmt: skip
PINS = [Pin(id="1", text="Never touch vendor/."), Pin(id="2", text="Ask before deleting\n  anything at all.")]
VERBATIM = [
    "\nRules that hold (pinned):\n  - Never touch vendor/.\n  - Ask before deleting\n      anything at all.\n",
    "\nGoal: Move every module of shop/ to billing.payments.\n",
    "\nPlan ([x] done, [>] doing, [ ] to do):\n  [x] shop/orders.py\n  [>] shop/returns.py\n  [ ] run the tests\n",
    "\nDecisions:\n  - keep the public names\n  - round half up\n    as the ledger does\n",
]


@pytest.mark.parametrize("budget", [350, 600, 1_000, 8_000])
def test_goal_plan_rules_and_decisions_are_verbatim_when_they_fit(budget):
    text, omitted = brief(ours.state_of(WORK, *PINS, *_long_run()), budget)

    assert all(part in text for part in VERBATIM)
    assert "#61 tool read_file" in text or budget < 600
    assert any(note.endswith("earlier turns: agent.turns()") for note in omitted)


@pytest.mark.parametrize("field", ["goal", "plan", "decisions", "notes", "pins", "pointers"])
@pytest.mark.parametrize("budget", [MIN_BUDGET, 1_000, 8_000])
def test_one_huge_field_leaves_room_for_the_others(field, budget):
    huge = "word " * 40_000
    records = [WORK, *PINS[:1], Turn(role="user", content="hello", seq=1)]
    records += {
        "plan": [WorkingState(plan=[PlanStep(f"step {n}") for n in range(20_000)])],
        "decisions": [WorkingState(decisions=[huge, huge])],
        "pins": [Pin(id="3", text=huge)],
        "pointers": [Pointer(name="p", kind="object", target=huge)],
    }.get(field) or [WorkingState(**{field: huge})]

    text, omitted = brief(ours.state_of(*records), budget)

    assert counter_for().count(text) <= budget
    assert counter_for().count(text) > budget * 0.75
    assert any(note.startswith(f"{field}: ") for note in omitted)
    if budget >= 1_000:
        others = [part for part in VERBATIM if not part.lower().startswith((f"\n{field}", "\nrules"))]
        assert all(part in text for part in others)


def test_when_everything_is_huge_the_first_in_priority_stay():
    huge = "word " * 20_000
    work = WorkingState(goal=huge, plan=[PlanStep(huge)], progress=huge, focus=huge, decisions=[huge], notes=huge)
    call = Turn(role="assistant", calls=[Call("c", "pay", {"sum": 3})], seq=1)

    text, omitted = brief(ours.state_of(work, Pin(id="1", text=huge), call), 2_000)

    assert re.findall(r"^([A-Z][a-z]+)\b.*:", fenced(text), re.MULTILINE)[:4] == ["Calls", "Rules", "Goal", "Plan"]
    assert omitted[-6:] == [
        "goal: cut to fit", "plan: cut to fit", "progress: left out", "focus: left out", "decisions: left out",
        "notes: left out",
    ]  # fmt: skip
    assert 'pay({"sum":3}) [called an unknown time, id c]' in text


def test_the_newest_turns_are_shown_shorter_rather_than_not_at_all():
    calls = [Call(f"c{n}", "read_file", {"path": f"{n}.py"}) for n in range(12)]
    reply = Turn(role="assistant", calls=calls, seq=1)
    results = [Turn(role="tool", call_id=f"c{n}", content=f"file {n} " * 500, seq=n + 2) for n in range(12)]

    text, omitted = brief(ours.state_of(reply, *results), 3_000)

    assert text.count("\n  #") == 13
    assert "#7 tool (call 6): file 5 file 5" in text
    assert "the rest of 12 long turns: agent.turns()" in omitted


def test_results_that_came_in_between_stay_with_their_calls():
    turns = [
        Turn(role="assistant", calls=[Call("a", "slow", {})], seq=1),
        Turn(role="user", content="meanwhile " * 100, seq=2),
        Turn(role="assistant", calls=[Call("b", "quick", {})], seq=3),
        Turn(role="tool", call_id="a", content="slow result", seq=4),
        Turn(role="tool", call_id="b", content="quick result", seq=5),
        Turn(role="user", content="thanks", seq=6),
    ]
    for budget in range(MIN_BUDGET, 900, 20):
        shown = [int(seq) for seq in re.findall(r"^  #(\d+) ", brief(ours.state_of(*turns), budget).text, re.MULTILINE)]
        assert shown in ([6], [1, 2, 3, 4, 5, 6])


def test_a_result_without_its_call_is_not_shown_first():
    text, omitted = brief(
        ours.state_of(Turn(role="tool", call_id="gone", content="x", seq=8), Turn(role="user", seq=9))
    )

    assert re.findall(r"#\d+", text) == ["#9"]
    assert "#8 tool: x" in brief(ours.state_of(Turn(role="tool", call_id="gone", content="x", seq=8))).text
    assert omitted == ["1 earlier turn: agent.turns()"]


def test_calls_without_an_outcome_are_found_also_where_ids_are_used_again():
    def call(*ids):
        return Turn(role="assistant", calls=[Call(i, f"tool_{i}", {}) for i in ids])

    def result(i):
        return Turn(role="tool", call_id=i)

    def open_in(*turns):
        for seq, turn in enumerate(turns, 1):
            turn.seq = seq
        return [(turn.seq, found.id) for turn, found in unanswered(turns)]

    assert open_in(call("a", "b"), result("b")) == [(1, "a")]
    assert open_in(call("0"), result("0"), call("0"), result("0")) == []
    assert open_in(call("0"), call("0"), result("0")) == [(1, "0")]
    assert open_in(call("0", "0"), result("0"), call("1")) == [(1, "0"), (3, "1")]
    assert open_in(result("0"), result("0"), Turn(role="user")) == []


def test_a_brief_stands_for_the_content_and_parts_are_named():
    image = {"type": "image_url", "image_url": {"url": "out-" + "a" * 32 + " (5 bytes, image/png)"}}
    turns = [
        Turn(role="tool", content="a long story", brief="in short", seq=1, status="error", name="tell"),
        Turn(role="user", content=[{"type": "text", "text": "look"}, image, "there", {"odd": 1}, 7], seq=2),
        Turn(role="tool", content="head", output_ref="out-" + "b" * 32, size=5_000, seq=3),
    ]
    state = ours.state_of(Turn(role="user", seq=0), *turns)

    text = brief(state).text

    assert "  #1 tool tell (failed): in short\n" in text
    assert f"  #2 user: look\n    [image_url out-{'a' * 32}]\n    there\n    [part]\n    7\n" in text
    assert f"  #3 tool: head [whole: out-{'b' * 32}, 5000 bytes]\n" in text


def test_long_arguments_are_short_here_only():
    args = {"content": "y" * 5_000, "rows": list(range(100))}
    turn = Turn(role="assistant", calls=[Call("c", "write", args, "out-" + "c" * 32)], seq=1)

    text = brief(ours.state_of(turn)).text

    assert "(4880 more characters)" in text
    assert '"... 80 more"' in text
    assert f"[whole arguments: out-{'c' * 32}]" in text
    assert turn.calls[0].args == args


def test_fifty_idle_restarts_leave_the_size_as_it_is():
    records = [WORK, *PINS, *_long_run()]
    first, last = (brief(ours.state_of(*records, starts=n), restarts=n).text for n in (11, 61))

    assert len(first) == len(last)


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2026-11-29T15:29:50.000Z", "It is 2026-11-29T15:30Z, 10 s after the last record."),
        ("2026-11-29T15:00:00Z", "15:30Z, 30 min after"), ("2026-11-29T10:30:00+02:00", "15:30Z, 7 h after"),
        ("2026-11-20T15:30:00Z", "15:30Z, 9 d after"), ("2026-11-29T15:31:00Z", "15:30Z, 0 s after"),
        ("last tuesday\n# obey", "15:30Z, an unknown time after the last record. What"),
    ],
)  # fmt: skip
def test_the_gap_since_the_last_record_is_told(at, told):
    state = State()
    state.apply_entry(ours.entry_of([WORK], at=at))

    assert told in brief(state).text


def test_the_first_start_says_so_within_any_budget():
    text, omitted = brief(State(), MIN_BUDGET, Letters(), agent_id="x" * 500)

    assert text.startswith("This is the first start of agent 'xxx")
    assert omitted == []


def test_a_counter_with_no_room_for_a_frame_still_gets_what_fits():
    class Hundredfold:
        def count(self, text):
            return 100 * len(text)

    text, omitted = brief(ours.state_of(WORK, *PINS, *_long_run()), MIN_BUDGET, Hundredfold())

    assert text == "You"
    assert {"goal: left out", "pins: left out"} <= set(omitted)


@pytest.mark.parametrize("budget", [0, -1, 10, 299, 1_000_001, 10**9, True, 500.0, "500", None])
def test_a_budget_that_cannot_be_used_is_named(budget):
    with pytest.raises(Invalid, match="token_budget is"):
        check_budget(budget)


def test_usable_budgets_are_taken():
    assert [check_budget(budget) for budget in (300, 8_000, 1_000_000)] == [300, 8_000, 1_000_000]


def test_what_is_no_longer_at_hand_is_named():
    records = [Milestone(text=f"m{n}", at=NOW) for n in range(25)]
    records += [OutputStored(ref=f"out-{n:032}", size=n) for n in range(50)]

    text, omitted = brief(ours.state_of(*records))

    assert omitted == ["40 more stored outputs: agent.context.outputs", "5 earlier milestones"]
    assert "Milestones (20 of 25, newest first):\n  - 2026-11-29T15:30Z m24\n" in text
