"""How a key becomes a file's path below the root of a directory store, and a file's name a segment of a key.

A segment of plain characters (printable ASCII without `^` and backslash, not beginning with a dot) is its own
file name, so what the core writes can be read in the directory under its very key. Every other character
becomes `^` and two hexadecimal digits for each of its UTF-8 bytes: reversible, and never the same name for
two keys. `^` is free for this because the core's keys are percent-encoded and contain none. No key's file
begins with a dot, which leaves such names to temporary files and to other programs.

On a file system that ignores case (macOS by default) two keys that differ only in case are one file.
"""

from __future__ import annotations

import re

from ..errors import Invalid, TooLarge
from .base import check_key

LONGEST_NAME = 255
"""Bytes in a file's name: NAME_MAX of every common Unix file system."""

_SEGMENT = rf"(?!\.)[ -.0-\[\]_-~]{{1,{LONGEST_NAME}}}"
_PLAIN_SEGMENT = re.compile(_SEGMENT)
_PLAIN_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_AWKWARD = re.compile(r"^\.|[^ -\[\]_-~]")
_ESCAPED = re.compile(rb"\^([0-9A-F]{2})")


def to_path(key: str) -> str:
    """The path of `key`'s file, relative to the root. Raises `Invalid`; `TooLarge` when a segment is."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    check_key(key)
    return "/".join(_to_name(segment, key) for segment in key.split("/"))


def to_segment(name: str) -> str | None:
    """The segment whose file or directory is called `name`, or None when no key has such a one."""
    if _PLAIN_SEGMENT.fullmatch(name):
        return name
    if "^" not in name or not name.isascii():
        return None
    try:
        segment = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode()
        check_key(segment)
    except (UnicodeDecodeError, Invalid):
        return None
    return segment if _escape(segment) == name else None


def _to_name(segment: str, key: str) -> str:
    name = _escape(segment)
    if len(name) > LONGEST_NAME:
        raise TooLarge(
            f"a segment of the key {key[:80]!r}... needs a file name of {len(name)} bytes; "
            f"a directory takes {LONGEST_NAME}"
        )
    return name


def _escape(segment: str) -> str:
    return _AWKWARD.sub(lambda found: "".join(f"^{byte:02X}" for byte in found[0].encode()), segment)
