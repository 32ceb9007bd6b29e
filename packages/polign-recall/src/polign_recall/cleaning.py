"""What an agent does to everything before it leaves the process: makes it safe to save, and takes secrets out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import UnsupportedOperation
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from .outputs import check_size
from .records import Call, OutputStored, PlanStep, Turn
from .redact import Redactor, redact, redact_field
from .text import MAX_DEPTH, clean, clean_json

FAILED = "[redacted: the redactor failed]"
"""Stands for a text that a redactor raised an error for: nothing is saved that it did not see."""
_KEPT: dict[type, frozenset[str]] = {
    Turn: frozenset({"role", "message_id", "call_id", "output_ref"}),
    Call: frozenset({"id", "args_ref"}),
    PlanStep: frozenset({"status"}),
    OutputStored: frozenset({"ref"}),
}
"""Fields of records that are ids, or one of a few words of ours; and, in all of them, `at`."""
CHUNK = 1 << 17
"""Bytes of a stream that are read at a time."""
_IN_MEMORY = 1_000_000
"""Bytes of a redacted stream that stay in memory; more of it goes through a temporary file."""
_CUTS = (b"\n", b",", b" ")
"""Behind what a stream is cut, best first: secrets seldom have these in them."""
_LONGEST_KEY = 20_000
"""Characters between which the first and the last line of a private key lie."""
_log = logging.getLogger("polign_recall")
S = TypeVar("S", bound=msgspec.Struct)


class Cleaner:
    """Cleans and redacts; with None for `redactor`, only cleans. Never changes what it is given.

    A text that the redactor raises an error for is replaced as a whole.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor

    def text(self, text: str) -> str:
        """A text, safe to save."""
        cleaned = clean(text)
        if self._redactor is None:
            return cleaned
        try:
            redacted = self._redactor(cleaned)
            return redacted if redacted is cleaned else clean(redacted)
        except Exception as error:  # noqa: BLE001 - the caller's code; its message may quote the text
            _log.warning("a redactor raised %s; the text is not recorded", type(error).__name__)
            return FAILED

    def value(self, value: Any) -> Any:
        """A value as plain JSON, safe to save: the texts in it and the keys, too."""
        cleaned = clean_json(value)
        return cleaned if self._redactor is None else self._walk(cleaned)

    def record(self, record: S) -> S:
        """A record with its texts safe to save; ids are not redacted. The same object when nothing was to be done."""
        return self._record(record, 0)

    @contextmanager
    def output(self, data: str | bytes | BinaryIO) -> Iterator[str | bytes | BinaryIO]:
        """A value to be stored whole, redacted when it is UTF-8 text; a text is expected to be cleaned already.

        A stream is looked at in parts that end with a line where they can, and not within a private key. Raises
        TooLarge for a stream of text that is too long for an output.
        """
        if self._redactor is None or isinstance(data, str):
            yield data
        elif isinstance(data, bytes | bytearray | memoryview):
            yield self._data(bytes(data))
        elif self._has_secrets(data):
            with SpooledTemporaryFile(_IN_MEMORY) as copy:
                copy.writelines(self._data(part) for part in _parts_of(data))
                yield cast(BinaryIO, copy)
        else:
            yield data

    def _data(self, data: bytes) -> bytes:
        try:
            return self._text_data(data)
        except UnicodeDecodeError:
            return data

    def _text_data(self, data: bytes) -> bytes:
        """Raises UnicodeDecodeError for what is no text."""
        text = data.decode()
        redacted = self.text(text)
        return data if redacted == clean(text) else redacted.encode()

    def _has_secrets(self, stream: BinaryIO) -> bool:
        """Whether a stream is a text with secrets in it. False for what is no stream: storing it tells."""
        found = False
        try:
            for part in _parts_of(stream):
                found = self._text_data(part) != part or found
        except (UnicodeDecodeError, AttributeError, TypeError, UnsupportedOperation):
            return False
        return found

    def _record(self, record: S, depth: int) -> S:
        kept, changes = _KEPT.get(type(record), frozenset()), {}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if not value:
                continue
            if isinstance(value, str) and (name in kept or name == "at"):
                walked: Any = clean(value)
            else:
                walked = self._walk(value, depth)
            if walked != value:
                changes[name] = walked
        return msgspec.structs.replace(record, **changes) if changes else record

    def _walk(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, msgspec.Struct):
            return self._record(value, depth)
        if depth >= MAX_DEPTH and isinstance(value, Mapping | list | tuple | set | frozenset):
            return "..."
        if isinstance(value, Mapping):
            return self._fields(value, depth + 1)
        if isinstance(value, list | tuple | set | frozenset):
            return [self._walk(item, depth + 1) for item in value]
        return value

    def _fields(self, fields: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
        walked: dict[Any, Any] = {}
        for key, item in fields.items():
            name = self._walk(key)
            while name in walked:  # two secrets as keys: both are kept
                name = f"{name}'"
            if self._redactor is redact and isinstance(key, str) and isinstance(item, str):
                walked[name] = clean(redact_field(key, item))
            else:
                walked[name] = self._walk(item, depth)
        return walked


def parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A text that comes in chunks, in parts between which it can be cut; see `Cleaner.output`.

    Raises TooLarge once it is longer than an output may be.
    """
    rest, size = b"", 0
    for chunk in chunks:
        size += len(chunk)
        check_size(size)
        rest += chunk
        cut = _cut(rest)
        yield rest[:cut]
        rest = rest[cut:]
    yield rest


def _parts_of(stream: BinaryIO) -> Iterator[bytes]:
    stream.seek(0)
    return parts(iter(lambda: stream.read(CHUNK), b""))


def _cut(data: bytes) -> int:
    """Where to end a part: behind the last line or else comma or space, before a private key that is not over yet."""
    cut = next((cut for mark in _CUTS if (cut := data.rfind(mark) + 1)), 0)
    begin = data.rfind(b"-----BEGIN ", max(0, cut - _LONGEST_KEY), cut)
    if begin > data.rfind(b"-----END ", 0, cut):
        return begin
    if cut or len(data) <= CHUNK:
        return cut
    cut = len(data) - _LONGEST_KEY
    return next((at for at in range(cut, cut - 4, -1) if data[at] & 0xC0 != 0x80), cut)  # not within a character
