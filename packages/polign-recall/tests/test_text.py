"""Text and JSON values made safe to save: nothing raises, nothing is lost without a trace."""

import base64
import enum
import json
import math
from collections import UserDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polign_recall.outputs import StoredValue, externalise
from polign_recall.text import MAX_DEPTH, clean, clean_json, shorten

any_text = st.text(st.characters())  # lone surrogates included


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    """A text that msgspec refuses."""


class Number(int):
    """A number that msgspec refuses."""


class Real(float):
    """A number that msgspec refuses."""


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain", "plain"), ("a\0b", "a␀b"), ("\ud800", "\ufffd"), ("x\udfffy", "x\ufffdy"),
        ("\ud83d\ude00", "😀"), ("\ufeffx", "\ufeffx"), ("\x1b[31m", "\x1b[31m"), ("é\0\udc00", "é␀\ufffd"),
    ],
)  # fmt: skip
def test_text_that_no_store_takes_is_replaced_visibly(given_text, shown):
    assert clean(given_text) == shown


@given(any_text)
def test_clean_text_can_be_saved_and_is_clean_already(text):
    cleaned = clean(text)

    assert cleaned.encode().decode() == clean(cleaned) == cleaned
    assert "\0" not in cleaned
    if "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text):
        assert cleaned == text


def test_a_subclass_of_text_becomes_plain_text():
    assert type(clean(Word("w"))) is str


ODD = [
    (math.nan, "nan"), (-math.inf, "-inf"), (2**63, str(2**63)), (-(2**70), str(-(2**70))), (10**5000, hex(10**5000)),
    (b"\x00\xff", "b'\\x00\\xff'"), ((1, 2), [1, 2]), (Colour.RED, "Colour.RED"), (2 + 3j, "(2+3j)"),
    ({"s": {7}}, {"s": [7]}), ({1: "a", "1": "b", None: "c"}, {"1": "a", "1'": "b", "None": "c"}),
    ({("a", 1): 2}, {"('a', 1)": 2}), ({"k\0": "v\ud800"}, {"k␀": "v\ufffd"}), (UserDict(a=1), {"a": 1}),
    ([Word("w"), Number(3), Real(1.5), Real("nan"), True, None], ["w", 3, 1.5, "nan", True, None]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "plain"), ODD, ids=lambda value: str(type(value).__name__))
def test_what_json_cannot_hold_becomes_what_it_can(value, plain):
    cleaned = clean_json(value)

    assert cleaned == plain
    assert msgspec.json.decode(msgspec.json.encode(cleaned)) == plain


def test_deep_and_endless_values_end():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    endless: dict = {"k": 1}
    endless["self"] = endless

    for value in (deep, endless):
        encoded = msgspec.json.encode(clean_json(externalise(value, _never)))
        assert encoded.count(b"...") == 1
        assert len(encoded) < 20 * MAX_DEPTH
    msgspec.json.decode(encoded)


@given(st.recursive(st.none() | st.floats() | st.integers() | any_text | st.binary(), lambda inner: st.lists(inner)))
def test_any_value_becomes_json(value):
    cleaned = clean_json(value)

    assert msgspec.json.decode(msgspec.json.encode(cleaned)) == cleaned
    assert clean_json(cleaned) == cleaned


def test_shortened_values_say_how_much_is_gone():
    value = {"text": "x" * 15, "list": list(range(5)), "short": "y", **{f"k{n}": n for n in range(3)}}

    assert shorten(value, 10, 4) == {
        "text": "x" * 10 + "... (5 more characters)",
        "list": [0, 1, 2, 3, "... 1 more"],
        "short": "y",
        "k0": 0,
        "...": "2 more",
    }
    assert shorten(value, 100, 100) == value
    assert list(shorten({"k" * 20: 1}, 10, 4)) == ["k" * 10 + "... (10 more characters)"]


def _never(data: bytes) -> StoredValue:
    raise AssertionError("nothing here is binary")


def test_binary_parts_are_stored_and_replaced_by_references():
    kept: list[bytes] = []

    def keep(data: bytes) -> StoredValue:
        kept.append(data)
        return StoredValue(f"out-{len(kept)}", len(data))

    image = bytes(range(256)) * 10
    encoded = base64.b64encode(image).decode()
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
        {"type": "file", "file": {"file_data": encoded, "filename": "a.bin"}},
        {"type": "raw", "raw": image, "view": memoryview(image)},
        {"type": "audio", "source": [bytearray(b"ab"), ("x", b"c")]},
    ]

    replaced = json.dumps(externalise(parts, keep))

    assert kept == [image, image, image, image, b"ab", b"c"]
    assert '"url": "out-1 (2560 bytes, image/png)"' in replaced
    assert '"file_data": "out-2 (2560 bytes)", "filename": "a.bin"' in replaced
    assert encoded not in replaced


@pytest.mark.parametrize(
    "value",
    [
        "data:image/png;base64,not really base64!" + "x" * 1_000,  # cannot be decoded
        "data:image/png;base64," + "QUJD" * 10,  # too short to be worth a reference
        "QUJD" * 1_000,  # nothing says that it is base64
        {"text": "QUJD" * 1_000},
        {"data": "a long text that is no base64 " * 100},
    ],
    ids=range(5),
)
def test_text_stays_text(value):
    assert externalise(value, _never) == value
