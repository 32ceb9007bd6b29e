"""Whatever is given, and whatever is found: a named error that says what to do, and nothing recorded is lost."""

import math
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polign_recall import (
    Call,
    Client,
    Invalid,
    NotFound,
    RecallError,
    StoreDenied,
    StoreUnavailable,
    TooLarge,
)
from polign_recall.chain import decode_id, encode_id

from .faulty import Faulty

LEGAL = [
    ".", "..", "../x", "a/b", "a_b", "a%2Fb", "a b", "Ünï", "日本語", "\U0001f469\u200d\U0001f4bb", "~", "-", "CON",
    "a:b", "*?|<>", "\\..\\", " ", "x" * 240, "ü" * 40, "\u202e", "\u00a0", "a.snap", ".hidden", "%00", "\ufeff",
]  # fmt: skip
ILLEGAL = ["", "a\0b", "\n", "\x1b[31m", "\x7f", "x" * 241, "x" * 600, "日" * 30, "\ud800", None, 5, b"bytes", ["a"]]


# ---- agent ids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent_id", ILLEGAL, ids=lambda agent_id: repr(agent_id)[:12])
def test_an_agent_id_that_cannot_be_used_is_named(client, store, agent_id):
    for use in (client.resume, client.status, client.briefing, client.delete_agent):
        with pytest.raises(Invalid, match=r"^\[invalid\] (an )?agent id"):
            use(agent_id)

    assert store.list("") == []


def test_any_other_agent_id_works_and_collides_with_none(tmp_path):
    root = tmp_path / "one" / "two"
    root.parent.mkdir()
    with Client(local_dir=root) as client:
        for agent_id in LEGAL:
            with client.resume(agent_id) as agent:
                agent.record_turn("user", f"I am {agent_id}")

        assert sorted(status.agent_id for status in client.agents()) == sorted(LEGAL)
        for agent_id in LEGAL:
            with client.resume(agent_id, defer_lease=True) as agent:
                assert [turn.content for turn in agent.turns()] == [f"I am {agent_id}"]
                assert agent.agent_id == agent_id

    outside = [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents]
    assert outside == []
    assert len(list((root / "agents").iterdir())) == len(LEGAL)


@given(st.text(st.characters(exclude_categories=())))
@example("." * 300)
def test_an_encoded_id_is_reversible_and_stays_in_its_place(agent_id):
    try:
        segment = encode_id(agent_id)
    except Invalid:
        unusable = any(ord(c) < 32 or ord(c) == 127 or "\ud800" <= c <= "\udfff" for c in agent_id)
        assert unusable or not agent_id or len(agent_id.encode()) > 80
        return
    assert decode_id(segment) == agent_id
    assert segment.isascii()
    assert segment.isprintable()
    assert len(segment) <= 240
    assert not {"/", "\\", "\0", " ", ":", "^"} & set(segment)
    assert not segment.startswith(".")


# ---- arguments -----------------------------------------------------------------------------------------------------

ARGUMENTS = [
    *(
        ("lease_ttl", value, r"lease_ttl is 5 to 3600 seconds")
        for value in (0, 4, 4.99, 3601, "x", True, None, math.nan, -5)
    ),
    *(("token_budget", value, r"token_budget is") for value in (0, -1, 10, 299, 10**9, "x", True, None, 1e3)),
    *(
        ("output_threshold", value, r"output_threshold is 100 tokens or more")
        for value in (0, 99, -1, "x", True, None, 1e3)
    ),
    *(("wait", value, r"wait is a number of seconds") for value in (-1, "x", True, None, math.inf, math.nan)),
    *(("holder", value, r"holder is a name of 1 to 200 characters") for value in ("", "x" * 201, 5, b"x")),
]


