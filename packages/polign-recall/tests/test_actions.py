"""Actions: written down before they are carried out, and what a later holder may do about those without an outcome."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polign_recall import ActionEnd, Call, Client, Invalid, LeaseLost, NotFound
from polign_recall.records import ActionEnded, ActionStarted
from polign_recall.state import RECENT_ACTIONS, State
from polign_recall.stores import MemoryStore

from . import strategies as ours

MAIL = {"to": "ann@example.org", "text": "Hello"}


@pytest.fixture
def agent(client):
    with client.resume("a") as agent:
        yield agent


@pytest.fixture
def restarted(client, agent):
    """Opens the agent in another process's stead: the holder before it is dead, and never ended what it began."""

    def restart():
        return client.resume("a", takeover=True)

    return restart


def shapes(actions):
    return [(action.seq, action.tool, action.class_, action.status) for action in actions]


# ---- one holder ----------------------------------------------------------------------------------------------------


def test_an_action_is_recorded_before_it_is_carried_out(agent, client):
    action = agent.begin_action("send_mail", "external", MAIL, call_id="c1")

    assert shapes([action]) == [(1, "send_mail", "external", "open")]
    assert (action.args, action.call_id, action.epoch) == (MAIL, "c1", agent.epoch)
    assert len(action.key) == 32
    assert agent.pending_actions() == [action]
    [seen] = client.resume("a", defer_lease=True).context.pending_actions
    assert (seen.key, seen.status, seen.started_at) == (action.key, "unknown", action.started_at)

    agent.end_action(action.seq, "done", result={"id": 7})
    assert agent.pending_actions() == []
    assert client.resume("a", defer_lease=True).context.pending_actions == []


def test_actions_are_numbered_through_restarts_and_folds(agent, restarted, monkeypatch):
    monkeypatch.setattr("polign_recall.writer.FOLD_AFTER", 4)
    keys = set()
    for number in range(1, 10):
        action = agent.begin_action("t", "idempotent", number)
        agent.end_action(action.seq, "done")
        keys.add(action.key)
        assert action.seq == number
    with restarted() as later:
        assert later.begin_action("t", "idempotent", 1).seq == 10
    assert len(keys) == 9


def test_many_at_once(agent):
    actions = []

    def act(number):
        action = agent.begin_action("t", "external", number, call_id=f"c{number}")
        actions.append(action)
        agent.end_action(action.seq, "done", result=number)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(action.seq for action in actions) == list(range(1, 21))
    assert agent.pending_actions() == []


@pytest.mark.parametrize(
    ("args", "match"),
    [(("t", "pura"), "pure, idempotent or external"), (("", "pure"), "a tool's name"), ((None, "pure"), "a tool's")],
)
def test_what_cannot_begin(agent, args, match):
    with pytest.raises(Invalid, match=match):
        agent.begin_action(*args)
    assert agent.pending_actions() == []


def test_what_cannot_end(agent):
    action = agent.begin_action("t", "external")
    with pytest.raises(Invalid, match="done, failed or abandoned"):
        agent.end_action(action.seq, "over")
    with pytest.raises(Invalid, match="an error is a text"):
        agent.end_action(action.seq, "failed", error=7)
    assert agent.pending_actions() == [action]
    agent.end_action(action.seq, "failed", error="no route")
    for seq in (action.seq, 99):
        with pytest.raises(NotFound, match=f"no action {seq} is open"):
            agent.end_action(seq, "done")


def test_a_holder_that_was_taken_over_begins_nothing(agent, restarted):
    with restarted():
        with pytest.raises(LeaseLost):
            agent.begin_action("send_mail", "external", MAIL)
        assert restarted().pending_actions() == []


def test_large_arguments_and_results_are_outputs(agent, restarted):
    long = "line\n" * 9_000
    action = agent.begin_action("write", "external", {"text": long, "data": b"\0" * 2_000}, call_id="c")
    agent.end_action(action.seq, "done", result={"rows": long})

    assert len(str(action.args)) < 6_000
    whole = agent.fetch_output(action.args_ref).decode()
    assert long.replace("\n", "\\n") in whole
    with restarted() as later:
        again = later.begin_action("write", "external", {"text": long, "data": b"\0" * 2_000}, call_id="c")
        assert again.status == "done"
        assert long.replace("\n", "\\n") in later.fetch_output(again.result_ref).decode()


# ---- the next holder -----------------------------------------------------------------------------------------------


