"""Checks of pointers at resume: what they say, and that no checker holds a resume up or brings text into a briefing."""

import re
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polign_recall import Client, Invalid, Pointer, PointerCheck, briefing, checking, counter_for
from polign_recall.checking import LONGEST_ID, PARALLEL
from polign_recall.stores import MemoryStore

from . import strategies as ours

TOKEN = "AKIA" + "Q3EGHZ5WN2P7XVB4"
HEADING = "Pointers to where the work lives, each with what was found there just now:\n"


@pytest.fixture
def places():
    """What is where, as the checkers find it."""
    return {"draft": "v1", "table": "v1"}


@pytest.fixture
def checkers(places):
    return {"page": places.get}


@pytest.fixture
def impatient(monkeypatch):
    """Nobody waits long for a checker."""
    monkeypatch.setattr(checking, "SECONDS", 0.2)


@pytest.fixture
def stuck():
    """A checker that hangs until the test is over."""
    over = threading.Event()
    yield lambda target: str(over.wait())
    over.set()
    for thread in threads():
        thread.join(30)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "polign-recall-check"]


def lines(text):
    """The pointers of a briefing, without the dash."""
    return re.findall(r"^  - (.*)$", text.partition(HEADING)[2].partition("\n</recall-records")[0], re.MULTILINE)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if "not checked" in r.getMessage()]


# ---- what a check says ---------------------------------------------------------------------------------------------


def test_a_resume_tells_what_is_the_same_changed_or_gone(client, places, checkers):
    with client.resume("a", checkers=checkers) as agent:
        for name in ("draft", "table", "later"):
            agent.set_pointer(name, "page", name, "mine")
        assert [pointer.seen for pointer in agent.pointers()] == ["v1", "v1", None]
        agent.set_pointer("elsewhere", "external", "ticket 7")
    places.update(draft="v2", later="v1")

    with client.resume("a", checkers=checkers) as agent:
        found = dict(agent.context.pointer_checks)
        assert found == {
            "draft": PointerCheck("changed", "v2"),
            "table": PointerCheck("same", "v1"),
            "later": PointerCheck("there", "v1"),
        }
        assert lines(agent.context.briefing) == [
            "[changed, now v2] draft (page): draft - mine",
            "[same] table (page): table - mine",
            "[there, v1] later (page): later - mine",
            "[not checked] elsewhere (external): ticket 7",
        ]
        places.clear()
        assert set(agent.check_pointers().values()) == {PointerCheck("gone")}
        assert agent.context.pointer_checks == found, "the context is of the resume"
        assert lines(agent.refresh().briefing)[0] == "[gone] draft (page): draft - mine"
        places["draft"] = "v2"
        agent.set_pointer("draft", "page", "draft")
        assert agent.check_pointers()["draft"] == PointerCheck("same", "v2")


def test_what_was_seen_survives_folds_and_processes_without_checkers(client, checkers, monkeypatch):
    monkeypatch.setattr("polign_recall.writer.FOLD_AFTER", 4)
    with client.resume("a", checkers=checkers) as agent:
        agent.set_pointer("draft", "page", "draft")
    for number in range(6):
        with client.resume("a") as agent:
            agent.milestone(f"step {number}")
            agent.set_pointer("table", "page", "table")

    context = client.resume("a", checkers=checkers, defer_lease=True).context
    assert [(pointer.name, pointer.seen) for pointer in context.pointers] == [("draft", "v1"), ("table", None)]
    assert {name: check.status for name, check in context.pointer_checks.items()} == {"draft": "same", "table": "there"}


def test_without_a_checker_for_the_kind_nothing_changes(client, store, checkers):
    def work(agent_id, **options):
        with client.resume(agent_id, **options) as agent:
            agent.set_pointer("draft", "git_ref", "shop@main")
            agent.set_pointer("other", "object", "report.csv", "a note")
        with client.resume(agent_id, **options) as agent:
            assert agent.context.pointer_checks == agent.check_pointers() == {}
            return re.sub(r"[0-9TZ:-]{10,}|id=\"\w+\"", "", agent.context.briefing.replace(agent_id, ""))

    assert work("plain") == work("checked", checkers=checkers)
    assert not any(b"seen" in store.get(stat.key).data for stat in store.list(""))


@pytest.mark.parametrize("checkers", [3, [len], {"git_ref": "main"}, {3: str}])
def test_checkers_that_are_none_are_refused(checkers, client):
    with pytest.raises(Invalid, match="checkers"):
        client.resume("a", checkers=checkers)
    client.resume("a")  # the agent was not taken


# ---- checkers that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checker", "error"),
    [
        (lambda target: 1 / 0, "ZeroDivisionError"),
        (lambda target: sys.exit(1), "SystemExit"),
        (lambda target: b"v1", "TypeError"),
        (lambda: "v1", "TypeError"),
    ],
)
def test_one_that_fails_says_so_and_nothing_else_suffers(checker, error, client, checkers, caplog):
    checkers["broken"] = checker
    with client.resume("a", checkers=checkers) as agent:
        agent.set_pointer("one", "broken", "x")
        agent.set_pointer("two", "broken", "y")
        agent.set_pointer("draft", "page", "draft")
    caplog.clear()

    with client.resume("a", checkers=checkers) as agent:
        assert lines(agent.context.briefing) == [
            f"[not checked: {error}] one (broken): x",
            f"[not checked: {error}] two (broken): y",
            "[same] draft (page): draft",
        ]
    assert warnings(caplog) == [f"agent 'a': pointers that were not checked: 'one' ({error}), 'two' ({error})"]