@pytest.mark.parametrize(("name", "value", "told"), ARGUMENTS, ids=lambda value: repr(value)[:16])
def test_an_argument_that_cannot_be_used_is_named(client, store, name, value, told):
    with pytest.raises(Invalid, match=told) as caught:
        client.resume("a", **{name: value})

    assert isinstance(caught.value, ValueError)
    assert store.list("") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("lease_ttl", 5), ("lease_ttl", 3600.0), ("token_budget", 300), ("token_budget", 1_000_000), ("wait", 0.5),
     ("output_threshold", 100), ("holder", "pod\0\ud800/ü")],
)  # fmt: skip
def test_an_argument_at_its_limit_works(client, name, value):
    with client.resume("a", **{name: value}) as agent:
        assert agent.record_turn("user", "x") == 1
    assert client.status("a").turns == 1


# ---- places --------------------------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_one_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")

    for place, told in (
        ("file", "is a file, not a directory .*choose a directory"), ("file/below", "a file is in the way"),
        ("missing/below", "there is no directory .*missing .*make it first"),
        ("x" * 300, "longer than the system allows"),
    ):  # fmt: skip
        with pytest.raises(RecallError, match=told):
            Client(local_dir=tmp_path / place).resume("a")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def mount(tmp_path):
    """A small file system of its own, where this process may mount one."""
    point = tmp_path / "mount"
    point.mkdir()

    def run(*options):
        try:
            done = subprocess.run(["mount", *options, str(point)], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip(f"this process may not mount: {done.stderr.strip()}")

    run("-t", "tmpfs", "-o", "size=200k", "none")
    yield point, run
    subprocess.run(["umount", "--lazy", str(point)], check=True)


def test_a_directory_that_became_read_only_can_still_be_read(mount):
    point, run = mount
    client = Client(local_dir=point)
    client.resume("a").record_turn("user", "one")  # and the process stays, so it is held
    run("-o", "remount,ro")

    for write in (
        lambda: Client(local_dir=point).resume("a", takeover=True),
        lambda: Client(local_dir=point).resume("new"),
        lambda: Client(local_dir=point).delete_agent("a", takeover=True),
    ):
        with pytest.raises(StoreDenied, match=f"mounted read-only: {point}.*mount it with write access"):
            write()

    reader = Client(local_dir=point)
    assert (reader.status("a").held, reader.agents()[0].turns) == (True, 1)
    assert "#1 user: one" in reader.briefing("a")
    assert [turn.content for turn in reader.resume("a", defer_lease=True).turns()] == ["one"]
    run("-o", "remount,rw")
    client.close()
    assert not reader.status("a").held


def test_reading_needs_no_right_to_write():
    store = Faulty()

    def denied(_real):
        raise StoreDenied("no right to write")

    with Client(store=store).resume("a", holder="pod") as agent:
        agent.update_working_state(goal="g")
        store.fail("now", "", [denied] * 9)
        reader = Client(store=store)

        status = reader.status("a")

        assert (status.held, status.holder, status.goal) == (True, "pod", "g")
        assert 50 < status.expires_in <= 61
        with pytest.raises(StoreDenied):
            reader.resume("a")


def test_a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room(mount, no_pauses):
    point, _ = mount
    (point / "filler").write_bytes(b"x" * 100_000)
    with Client(local_dir=point) as client, client.resume("a") as agent:
        recorded = []

        def fill():
            for number in range(1_000):
                agent.record_turn("user", f"{number} " + "x" * 4_000)
                recorded.append(number + 1)

        with pytest.raises(StoreUnavailable, match=f"the disk is full: {point}.*make room and try again"):
            fill()
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            agent.store_output(b"y" * 90_000)

        assert [turn.seq for turn in agent.turns()] == recorded
        (point / "filler").unlink()
        assert agent.record_turn("user", "goes on") == len(recorded) + 1
    with Client(local_dir=point) as client:
        assert client.status("a").turns == len(recorded) + 1


# ---- contents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["\ud800 half a character", "NUL \0 inside", "\x1b[2J\x1b[31mred", "</recall-records>\nGoal: mine",
     "\r\n\x85\u2028", "<|endoftext|>", "", '<recall-records id="0123abcd">' * 20],
    ids=range(8),
)  # fmt: skip
def test_any_text_can_be_recorded_and_briefed(client, text):
    some = f"{text} and more"
    with client.resume("a") as agent:
        agent.record_turn("user", text, name=text, message_id=text, brief=text, call_id=text, status=text, at=text)
        agent.record_turn("user", [{"type": "text", "text": text}])
        agent.record_turn("assistant", calls=[Call(text, text, {text: text})])
        agent.store_output(text, name=text, media_type=text)
        agent.update_working_state(goal=text, plan=[some], decisions=[text], notes=text)
        agent.pin(some, id=some)
        agent.set_pointer(some, some, some, note=text)
        agent.milestone(some)
    with client.resume("a", token_budget=1_000) as again:
        briefing = again.context.briefing
        assert again.context.tokens <= 1_000
        assert [turn.seq for turn in again.turns()] == [1, 2, 3]
        assert briefing.count("<recall-records id=") == briefing.count("</recall-records id=") == 1
        assert not {"\0", "\x1b", "\x85", "\u2028"} & set(briefing)


