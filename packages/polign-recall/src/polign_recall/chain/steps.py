"""What a protocol generator may ask of the world, one step at a time.

The chain's code never touches a store or a clock: it yields a step and is sent the answer. A driver (see
`drivers`) carries the steps out. Answers: `Create` an `Outcome`; `Get` a `Blob` or None; `GetMany` a list of those;
`List` a list of `Stat`; `Delete` the keys that were refused; `Now` the store's time in seconds; `Sleep` None.
A `StoreError` is thrown into the generator at the step that met it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Create(NamedTuple):
    """Put `data` at `key` unless something is there."""

    key: str
    data: bytes | BinaryIO


class Get(NamedTuple):
    """Read one key."""

    key: str


class GetMany(NamedTuple):
    """Read several keys, at once where the store can."""

    keys: Sequence[str]


class List(NamedTuple):
    """List the keys that begin with `prefix`, in ascending byte order."""

    prefix: str


class Delete(NamedTuple):
    """Delete keys, as far as the store lets us."""

    keys: Sequence[str]


class Now(NamedTuple):
    """Ask the store for its own time."""


class Sleep(NamedTuple):
    """Wait, in seconds."""

    seconds: float


Step: TypeAlias = Create | Get | GetMany | List | Delete | Now | Sleep
Steps: TypeAlias = Generator[Step, Any, T]