@pytest.mark.usefixtures("impatient")
def test_one_that_hangs_does_not_hold_a_resume_up(client, checkers, stuck, caplog):
    checkers["stuck"] = stuck
    with client.resume("a", checkers=checkers) as agent:
        agent.set_pointer("slow", "stuck", "x")
        agent.set_pointer("draft", "page", "draft")
        assert [(pointer.name, pointer.seen) for pointer in agent.pointers()] == [("slow", None), ("draft", "v1")]
        caplog.clear()
        late, same = PointerCheck("not checked", error="TimeoutError"), PointerCheck("same", "v1")
        assert agent.refresh().pointer_checks == {"slow": late, "draft": same}
    assert warnings(caplog) == ["agent 'a': pointers that were not checked: 'slow' (TimeoutError)"]


@pytest.mark.usefixtures("impatient")
def test_those_that_hang_never_take_more_than_a_few_threads(client, stuck):
    with client.resume("a") as agent:
        for number in range(2 * PARALLEL):
            agent.set_pointer(f"p{number}", "stuck", "x")
    for _ in range(3):
        with client.resume("b", checkers={"stuck": stuck}):
            pass  # another agent has its own
    agent = client.resume("a", checkers={"stuck": stuck})
    for _ in range(3):
        assert {check.error for check in agent.refresh().pointer_checks.values()} == {"TimeoutError"}
    assert len(threads()) == PARALLEL


def test_they_run_side_by_side(client):
    """Alone, each would wait for the others in vain."""
    together = threading.Barrier(PARALLEL, timeout=30)
    with client.resume("a") as agent:
        for number in range(3 * PARALLEL):
            agent.set_pointer(f"p{number}", "page", "x")

    def checker(target):
        together.wait()
        return "v1"

    context = client.resume("a", checkers={"page": checker}).context
    assert {check.status for check in context.pointer_checks.values()} == {"there"}
    assert len(context.pointer_checks) == 3 * PARALLEL


def test_a_process_ends_though_a_checker_hangs(tmp_path):
    script = """
import sys, threading
from polign_recall import Client, checking
checking.SECONDS = 0.2
agent = Client(local_dir=sys.argv[1]).resume("a", checkers={"page": lambda target: threading.Event().wait()})
agent.set_pointer("draft", "page", "x")
print(agent.refresh().pointer_checks["draft"].error)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout) == (0, "TimeoutError\n"), run.stderr


# ---- what may come back --------------------------------------------------------------------------------------------


def test_a_secret_is_neither_recorded_nor_shown(client, store, places, checkers):
    places.update(draft=TOKEN, table="a" * 10_000)
    with client.resume("a", checkers=checkers) as agent:
        agent.set_pointer("draft", "page", "draft")
        agent.set_pointer("table", "page", "table")
        agent.milestone("done")
        assert {check.status for check in agent.check_pointers().values()} == {"same"}
        places.update(draft=TOKEN[:-1] + "5", table="a" * 9_999 + "b")
        context = agent.refresh()
    assert [check.status for check in context.pointer_checks.values()] == ["changed", "changed"]
    everything = context.briefing + "".join(store.get(s.key).data.decode(errors="replace") for s in store.list(""))
    assert "AKIA" not in everything
    assert "a" * 100 not in everything


def test_a_redactor_that_fails_leaves_the_checks_right(client, places, checkers):
    def redactor(text):
        if text.startswith("v"):
            raise ValueError
        return text

    with client.resume("a", checkers=checkers, redact=redactor) as agent:
        agent.set_pointer("draft", "page", "draft")
        assert agent.check_pointers()["draft"].status == "same"
        places["draft"] = "v2"
        assert agent.check_pointers()["draft"].status == "changed"


@given(st.text(max_size=200))
def test_an_id_is_shown_as_it_is_or_as_a_digest(found):
    with Client(store=MemoryStore()) as client, client.resume("a", checkers={"page": lambda target: found}) as agent:
        agent.set_pointer("p", "page", "x")
        check = agent.check_pointers()["p"]
        assert check.status == "same"
        assert check.found == found or re.fullmatch(r"blake2b-[0-9a-f]{16}", check.found)
        assert len(check.found) <= LONGEST_ID
        assert check.found.isascii()
        assert check.found.isprintable()


checks = st.one_of(
    st.builds(PointerCheck, st.sampled_from(["same", "changed", "there"]), ours.texts),
    st.just(PointerCheck("gone")),
    st.builds(PointerCheck, st.just("not checked"), error=ours.texts),
)


@given(st.lists(st.tuples(ours.texts, ours.texts, ours.texts, checks), min_size=1, max_size=5))
def test_no_pointer_can_pass_for_a_check(pointers):
    named = {str(number): pointer for number, pointer in enumerate(pointers)}
    records = [Pointer(name=n, kind=k, target=t, note=note) for n, (k, t, note, _) in named.items()]
    found = {name: check for name, (*_, check) in named.items() if name != "0"} or {"0": PointerCheck("gone")}
    built = briefing.build(
        ours.state_of(*records), agent_id="a", restarts=1, now="2026-11-29T15:04:00.000Z", budget=100_000,
        counter=counter_for(), checks=found,
    )  # fmt: skip

    begun = re.findall(r"^ {0,3}\S.*", built.text.partition(HEADING)[2].partition("</recall-records")[0], re.MULTILINE)
    assert len(begun) == len(named), "what a pointer says begins further right"
    for name, line in zip(named, begun, strict=True):
        assert line.startswith(f"  - [{found[name].status if name in found else 'not checked'}")
