"""An agent as one file of JSON lines, to move it from one store to another.

The first line says what it is and in which versions. Then follows a line for every entry that has records, word for
word and in order; then the outputs, in parts; then a line with counts and the digest of all lines before it, so that a
file that was cut or changed is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from typing import Any, BinaryIO

import msgspec
from polign_recall import Corrupt, FormatTooNew, Turn
from polign_recall.chain import FORMAT as RECORD_FORMAT
from polign_recall.records import decode

FORMAT = 1
PART = 3_000_000
"""Bytes of an output in one line; 4 MB as base64."""


class Head(msgspec.Struct, tag="agent", kw_only=True):
    """The first line. `format` is the file's own version, `records` that of what is in it."""

    format: int
    records: int
    agent_id: str
    at: str
    written_by: str


class Group(msgspec.Struct, tag="entry", kw_only=True):
    """The records of one entry, which were committed together; `seq`, `epoch` and `holder` are from where they were."""

    seq: int
    epoch: int
    holder: str
    at: str
    records: list[msgspec.Raw]


class Part(msgspec.Struct, tag="output", kw_only=True):
    """A part of an output, from its byte `start`; `last` says that there is no more."""

    ref: str
    start: int
    last: bool
    data: bytes


class End(msgspec.Struct, tag="end", kw_only=True):
    """The last line. `digest` is the BLAKE2b-128 of all lines before it."""

    entries: int = 0
    records: int = 0
    turns: int = 0
    outputs: int = 0
    digest: str = ""


Line = Head | Group | Part | End
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Line)


class Archiver:
    """Writes such a file."""

    def __init__(self, target: BinaryIO) -> None:
        self.end = End()
        self._target = target
        self._digest = blake2b(digest_size=16)

    def head(self, agent_id: str, at: str, written_by: str) -> None:
        """Write the first line."""
        self._write(Head(format=FORMAT, records=RECORD_FORMAT, agent_id=agent_id, at=at, written_by=written_by))

    def add(self, line: Group | Part) -> None:
        """Write one line more, and count what is in it."""
        _count(self.end, line)
        self._write(line)

    def finish(self) -> End:
        """Write the last line; gives it."""
        self.end.digest = self._digest.hexdigest()
        self._write(self.end)
        return self.end

    def _write(self, line: Line) -> None:
        raw = msgspec.json.encode(line) + b"\n"
        self._digest.update(raw)
        self._target.write(raw)


def lines(source: BinaryIO) -> Iterator[Line]:
    """The lines of a file, from its beginning. Raises Corrupt."""
    source.seek(0)
    for number, raw in enumerate(source, 1):
        yield _open(raw, number)


def check(source: BinaryIO) -> tuple[Head, End]:
    """Read a file through and check that it is whole and can be brought in. Raises Corrupt, FormatTooNew."""
    source.seek(0)
    checker, raw = _Checker(), source.readline()
    head = _check_head(raw)
    for number in count(2):
        checker.digest.update(raw)
        raw = source.readline()
        line = _open(raw, number)
        if isinstance(line, End):
            checker.check_end(line)
            if source.readline():
                raise _broken("there is something behind the last line")
            return head, line
        checker.check(line, number)
    raise AssertionError("unreachable")


class _Checker:
    """What must hold from line to line."""

    def __init__(self) -> None:
        self.digest = blake2b(digest_size=16)
        self._counts = End()
        self._seq = 0
        self._open: str | None = None
        self._size = 0
        self._output = blake2b(digest_size=16)

    def check(self, line: Line, number: int) -> None:
        """One line between the first and the last."""
        if isinstance(line, Group):
            self._check_group(line, number)
        elif isinstance(line, Part):
            self._check_part(line, number)
        else:
            raise _broken(f"line {number} does not belong there")
        _count(self._counts, line)

    def check_end(self, end: End) -> None:
        """The last line."""
        self._counts.digest = self.digest.hexdigest()
        if self._open is not None or self._counts != end:
            raise _broken("its digest is another one, or something is missing")

    def _check_group(self, group: Group, number: int) -> None:
        if group.seq <= self._seq:
            raise _broken(f"line {number} is out of order")
        self._seq = group.seq
        turns = self._counts.turns
        for record in map(decode, group.records):
            if isinstance(record, Turn):
                turns += 1
                if record.seq != turns:
                    raise _broken(f"line {number} has turn {record.seq} where turn {turns} should be")

    def _check_part(self, part: Part, number: int) -> None:
        if self._open is None:
            self._output, self._size = blake2b(digest_size=16), 0
        elif part.ref != self._open:
            raise _broken(f"line {number}: the output before it is not whole")
        self._output.update(part.data)
        if part.start != self._size:
            raise _broken(f"line {number} is out of order")
        self._size += len(part.data)
        self._open = None if part.last else part.ref
        if part.last and f"out-{self._output.hexdigest()}" != part.ref:
            raise _broken(f"line {number}: {part.ref} has other bytes than were stored")


def _count(end: End, line: Line) -> None:
    if isinstance(line, Group):
        end.entries += 1
        end.records += len(line.records)
        end.turns += sum(isinstance(decode(raw), Turn) for raw in line.records)
    elif isinstance(line, Part):
        end.outputs += line.last


def _check_head(raw: bytes) -> Head:
    try:
        told = msgspec.json.decode(raw, type=dict[str, Any])
        if told.get("type") == "agent" and max(told["format"] - FORMAT, told["records"] - RECORD_FORMAT) > 0:
            raise FormatTooNew("the file was written by a newer version", hint="upgrade polign-db to read it")
        return msgspec.convert(told, Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise Corrupt("this is not an agent that polign export wrote") from error


def _open(raw: bytes, number: int) -> Line:
    if not raw.endswith(b"\n"):
        raise _broken("its end is missing")
    try:
        line: Line = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(f"line {number} cannot be read: {error}") from error
    return line


def _broken(why: str) -> Corrupt:
    return Corrupt(f"the file is damaged: {why}", hint="nothing was changed; export the agent again")