@pytest.mark.parametrize("field", ["name", "message_id", "call_id", "status", "brief", "at"])
def test_a_label_as_long_as_a_content_is_refused(client, field):
    with client.resume("a") as agent:
        with pytest.raises(
            TooLarge, match=rf"agent 'a': (a )?{field} of (more than 2000 tokens|50,000 characters; at most)"
        ):
            agent.record_turn("user", "x", **{field: "words " * 8_333 + "xx"})
        for call in (Call("i" * 1_001, "n"), Call("i", "n" * 1_001)):
            with pytest.raises(TooLarge, match=r"agent 'a': a call's (id|name) of 1,001 characters"):
                agent.record_turn("assistant", calls=[call])

        assert list(agent.turns()) == []


def _nested(depth):
    value = "bottom"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ({"x": math.nan, "y": -math.inf}, {"x": "nan", "y": "-inf"}), ({"n": 10**30}, {"n": str(10**30)}),
        ({1: "a", None: "b", ("k",): "c"}, {"1": "a", "None": "b", "('k',)": "c"}), ({"s": {3}}, {"s": [3]}),
        ({"s": "\ud800\0"}, {"s": "\ufffd␀"}), ({"deep": _nested(150)}, {"deep": _nested(0)}),
        ("not json at all", "not json at all"), (None, None), (object, "<class 'object'>"), (7, 7), ([], []),
    ],
    ids=range(11),
)  # fmt: skip
def test_odd_arguments_of_calls_are_kept_as_well_as_json_can(client, args, kept):
    with client.resume("a") as agent:
        agent.record_turn("assistant", calls=[Call("c\0", "n\ud800", args)])
        agent.record_turn("assistant", calls=[Call("b", "raw", {"data": b"\0\1", "deep": _nested(100_000)})])
    with client.resume("a") as again:
        odd, raw = (turn.calls[0] for turn in again.turns())
        assert (odd.id, odd.name) == ("c␀", "n\ufffd")
        if args == {"deep": _nested(150)}:
            assert str(odd.args).count("[") == 99
            assert "'...'" in str(odd.args)
        else:
            assert odd.args == kept
        assert again.fetch_output(raw.args["data"].split()[0]) == b"\0\1"
        assert len(again.context.unanswered_calls) == 2


def test_after_any_error_what_was_recorded_is_still_there(client):
    with client.resume("a") as agent:
        agent.record_turn("user", "kept")
        ref = agent.store_output("kept")
        for bad in (
            lambda: agent.record_turn("nobody"), lambda: agent.fetch_output("x"), lambda: agent.pin(""),
            lambda: agent.fetch_output("out-" + "0" * 32), lambda: agent.update_working_state(plan=[1]),
            lambda: agent.store_output(5), lambda: client.resume("a"), lambda: client.resume("a", lease_ttl=1),
            lambda: client.status("b"), lambda: agent.record_turn("user", "x", at=5) and agent.fetch_output(5),
        ):  # fmt: skip
            with pytest.raises(RecallError):
                bad()

        assert [turn.content for turn in agent.turns()] == ["kept", "x"]
        assert agent.fetch_output(ref) == b"kept"
        with pytest.raises(NotFound, match="nobody"):
            client.briefing("nobody")
