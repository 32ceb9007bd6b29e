"""How a key becomes an object's name in a bucket, and a name a key again.

Printable ASCII stays as it is, so what the core writes is found in the bucket under its very key. What some provider
changes or drops (a backslash, control characters, a dot or a blank at the end of a segment, a blank at its beginning)
and all that is not ASCII becomes `^` and two hexadecimal digits for each UTF-8 byte: reversible, and never the same
name for two keys. `^` is free for this because the core's keys are percent-encoded and contain none.
"""

from __future__ import annotations

import re

from ..errors import Invalid, TooLarge
from .base import check_key

LONGEST_NAME = 1024
"""Bytes in an object's name, prefix included: the limit of S3, GCS and Azure alike."""

_AWKWARD = re.compile(r"[^ -\[\]_-~]|(?:^|(?<=/)) | (?=/|$)|\.(?=/|$)")
_ESCAPED = re.compile(rb"\^([0-9A-F]{2})")


def to_name(key: str) -> str:
    """The name of `key`, without the store's prefix. Raises `Invalid`."""
    check_key(key)
    return escape(key)


def to_key(name: str) -> str | None:
    """The key whose name is `name`, or None when no key has it: somebody else's object."""
    if not name.isascii():
        return None
    try:
        key = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode()
        check_key(key)
    except (UnicodeDecodeError, Invalid):
        return None
    return key if escape(key) == name else None


def check_length(name: str) -> str:
    """The name, unless it is too long for a bucket: `TooLarge`."""
    length = len(name.encode())
    if length > LONGEST_NAME:
        raise TooLarge(f"the name {name[:80]!r}... has {length} bytes; a bucket takes {LONGEST_NAME}")
    return name


def escape(text: str) -> str:
    """A key, or a part of one that ends with `/`, as in a bucket."""
    return _AWKWARD.sub(lambda found: "".join(f"^{byte:02X}" for byte in found[0].encode()), text)
