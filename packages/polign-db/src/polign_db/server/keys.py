"""API keys, in the store itself: `keys/<id>` has the hash of a key, `keys/<id>.revoked` says that it is good no more.

A key is `plgn_<id>_<secret>`. The secret is 256 random bits, so one round of SHA-256 is hash enough: there is nothing
to guess. Nothing is ever overwritten, so any number of servers may read and write keys at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Literal

import msgspec
from polign_recall import Corrupt, FormatTooNew, NotFound
from polign_recall.chain import Env, create_once, run
from polign_recall.chain.protocol import rfc3339
from polign_recall.stores import Store
from polign_recall.text import clean

from .places import prefix_of

FORMAT = 1
KEYS = "keys/"
REVOKED = ".revoked"
MAX_NOTE = 200
Access = Literal["read", "write"]
_KEY = re.compile(r"plgn_([0-9a-f]{16})_([0-9a-f]{64})")
_ID = re.compile(r"[0-9a-f]{16}")


class KeyRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A key as it lies in the store. `hash` is the SHA-256 of the secret; `collection` is empty for the default one."""

    v: int = FORMAT
    id: str
    hash: str
    access: Access
    collection: str = ""
    note: str = ""
    created: str = ""


class KeyInfo(msgspec.Struct, kw_only=True):
    """A key as it is listed: all but its hash. `revoked` is when (RFC 3339), empty while the key is good."""

    id: str
    access: Access
    collection: str
    note: str
    created: str
    revoked: str


class _Revocation(msgspec.Struct):
    v: int
    at: str


def create(store: Store, *, collection: str = "", access: Access, note: str = "") -> tuple[str, KeyInfo]:
    """Make a key; gives it whole, which is never possible again. Raises Invalid for a collection's name."""
    prefix_of(collection)
    key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    record = KeyRecord(
        id=key_id, hash=_hash(secret), access=access, collection=collection, note=clean(note)[:MAX_NOTE],
        created=rfc3339(),
    )  # fmt: skip
    run(create_once(KEYS + key_id, msgspec.json.encode(record), Env()), store)
    return f"plgn_{key_id}_{secret}", _info(record, "")


def every(store: Store) -> list[KeyInfo]:
    """All keys, the oldest first, revoked ones too."""
    ids = [name for name in store.names(KEYS) if _ID.fullmatch(name)]
    found = [_info(record, _revoked(store, record.id)) for key_id in ids if (record := _read(store, key_id))]
    return sorted(found, key=lambda info: (info.created, info.id))


def revoke(store: Store, key_id: str) -> None:
    """Make a key good no more; one that was revoked stays so. Raises NotFound."""
    if not _ID.fullmatch(key_id) or _read(store, key_id) is None:
        raise NotFound(f"there is no key {key_id!r}", hint="polign keys list shows them")
    if not _revoked(store, key_id):
        revocation = msgspec.json.encode(_Revocation(FORMAT, rfc3339()))
        run(create_once(KEYS + key_id + REVOKED, revocation, Env()), store)


def good(store: Store, key_id: str) -> KeyRecord | None:
    """The key of this id, unless there is none or it was revoked."""
    record = _read(store, key_id)
    return None if record is None or _revoked(store, key_id) else record


def parse(key: str) -> tuple[str, str] | None:
    """Id and secret of a key; None for a text that is none."""
    match = _KEY.fullmatch(key)
    return (match[1], match[2]) if match else None


def matches(record: KeyRecord | None, secret: str) -> bool:
    """Whether this is the key's secret; takes the same time whether or not, and for a key that does not exist."""
    return hmac.compare_digest(_hash(secret), record.hash if record else _hash("")) and record is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(store: Store, key_id: str) -> KeyRecord | None:
    blob = store.get(KEYS + key_id)
    if blob is None:
        return None
    try:
        record = msgspec.json.decode(blob.data, type=KeyRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{KEYS}{key_id} cannot be read: {error}") from error
    if record.v > FORMAT:
        raise FormatTooNew(f"{KEYS}{key_id} was written by a newer version", hint="upgrade polign-db")
    return record


def _revoked(store: Store, key_id: str) -> str:
    """When a key was revoked. A revocation that cannot be read is one all the same."""
    blob = store.get(KEYS + key_id + REVOKED)
    if blob is None:
        return ""
    try:
        return msgspec.json.decode(blob.data, type=_Revocation).at
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "at an unknown time"


def _info(record: KeyRecord, revoked: str) -> KeyInfo:
    return KeyInfo(
        id=record.id, access=record.access, collection=record.collection, note=record.note, created=record.created,
        revoked=revoked,
    )  # fmt: skip
