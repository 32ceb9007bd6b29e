"""Large values are stored whole beside the chain, and turns keep their head, their size and a reference."""

import base64
import io
import json
import random
import tracemalloc

import pytest
from polign_recall import (
    Call,
    Client,
    Invalid,
    LeaseLost,
    LeaseNotHeld,
    NotFound,
    TooLarge,
    counter_for,
    outputs,
)

MB = 1_000_000
BINARY = random.Random(1).randbytes(50_000)


@pytest.fixture
def agent(client):
    with client.resume("a") as agent:
        yield agent


def stored(store):
    return [stat.key for stat in store.list("agents/a/outputs/")]


@pytest.mark.parametrize(
    ("data", "whole"),
    [("tëxt\0", "tëxt␀".encode()), (b"\0\xff", b"\0\xff"), (bytearray(b"ab"), b"ab"), (memoryview(b"ab"), b"ab"),
     (io.BytesIO(BINARY), BINARY), ("", b"")],
    ids=["text", "bytes", "bytearray", "view", "stream", "empty"],
)  # fmt: skip
def test_a_value_comes_back_whole_and_in_parts(client, agent, data, whole):
    ref = agent.store_output(data, name="n")

    assert agent.fetch_output(ref) == whole
    assert agent.fetch_output(ref, start=1) == whole[1:]
    assert agent.fetch_output(ref, start=1, length=1) == whole[1:2]
    assert agent.fetch_output(ref, length=0) == agent.fetch_output(ref, start=10**9) == b""
    with client.resume("a", defer_lease=True) as reader:
        assert reader.fetch_output(ref) == whole
        assert [(o.ref, o.size, o.name) for o in reader.context.outputs] == [(ref, len(whole), "n")]


def test_the_same_value_is_stored_once(store, agent):
    refs = {agent.store_output(data) for data in ("same", b"same", io.BytesIO(b"same"))}

    assert len(refs) == len(stored(store)) == 1
    assert agent.refresh().omitted == []


def test_what_is_known_of_an_output_is_recorded(agent):
    agent.store_output("line\n" * 100, media_type="text/csv")
    agent.store_output(b"\0", name="raw")

    first, second = agent.refresh().outputs
    assert (first.media_type, first.preview, first.size) == ("text/csv", "line\n" * 40, 500)
    assert (second.media_type, second.preview, second.name) == ("application/octet-stream", "", "raw")


def test_a_stream_is_stored_from_its_start_and_never_held_in_memory(tmp_path):
    file = tmp_path / "big"
    with file.open("wb") as out:
        for number in range(30):
            out.write(bytes([number]) * MB)
    with Client(local_dir=tmp_path / "store") as client, client.resume("a") as agent, file.open("rb") as stream:
        stream.seek(5 * MB)
        tracemalloc.start()
        try:
            ref = agent.store_output(stream)
            part = agent.fetch_output(ref, start=29 * MB - 2, length=4)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert part == b"\x1c\x1c\x1d\x1d"
        assert agent.refresh().outputs[0].size == 30 * MB
        assert peak < 8 * MB


class Zeros(io.RawIOBase):
    """A stream of so many zeros that counts what is read of it."""

    def __init__(self, size):
        self.size, self.at, self.total = size, 0, 0

    def seek(self, at, whence=0):
        self.at = at
        return at

    def read(self, size=-1):
        part = bytes(min(size, self.size - self.at) if size >= 0 else self.size - self.at)
        self.at += len(part)
        self.total += len(part)
        return part


def test_above_the_limit_nothing_is_stored_nor_read_to_its_end(store, agent):
    stream = Zeros(10**12)
    for data in (stream, bytes(outputs.MAX_BYTES + 1)):
        with pytest.raises(TooLarge, match=r"agent 'a': an output of more than 100,000,000 bytes .*pointer"):
            agent.store_output(data)

    assert stream.total < outputs.MAX_BYTES + 2 * MB
    assert stored(store) == []
    assert agent.refresh().fresh


class Pipe(io.RawIOBase):
    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation("a pipe cannot be rewound")

    def read(self, size=-1):
        return b""


@pytest.mark.parametrize(
    "data", [io.StringIO("text"), Pipe(), 7, None, ["x"], object()], ids=lambda d: type(d).__name__
)
def test_what_cannot_be_an_output_is_named(store, agent, data):
    with pytest.raises(Invalid, match="agent 'a': an output is text, bytes or a binary stream that can be rewound"):
        agent.store_output(data)

    assert stored(store) == []


@pytest.mark.parametrize("ref", ["", "out-1", "out-" + "0" * 31 + "g", "../../x", "out-" + "0" * 33, None, 5])
def test_what_is_no_reference_is_named(agent, ref):
    with pytest.raises(Invalid, match=r"is not a reference to an output \(it looks like out-"):
        agent.fetch_output(ref)


def test_an_output_that_is_not_there_is_named(agent):
    with pytest.raises(NotFound, match="agent 'a': there is no output out-00"):
        agent.fetch_output("out-" + "0" * 32)