def test_a_read_is_forgotten(agent, restarted):
    agent.begin_action("look", "pure", {"at": "x"}, call_id="c1")
    agent.record_turn("assistant", calls=[Call("c1", "look", {"at": "x"})])
    with restarted() as later:
        assert later.pending_actions() == later.context.pending_actions == []
        assert "check before" not in later.context.briefing
        later.flush()
        assert later.begin_action("look", "pure", {"at": "x"}, call_id="c1").status == "open"


def test_an_idempotent_action_goes_on_under_its_key(agent, restarted):
    first = agent.begin_action("write", "idempotent", {"a": 1}, call_id="c1")
    with restarted() as later:
        assert shapes(later.pending_actions()) == [(1, "write", "idempotent", "unknown")]
        again = later.begin_action("write", "idempotent", {"a": 1}, call_id="c9")
        assert (again.key, again.seq, again.status, again.epoch) == (first.key, 1, "open", later.epoch)
        assert later.begin_action("write", "idempotent", {"a": 1}, call_id="c10").key != first.key
        assert later.begin_action("write", "idempotent", {"a": 2}).key != first.key
        later.end_action(again.seq, "done")
        assert shapes(later.pending_actions()) == [
            (2, "write", "idempotent", "open"),
            (3, "write", "idempotent", "open"),
        ]


def test_equal_only_without_their_secrets_is_not_equal(agent, restarted):
    first, second = ("gh" + "p_" + letter * 36 for letter in "ab")
    one = agent.begin_action("set", "idempotent", {"token": first})
    with restarted() as later:
        assert later.begin_action("set", "idempotent", {"token": second}).key != one.key
        assert later.begin_action("set", "idempotent", {"token": first}).key != one.key


def test_an_external_action_is_not_carried_out_again_for_the_same_call(agent, restarted):
    first = agent.begin_action("send_mail", "external", MAIL, call_id="c1")
    with restarted() as later:
        again = later.begin_action("send_mail", "external", MAIL, call_id="c1")
        assert (again.status, again.key) == ("unknown", first.key)
        other = later.begin_action("send_mail", "external", MAIL, call_id="c2")
        assert other.status == "open"
        assert other.key != first.key
        assert later.begin_action("send_mail", "external", {"to": "bob"}, call_id="c1").status == "open"


@pytest.mark.parametrize("class_", ["idempotent", "external"])
def test_what_is_done_is_not_carried_out_again_for_the_same_call(agent, restarted, class_):
    action = agent.begin_action("pay", class_, {"sum": 5}, call_id="c1")
    agent.end_action(action.seq, "done", result={"id": 7})
    for holder in (agent, restarted()):
        again = holder.begin_action("pay", class_, {"sum": 5}, call_id="c1")
        assert (again.status, again.result, again.key) == ("done", {"id": 7}, action.key)
    with restarted() as later:
        later.record_turn("tool", "paid", call_id="c1")
        assert later.begin_action("pay", class_, {"sum": 5}, call_id="c1").status == "done"
    with restarted() as later:
        assert later.begin_action("pay", class_, {"sum": 5}, call_id="c1").result == {"id": 7}
        later.record_turn("assistant", calls=[Call("c1", "pay", {"sum": 5})])  # some models number their calls anew
        assert later.begin_action("pay", class_, {"sum": 5}, call_id="c1").key != action.key


@pytest.mark.parametrize("class_", ["idempotent", "external"])
@pytest.mark.parametrize("status", ["failed", "abandoned"])
def test_another_try_of_the_same_call_has_the_same_key(agent, restarted, class_, status):
    action = agent.begin_action("pay", class_, {"sum": 5}, call_id="c1")
    agent.end_action(action.seq, status, error="no route")
    again = agent.begin_action("pay", class_, {"sum": 5}, call_id="c1")
    assert (again.key, again.seq, again.status) == (action.key, action.seq, "open")
    agent.end_action(again.seq, status)
    with restarted() as later:
        assert later.begin_action("pay", class_, {"sum": 5}, call_id="c1").key == action.key


def test_an_action_that_became_external_is_not_repeated(agent, restarted):
    agent.begin_action("pay", "idempotent", {"sum": 5}, call_id="c1")
    with restarted() as later:
        assert later.begin_action("pay", "external", {"sum": 5}, call_id="c1").status == "unknown"


# ---- finding out ---------------------------------------------------------------------------------------------------


