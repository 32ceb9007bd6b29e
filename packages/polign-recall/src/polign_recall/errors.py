"""Every error the project raises, in one tree.

    RecallError                     .code .agent_id .hint .retryable
    |
    +-- LeaseError                  who may write for an agent id
    |   +-- LeaseHeld               lease_held         another process owns it: wait, or take it over
    |   +-- LeaseLost               lease_lost         it was taken over: stop working
    |   +-- LeaseNotHeld            lease_not_held     acquire it first
    |   +-- Closed                  closed             this handle was closed: open a new one
    |
    +-- StoreError                  where the records live
    |   +-- StoreUnavailable        store_unavailable  not reachable just now: retry
    |   +-- StoreUnsupported        store_unsupported  it cannot do what the chain needs
    |   +-- StoreDenied             store_denied       a permission is missing
    |   +-- WriteUnknown            write_unknown      sent, and no answer says whether it was saved
    |
    +-- DataError                   what was given, or what was found
    |   +-- Corrupt                 corrupt            stored bytes are damaged or missing
    |   +-- FormatTooNew            format_too_new     written by a newer version
    |   +-- Invalid                 invalid            an argument that cannot be used (also a ValueError)
    |   +-- TooLarge                too_large          above a stated limit
    |   +-- NotFound                not_found          no such agent, output, ...
    |
    +-- AuthFailed                  auth_failed        the server refused the credentials

The codes are stable and shared by Python, HTTP and the command line.
"""

from __future__ import annotations

from typing import ClassVar

from .redact import redact


class RecallError(Exception):
    """Root of the tree: says what happened, to which agent, and what to do next.

    `code` is stable; `hint` says what to do; `retryable` is true when the same call may succeed later. Secrets of known
    shapes are taken out of the message, which may quote what was given, or what a store or a server said.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, agent_id: str | None = None, hint: str | None = None) -> None:
        self.message = redact(message)
        super().__init__(self.message)
        self.agent_id = agent_id
        self.hint = hint

    def __str__(self) -> str:
        agent = f"agent {self.agent_id!r}: " if self.agent_id is not None else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"[{self.code}] {agent}{self.message}{hint}"


class LeaseError(RecallError):
    """One process at a time owns an agent id; this call came from one that does not."""


class LeaseHeld(LeaseError):
    """Another process owns the agent. `since` is a time (RFC 3339), `expires_in` is in seconds."""

    code = "lease_held"

    def __init__(
        self,
        message: str,
        *,
        agent_id: str | None = None,
        hint: str | None = None,
        holder: str = "",
        since: str = "",
        expires_in: float = 0.0,
    ) -> None:
        super().__init__(message, agent_id=agent_id, hint=hint)
        self.holder = holder
        self.since = since
        self.expires_in = expires_in


class LeaseLost(LeaseError):
    """Another process took the agent over. `by` is its holder name and `epoch` its epoch, where known.

    `landed` tells what became of the write that met the loss: True (saved before the takeover), False (never
    saved) or None (there was none, or it cannot be told).
    """

    code = "lease_lost"

    def __init__(
        self,
        message: str,
        *,
        agent_id: str | None = None,
        hint: str | None = None,
        by: str = "",
        epoch: int = 0,
        landed: bool | None = None,
    ) -> None:
        super().__init__(message, agent_id=agent_id, hint=hint)
        self.by = by
        self.epoch = epoch
        self.landed = landed


class LeaseNotHeld(LeaseError):
    """The agent was opened without its lease, released it, or belongs to the parent of a forked process."""

    code = "lease_not_held"


class Closed(LeaseError):
    """The handle was closed; nothing more can be written through it."""

    code = "closed"


class StoreError(RecallError):
    """The place where the records live did not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or is out of room just now; nothing was written by this call."""

    code = "store_unavailable"
    retryable = True


class StoreUnsupported(StoreError):
    """The store, or its URL, cannot be used: it lacks put-if-absent, links, or a driver."""

    code = "store_unsupported"


class StoreDenied(StoreError):
    """A permission is missing; the message names which."""

    code = "store_denied"


class WriteUnknown(StoreError):
    """A write was sent and no answer says whether it was saved. It is being resolved; do not send it again."""

    code = "write_unknown"


class DataError(RecallError):
    """The data given to a call, or found in a store, is not usable."""


class Corrupt(DataError):
    """Stored bytes are damaged, truncated or missing. Nothing was changed or replaced."""

    code = "corrupt"


class FormatTooNew(DataError):
    """A newer version of the library wrote this. It is left untouched; upgrade to read it."""

    code = "format_too_new"


class Invalid(DataError, ValueError):
    """An argument cannot be used. Nothing was written."""

    code = "invalid"


class TooLarge(DataError):
    """A value is above a stated limit. Nothing was written."""

    code = "too_large"


class NotFound(DataError):
    """There is no such agent, output or pointer."""

    code = "not_found"


class AuthFailed(RecallError):
    """The server refused the credentials."""

    code = "auth_failed"
