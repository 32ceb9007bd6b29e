"""What a store is: flat keys, bytes as values, and five operations that never change what was written.

Everything the project writes is created once and never overwritten, so a store needs put-if-absent and
nothing stronger: no compare-and-swap, no rename. `polign_recall.testing.conformance` checks a store against
this contract.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from enum import Enum
from typing import BinaryIO, Protocol
from uuid import uuid4

import msgspec

from ..errors import Invalid, StoreUnavailable, StoreUnsupported


class Outcome(Enum):
    """What became of a `create`."""

    CREATED = "created"
    """This call wrote the value, and it is durable."""
    EXISTS = "exists"
    """The key had a value before this call wrote anything; that value is durable and unchanged."""
    UNKNOWN = "unknown"
    """Written, still to be written, or never: nobody knows. Sending the same bytes again settles it."""


class Stat(msgspec.Struct, frozen=True):
    """One key of a listing.

    `version` is an opaque tag: the same as long as the value is, and another one after the key was deleted
    and created again with other bytes. `modified` is when the value was written, in seconds since the epoch,
    by the store's own clock (the one `Store.now` reads).
    """

    key: str
    version: str
    modified: float


class Blob(msgspec.Struct, frozen=True):
    """A value or a part of one. `version` and `modified` are the whole value's, as in `Stat`."""

    data: bytes
    version: str
    modified: float


class Store(Protocol):
    """Where records live. All methods may be called from several threads at once.

    A key is text of one or more segments joined by `/`; no segment is empty, `.` or `..`, and there is no
    NUL. A key is never also the folder of another key: with `a/b` there is no `a/b/c`. What breaks these
    rules is `Invalid`, before anything is written. A key too long for the store is `TooLarge`.

    Errors: `StoreUnavailable` (cannot be reached or is full just now; the same call may succeed later),
    `StoreDenied` (a permission is missing), `StoreUnsupported` (it cannot do what the contract asks).
    """

    @property
    def url(self) -> str:
        """What `open_store` takes to open the same place again; carries no credentials."""
        ...

    @property
    def parallel(self) -> int:
        """How many `get` calls may usefully run at once; 1 when there is nothing to gain."""
        ...

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """Write `data` under `key` unless the key has a value; never overwrite.

        A binary file object is read from where it stands to its end and copied in pieces; whoever sends it
        again puts it back first. The value becomes visible whole or not at all.

        An error is raised only when it is certain that this call wrote nothing and will write nothing: a
        permission is missing, the disk was full before the value became visible, the connection was refused
        before anything was sent. When the outcome is not known (a timeout, a reset, a sync that failed after
        the value became visible), the answer is `Outcome.UNKNOWN`; an interrupt that ends the call
        (`KeyboardInterrupt`) means the same. `EXISTS` may also mean an earlier attempt of the caller itself:
        read the key to tell.
        """
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """The value of `key`, or None when it has none.

        `start` and `length` (bytes) select a part. A part that reaches past the end is cut there; one that
        begins past it is empty. Negative ones are `Invalid`.
        """
        ...

    def list(self, prefix: str) -> builtins.list[Stat]:
        """Every key that begins with `prefix`, in ascending order of the UTF-8 bytes. `""` asks for all keys.

        Everything created before the call began is in it. A key deleted while the call runs may be missing,
        but then whatever was created before that deletion is in it, unless it was deleted itself.
        """
        ...

    def names(self, prefix: str) -> builtins.list[str]:
        """The distinct segments that follow `prefix` in the keys, ascending. `prefix` is `""` or ends in `/`.

        With keys `a/x/1`, `a/x/2` and `a/y`, `names("a/")` is `["x", "y"]`. A folder without keys has no
        name, though some stores show it for a while after its last key was deleted.
        """
        ...

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """Delete the keys and return those whose deletion was refused. A key without a value is no refusal.

        Best effort: a refusal never raises. Only a store that cannot be reached at all does
        (`StoreUnavailable`), and then any of the keys may be gone.
        """
        ...

    def now(self) -> float:
        """The store's own clock, which stamps `modified`, in seconds since the epoch. May need to write."""
        ...

    def close(self) -> None:
        """Let go of connections and open files. A second call does nothing; no other method may follow."""
        ...


def check_key(key: str) -> None:
    """Raise `Invalid` unless `key` is one that every store takes (see `Store`)."""
    if not key:
        raise Invalid("a key is a text of at least one character")
    if "\0" in key:
        raise Invalid(f"the key {key!r} contains a NUL character")
    if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
        raise Invalid(f"the key {key!r} contains half a character (a lone surrogate)")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            raise Invalid(f"the key {key!r} has a segment that is empty, '.' or '..'")


def check_prefix(prefix: str) -> None:
    """Raise `Invalid` unless some key can begin with `prefix`. `""` is fine."""
    if prefix != "":
        check_key(f"{prefix}x")


def check_folder(prefix: str) -> None:
    """Raise `Invalid` unless `prefix` is what `Store.names` takes: `""`, or a prefix that ends in `/`."""
    check_prefix(prefix)
    if prefix and not prefix.endswith("/"):
        raise Invalid(f"the prefix {prefix!r} must be empty or end in '/'")


def check_range(start: int, length: int | None) -> None:
    """Raise `Invalid` when a part of a value is asked for with a negative start or length."""
    if start < 0 or (length is not None and length < 0):
        raise Invalid(f"a part of a value has no negative start or length ({start}, {length})")


def whole(data: bytes | BinaryIO) -> bytes:
    """The value to write, for a store that writes it in one go. A file object is read to its end."""
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else data.read()


def probe(store: Store) -> None:
    """Check that `store` honours put-if-absent: a random key is created twice, and the second must be EXISTS.

    A store that overwrites loses acknowledged records, so it is refused with `StoreUnsupported`. Needs the
    right to create; the probe's key is deleted again where that is allowed.
    """
    key = f"probe/{uuid4().hex}"
    try:
        answers = [store.create(key, b"first"), store.create(key, b"second")]
    finally:
        store.delete([key])
    if Outcome.UNKNOWN in answers:
        raise StoreUnavailable(f"{store.url} gave no clear answer when it was probed", hint="try again")
    # The first may be EXISTS too, when the network delivered it twice; what counts is that the second wrote nothing.
    if answers[1] is not Outcome.EXISTS:
        raise StoreUnsupported(
            f"{store.url} does not honour put-if-absent: the second create of one key did not fail",
            hint="such a store would lose records; use another one, or another endpoint of it",
        )
