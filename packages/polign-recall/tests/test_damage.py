"""Objects that were damaged or deleted by hand: each is named, nothing is changed, and put right all is there again."""

import re

import pytest
from polign_recall import Client, Corrupt

DAMAGES = {
    "deleted": lambda data: None,
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "garbage": lambda data: b"\x00\xff garbage",
    "another shape": lambda data: b"[1, 2]",
    "no version": lambda data: b"{}",
    "version of another kind": lambda data: data.replace(b'"v":1', b'"v":"one"'),
    "not utf-8": lambda data: data.replace(b'"holder":"', b'"holder":"\xff'),
    "endless nesting": lambda data: data[:-1] + b',"more":' + b"[" * 99_999 + b"]" * 99_999 + b"}",
    "a flipped bit": lambda data: data.replace(b"turn 1", b"turn 3").replace(b'"turns":[{', b'"turns":[{"x'),
}


def _agent_with(tmp_path, snapshot):
    """An agent with some turns in its chain, folded or not; gives where its log is."""
    with Client(local_dir=tmp_path).resume("a") as agent:
        for number in range(70 if snapshot else 5):
            agent.record_turn("user", f"turn {number}")
    log = tmp_path / "agents" / "a" / "log"
    assert snapshot == bool(list(log.glob("*.snap")))
    return log


# The first entry and the newest have no records whose bits could be flipped; without its newest entry a chain is
# simply shorter.
NO_DAMAGE = {("first entry", "a flipped bit"), ("newest entry", "a flipped bit"), ("newest entry", "deleted")}
CASES = {(kind, damage) for kind in ("first entry", "entry", "newest entry", "snapshot") for damage in DAMAGES}


@pytest.mark.parametrize(("kind", "damage"), sorted(CASES - NO_DAMAGE))
def test_a_damaged_object_is_named_and_everything_else_stays(tmp_path, no_pauses, kind, damage):
    log = _agent_with(tmp_path, kind == "snapshot")
    entries = sorted(log.glob("*[0-9]"))
    victim = {"first entry": entries[0], "entry": entries[2], "newest entry": entries[-1]}.get(kind)
    victim = victim or next(log.glob("*.snap"))
    whole = victim.read_bytes()
    damaged = DAMAGES[damage](whole)
    assert damaged != whole
    victim.unlink()
    if damaged is not None:
        victim.write_bytes(damaged)
    before = {path: path.read_bytes() for path in log.iterdir()}
    client = Client(local_dir=tmp_path)

    for use in (client.resume, client.status, client.briefing, client.delete_agent):
        with pytest.raises(Corrupt, match=r"restore that object|restored by hand") as caught:
            use("a")
        text, seq = str(caught.value), int(victim.name[:20])
        assert victim.name in text or re.search(rf"entry ({seq}|{seq + 1}|2) (is missing|does not follow)", text)
        assert "agent 'a'" in text or "agents/a/log/" in text
        assert "nothing was changed" in text

    assert {path: path.read_bytes() for path in log.iterdir()} == before
    assert client.agents()[0].problem
    victim.write_bytes(whole)
    with client.resume("a") as agent:
        turns = [turn.content for turn in agent.turns()]
        assert turns == [f"turn {number}" for number in range(len(turns))]
        assert len(turns) in (5, 70)


def test_a_damaged_history_is_named_and_the_agent_works_on(tmp_path):
    _agent_with(tmp_path, snapshot=True)
    (history,) = (tmp_path / "agents" / "a" / "history").iterdir()
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join([*lines[:5], lines[5][:20] + b"\n", *lines[6:]]))

    with Client(local_dir=tmp_path).resume("a") as agent:
        turns = agent.turns()
        with pytest.raises(Corrupt, match=f"agents/a/history/{history.name} cannot be read"):
            list(turns)

        assert agent.record_turn("user", "next") == 71
        assert agent.context.recent_turns[-1].content == "turn 69"


def test_a_history_that_is_gone_while_it_is_read_is_named(tmp_path):
    _agent_with(tmp_path, snapshot=True)

    with Client(local_dir=tmp_path).resume("a") as agent:
        turns = agent.turns(after=66)
        store = agent._backend.store
        listed = store.list
        store.list = lambda prefix: [*listed(prefix), *_unlinked(tmp_path, prefix)]
        with pytest.raises(Corrupt, match=r"agent 'a'|agents/a/history/"):
            list(turns)


def _unlinked(tmp_path, prefix):
    """Takes the history away, once it was listed."""
    if "history" in prefix:
        for path in (tmp_path / "agents" / "a" / "history").iterdir():
            path.unlink()
    return []


def test_objects_of_others_in_the_log_are_passed_over(tmp_path):
    log = _agent_with(tmp_path, snapshot=False)
    for name in ("README", "1", "00000000000000000001.bak", "0000000000000000000x", ".snap"):
        (log / name).write_bytes(b"not ours")

    with Client(local_dir=tmp_path).resume("a") as agent:
        assert len(list(agent.turns())) == 5