@pytest.mark.parametrize("part", [{"start": -1}, {"length": -1}])
def test_a_part_that_cannot_be_is_named(agent, part):
    with pytest.raises(Invalid, match="start and length are byte counts"):
        agent.fetch_output(agent.store_output("x"), **part)


# ---- large turns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["log line 17: ok\n", "日本語", "\U0001f469\u200d\U0001f4bb", "x", " "])
def test_a_turn_of_megabytes_keeps_its_head_and_a_reference(store, agent, unit):
    whole = unit * (5 * MB // len(unit.encode()))

    agent.record_turn("tool", whole, name="run", call_id="c")

    turn = agent.recent_turns()[0]
    assert whole.startswith(turn.content)
    assert len(turn.content) >= 150
    assert counter_for().count(turn.content) <= 250
    assert turn.size == len(whole.encode())
    assert agent.fetch_output(turn.output_ref).decode() == whole
    assert [output.ref for output in agent.refresh().outputs] == [turn.output_ref]
    assert f"[whole: {turn.output_ref}, {turn.size} bytes]" in agent.context.briefing
    entry = store.get("agents/a/log/00000000000000000002")
    assert len(entry.data) < 10_000


def test_a_turn_at_the_threshold_stays_where_it_is(client):
    with client.resume("a", output_threshold=100) as agent:
        agent.record_turn("user", " word" * 100)
        agent.record_turn("user", " word" * 101)

        inline, outside = agent.recent_turns()
        assert (inline.content, inline.output_ref) == (" word" * 100, None)
        assert (outside.content, outside.size) == (" word" * 12, 505)


def test_long_content_parts_are_stored_whole_as_json(agent):
    parts = [{"type": "text", "text": "word " * 5_000}, {"type": "text", "text": "end"}]

    agent.record_turn("user", parts)

    turn = agent.recent_turns()[0]
    assert ("word " * 5_000).startswith(turn.content)
    assert json.loads(agent.fetch_output(turn.output_ref)) == parts


def test_binary_parts_of_a_turn_become_outputs(agent):
    encoded = base64.b64encode(BINARY).decode()
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
        {"type": "media", "data": encoded, "mime": "audio/wav"}, {"type": "raw", "value": BINARY},
    ]  # fmt: skip

    agent.record_turn("user", parts)

    turn = agent.recent_turns()[0]
    ref = turn.content[3]["value"].split()[0]
    assert agent.fetch_output(ref) == BINARY
    assert turn.content[1]["image_url"]["url"] == f"{ref} (50000 bytes, image/png)"
    assert turn.content[2] == {"type": "media", "data": f"{ref} (50000 bytes)", "mime": "audio/wav"}
    assert parts[3]["value"] == BINARY  # what the caller has is left alone
    assert f"look\n    [image_url {ref}]\n    [media {ref}]\n    [raw {ref}]\n" in agent.refresh().briefing


def test_long_arguments_of_calls_become_outputs(agent):
    args = {"path": "a.py", "content": "line\n" * 10_000, "rows": list(range(1_000)), "raw": BINARY}
    call = Call("c", "write", args)

    agent.record_turn("assistant", calls=[call, Call("d", "small", {"n": 1}), Call("e", "broken", '{"path": "a.p')])

    long, small, broken = agent.recent_turns()[0].calls
    assert (small.args, small.args_ref, broken.args, broken.args_ref) == ({"n": 1}, None, '{"path": "a.p', None)
    assert long.args["path"] == "a.py"
    assert long.args["content"].endswith("(49750 more characters)")
    assert long.args["rows"][-1] == "... 950 more"
    whole = json.loads(agent.fetch_output(long.args_ref))
    assert (whole["content"], whole["rows"]) == (args["content"], args["rows"])
    assert agent.fetch_output(whole["raw"].split()[0]) == BINARY
    assert call.args is args


@pytest.mark.parametrize(
    "args",
    ["no json " * 5_000, [[[str(n) * 40 for n in range(50)] for _ in range(50)] for _ in range(20)],
     {f"key {n} " * 50: n for n in range(2_000)}],
    ids=["text", "nested", "keys"],
)  # fmt: skip
def test_arguments_stay_short_whatever_their_shape(client, agent, args):
    agent.record_turn("assistant", calls=[Call("c", "write", args)])

    call = agent.recent_turns()[0].calls[0]
    assert len(json.dumps(call.args)) < 20_000
    whole = agent.fetch_output(call.args_ref).decode()
    assert (whole if isinstance(args, str) else json.loads(whole)) == args


def test_only_the_holder_stores_outputs(client, store, agent):
    with client.resume("a", defer_lease=True) as reader:
        with pytest.raises(LeaseNotHeld):
            reader.store_output("x")
        with pytest.raises(LeaseNotHeld):
            reader.prepare_turn("user", "x" * 100_000)
        assert reader.prepare_turn("user", "short").content == "short"
    client.resume("a", takeover=True).close()
    with pytest.raises(LeaseLost):
        agent.milestone("notices it")
    with pytest.raises(LeaseLost):
        agent.store_output("x")
    with pytest.raises(LeaseLost):
        agent.record_turn("user", "x" * 100_000)

    assert stored(store) == []
