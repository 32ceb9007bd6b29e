"""Entries of the chain and snapshots of its fold, as JSON that a person can read in the bucket."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, NamedTuple, TypeVar

import msgspec

from ..errors import Corrupt, FormatTooNew

FORMAT = 1
"""Version of what is written. Something with a higher number is refused by name and left untouched."""

Kind = Literal["claim", "records", "renew", "release", "erase"]


class Host(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a holder runs, for the dead-holder check of a contender on the same host."""

    boot: str = ""
    pid_ns: str = ""
    pid: int = 0
    started: int = 0


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry of the chain. `put` is the write's own id; `prev` the digest of the previous entry's bytes."""

    v: int
    seq: int
    epoch: int
    kind: Kind
    holder: str
    put: str
    prev: str
    at: str
    ttl: float | None = None
    host: Host | None = None
    records: list[msgspec.Raw] = []


class Lease(msgspec.Struct, omit_defaults=True, frozen=True):
    """What the newest claim says: who owns the chain, since when, and for how long after its last entry (seconds)."""

    holder: str = ""
    epoch: int = 0
    ttl: float = 0.0
    since: str = ""
    host: Host | None = None


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The folded state up to and including entry `seq`.

    `digest`, `kind` and `put` are of that entry; `claims` lists the claims' seqs, which folding must spare; `origin` is
    the newest `erase`, where history begins (0 without one).
    """

    v: int
    seq: int
    epoch: int
    digest: str
    kind: Kind
    put: str
    lease: Lease
    claims: list[int]
    state: msgspec.Raw
    origin: int = 0


class Link(NamedTuple):
    """An entry with the bytes it is stored as and their digest."""

    entry: Entry
    raw: bytes
    digest: str


class _Head(msgspec.Struct):
    v: int


S = TypeVar("S", Entry, Snapshot)
_encode = msgspec.json.Encoder().encode
_entry = msgspec.json.Decoder(Entry)
_snapshot = msgspec.json.Decoder(Snapshot)
_head = msgspec.json.Decoder(_Head)


def digest_of(raw: bytes) -> str:
    """Digest of stored bytes: 128 bits of BLAKE2b, in hex."""
    return blake2b(raw, digest_size=16).hexdigest()


def seal(entry: Entry) -> Link:
    """Encode an entry into the bytes it is stored as."""
    raw = _encode(entry)
    return Link(entry, raw, digest_of(raw))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Encode a snapshot into the bytes it is stored as."""
    return _encode(snapshot)


def open_entry(raw: bytes, key: str) -> Link:
    """Decode stored bytes. Raises FormatTooNew, or Corrupt naming the key."""
    return Link(_decode(_entry, raw, key), raw, digest_of(raw))


def open_snapshot(raw: bytes, key: str) -> Snapshot:
    """Decode a stored snapshot. Raises FormatTooNew, or Corrupt naming the key."""
    return _decode(_snapshot, raw, key)


def _decode(decoder: msgspec.json.Decoder[S], raw: bytes, key: str) -> S:
    try:
        if _head.decode(raw).v > FORMAT:
            raise FormatTooNew(f"{key} was written by a newer version", hint="upgrade polign-recall to read it")
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        size = f"{len(raw)} bytes" if raw else "empty"
        raise Corrupt(
            f"{key} cannot be read ({size}): {error}",
            hint="nothing was changed; restore that object from a copy",
        ) from error