def test_a_resolver_tells_what_came_of_it(agent, restarted):
    for name in ("done", "failed", "unknown", "raises"):
        agent.begin_action(name, "external", MAIL, call_id=name)
    agent.begin_action("write", "idempotent", call_id="w")
    agent.begin_action("look", "pure", call_id="l")
    asked = []

    def resolver(action):
        asked.append(action.tool)
        if action.tool == "raises":
            raise ConnectionError("down")
        if action.tool == "done":
            return ActionEnd("done", {"id": action.key}, resolution="found in the outbox")
        return ActionEnd("failed", error="not in the outbox") if action.tool == "failed" else None

    with restarted() as later:
        running = later.begin_action("send_mail", "external", MAIL)
        report = later.reconcile(resolver)
        assert asked == ["done", "failed", "unknown", "raises", "write"]
        assert [(each.tool, each.status) for each in report.closed] == [("done", "done"), ("failed", "failed")]
        assert report.closed[0].resolution == "found in the outbox"
        assert [each.tool for each in report.open] == ["unknown", "raises", "write"]
        assert later.pending_actions() == [*report.open, running]
        assert later.begin_action("done", "external", MAIL, call_id="done").result == report.closed[0].result
    with restarted() as after:
        assert [each.tool for each in after.reconcile().open] == ["unknown", "raises", "write", "send_mail"]


def test_a_resolver_that_answers_with_something_else(agent, restarted):
    agent.begin_action("pay", "external")
    with restarted() as later:
        with pytest.raises(Invalid, match="an ActionEnd or None"):
            later.reconcile(lambda action: "done")
        with pytest.raises(Invalid, match="done, failed or abandoned"):
            later.reconcile(lambda action: ActionEnd("perhaps"))
        assert len(later.pending_actions()) == 1


# ---- the briefing --------------------------------------------------------------------------------------------------


def test_the_briefing_says_what_to_check_first(agent, restarted):
    agent.update_working_state(goal="g")
    agent.pin("rule")
    agent.record_turn(
        "assistant", calls=[Call(name[0], name, MAIL) for name in ("mail", "write", "look", "charge", "plain")]
    )
    for name, class_ in {"mail": "external", "write": "idempotent", "look": "pure", "charge": "external"}.items():
        action = agent.begin_action(name, class_, MAIL, call_id=name[0])
    agent.end_action(action.seq, "done", result={"receipt": 7})

    with restarted() as later:
        mail, write = later.pending_actions()
        lines = later.context.briefing.splitlines()
    at = lines.index("Actions that were begun; nobody knows what came of them, so find out before repeating one:")
    shown = '({"to":"ann@example.org","text":"Hello"})'
    began = [f"begun {each.started_at[:19]}Z, key {each.key}, id {each.call_id}" for each in (mail, write)]
    called = lines[at + 3].split("called ")[1]
    assert lines[at:][:9] == [
        lines[at],
        f"  - mail{shown} [{began[0]}]",
        "Calls with no recorded outcome; check before repeating them:",
        f"  - plain{shown} [called {called}",
        "Actions that were begun, and may be repeated with the same arguments:",
        f"  - write{shown} [{began[1]}]",
        "Outcomes of calls that no turn answers:",
        f'  - charge{shown}: done: {{"receipt":7}}',
        "Rules that hold (pinned):",
    ]
    assert "look" not in "".join(lines[at:][:9])


def test_a_holder_is_not_told_to_check_what_it_is_doing(agent):
    agent.begin_action("mail", "external", MAIL)
    assert "nobody knows" not in agent.refresh().briefing


# ---- the fold ------------------------------------------------------------------------------------------------------


def entry(*records):
    return ours.entry_of(list(records))


def test_actions_that_ended_and_were_never_answered_are_few():
    state = State()
    for seq in range(1, 3 * RECENT_ACTIONS):
        started = ActionStarted(tool="t", class_="external", key="k", epoch=1, seq=seq, call_id=f"c{seq}")
        state.apply_entry(entry(started, ActionEnded(seq=seq, status="done")))
    assert len(state.ended_actions) == RECENT_ACTIONS
    assert state.open_actions == {}


@given(st.lists(ours.actions | ours.action_ends | ours.turns, max_size=12))
def test_a_fold_halfway_gives_the_same(records):
    whole, halves = State(), State()
    for number, record in enumerate(records):
        whole.apply_entry(entry(record))
        halves.apply_entry(entry(record))
        if number % 3 == 0:
            halves = State.from_json(halves.to_json())
    assert halves.to_json() == whole.to_json()
    assert halves.open_actions == whole.open_actions
    assert set(whole.open_actions).isdisjoint(started.seq for started, _ in whole.ended_actions)


def test_delete_forgets_actions():
    with Client(store=MemoryStore()) as client:
        with client.resume("a") as agent:
            agent.begin_action("pay", "external", call_id="c")
        client.delete_agent("a")
        with client.resume("a") as agent:
            assert agent.pending_actions() == []
            assert agent.begin_action("pay", "external", call_id="c").seq == 1
