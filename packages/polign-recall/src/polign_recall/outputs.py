"""Outputs: large values stored whole beside the chain, content-addressed, and read back in pieces."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from hashlib import blake2b
from io import UnsupportedOperation
from typing import Any, BinaryIO, NamedTuple

from .chain import Env, create_once, run
from .errors import Invalid, NotFound, TooLarge
from .stores.base import Store
from .text import MAX_DEPTH

MAX_BYTES = 100_000_000
"""Largest output, in bytes."""
_CHUNK = 1 << 20
_REF = re.compile(r"out-[0-9a-f]{32}")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,")
_BASE64_KEYS = frozenset({"data", "base64", "file_data", "bytes"})
_INLINE_BYTES = 1_000
"""Encoded parts shorter than this stay where they are: a reference would not be much shorter."""


class StoredValue(NamedTuple):
    """What `put` made: the reference, the size in bytes."""

    ref: str
    size: int


def put(store: Store, prefix: str, data: str | bytes | BinaryIO) -> StoredValue:
    """Store a value whole; the same value gives the same reference. A stream must be seekable; all of it is stored.

    Raises TooLarge above 100 MB, Invalid for what is none of these, StoreUnavailable, StoreDenied.
    """
    source, size, digest = measured(data)
    run(create_once(f"{prefix}outputs/{digest}", source, Env()), store)
    return StoredValue(f"out-{digest}", size)


def measured(data: str | bytes | BinaryIO) -> tuple[bytes | BinaryIO, int, str]:
    """What `put` stores, its size in bytes and its digest. Raises TooLarge, Invalid."""
    source = data.encode() if isinstance(data, str) else data
    if isinstance(source, bytes | bytearray | memoryview):
        source = bytes(source)
        size, digest = len(source), blake2b(source, digest_size=16).hexdigest()
    else:
        size, digest = _measure(source)
    check_size(size)
    return source, size, digest


def check_size(size: int) -> None:
    """Raise TooLarge for more bytes than an output may have."""
    if size > MAX_BYTES:
        hint = "store it in parts, or keep it elsewhere and record a pointer to it"
        raise TooLarge(f"an output of more than {MAX_BYTES:,} bytes", hint=hint)


def get(store: Store, prefix: str, ref: str, start: int = 0, length: int | None = None) -> bytes:
    """A stored value, or the part of it that begins at byte `start`. Raises Invalid, NotFound."""
    check_part(ref, start, length)
    blob = store.get(f"{prefix}outputs/{ref.removeprefix('out-')}", start, length)
    if blob is None:
        raise NotFound(f"there is no output {ref}")
    return blob.data


def check_part(ref: str, start: int, length: int | None) -> None:
    """Raise Invalid for what is no reference to an output, or no part of one."""
    if not isinstance(ref, str) or not _REF.fullmatch(ref):
        raise Invalid(f"{ref!r} is not a reference to an output", hint="it looks like out- and 32 hex digits")
    if start < 0 or (length is not None and length < 0):
        raise Invalid("start and length are byte counts, 0 or more")


def _measure(stream: BinaryIO) -> tuple[int, str]:
    digest, size = blake2b(digest_size=16), 0
    try:
        stream.seek(0)
        while size <= MAX_BYTES and (chunk := stream.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
    except (AttributeError, TypeError, UnsupportedOperation) as error:
        what = f"not {type(stream).__name__}: {error}"
        raise Invalid(f"an output is text, bytes or a binary stream that can be rewound, {what}") from error
    return size, digest.hexdigest()


def externalise(value: Any, keep: Callable[[bytes], StoredValue], key: str = "", depth: int = 0) -> Any:
    """The value with binary data and long base64 texts in it stored by `keep` and replaced by references.

    What is nested deeper than `clean_json` keeps stays as it is.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return _reference(keep(bytes(value)))
    if isinstance(value, str) and len(value) > _INLINE_BYTES:
        header = _DATA_URL.match(value)
        data = _decoded(value[header.end() :] if header else value) if header or key in _BASE64_KEYS else None
        return value if data is None else _reference(keep(data), (header and header[1]) or "")
    if depth < MAX_DEPTH and isinstance(value, dict):
        return {name: externalise(item, keep, str(name), depth + 1) for name, item in value.items()}
    if depth < MAX_DEPTH and isinstance(value, list | tuple):
        return [externalise(item, keep, key, depth + 1) for item in value]
    return value


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _reference(stored: StoredValue, media_type: str = "") -> str:
    return f"{stored.ref} ({stored.size} bytes{media_type and ', '}{media_type})"
