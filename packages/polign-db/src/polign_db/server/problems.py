"""Errors as problem documents (RFC 9457): the project's own code, and a status by the class of the error."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from polign_recall import (
    AuthFailed,
    FormatTooNew,
    Invalid,
    LeaseError,
    LeaseHeld,
    NotFound,
    RecallError,
    StoreDenied,
    StoreUnavailable,
    StoreUnsupported,
    TooLarge,
    WriteUnknown,
)
from polign_recall.chain import Host
from starlette.responses import Response

from .shapes import Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1
"""Seconds: the core backs off for about so long before its last try of one step."""

STATUS: tuple[tuple[type[RecallError], int], ...] = (
    (LeaseError, 409),
    (AuthFailed, 401),
    (StoreDenied, 403),
    (NotFound, 404),
    (TooLarge, 413),
    (Invalid, 422),
    (StoreUnavailable, 503),
    (WriteUnknown, 503),
    (FormatTooNew, 501),
    (StoreUnsupported, 501),
    (RecallError, 500),  # Corrupt: the store needs somebody to look at it
)
_TELLING = ("holder", "since", "expires_in", "epoch", "host", "by", "landed")
"""Attributes of an error that a client needs to act on it."""


class Forbidden(AuthFailed):
    """The key is good, but not for this."""

    status: ClassVar[int] = 403


class Malformed(Invalid):
    """The request is not what HTTP or JSON ask for."""

    status: ClassVar[int] = 400


class WrongMethod(Invalid):
    """The path has no such method; `allow` names those that it has."""

    status: ClassVar[int] = 405

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class TooSlow(Invalid):
    """The body did not arrive in time."""

    status: ClassVar[int] = 408


class OutOfStep(Invalid):
    """The write does not fit the chain as it is: a gap, a fork, or a put id that stands for another write."""

    status: ClassVar[int] = 409


class RangeUnusable(Invalid):
    """The range begins past the end of the value, which has `size` bytes."""

    status: ClassVar[int] = 416

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class WrongType(Invalid):
    """The body is of a media type that is not taken here."""

    status: ClassVar[int] = 415


class Busy(StoreUnavailable):
    """The server has as many requests under way as it takes. Nothing was written."""


class HeldElsewhere(LeaseHeld):
    """LeaseHeld, with what a client on the holder's own host needs to see whether it is dead."""

    def __init__(self, held: LeaseHeld, epoch: int, host: Host | None) -> None:
        super().__init__(
            held.message, agent_id=held.agent_id, hint=held.hint, holder=held.holder, since=held.since,
            expires_in=held.expires_in,
        )  # fmt: skip
        self.epoch = epoch
        self.host = host


def status_of(error: RecallError) -> int:
    """The HTTP status of an error."""
    own: int | None = getattr(error, "status", None)
    return own or next(status for cls, status in STATUS if isinstance(error, cls))


def problem_of(error: RecallError) -> Problem:
    """The problem document of an error."""
    status = status_of(error)
    told: dict[str, Any] = {name: getattr(error, name) for name in _TELLING if hasattr(error, name)}
    return Problem(
        type=f"urn:polign:problem:{error.code}", title=HTTPStatus(status).phrase, status=status, detail=error.message,
        code=error.code, retryable=error.retryable or isinstance(error, WriteUnknown),
        agent_id=msgspec.UNSET if error.agent_id is None else error.agent_id, hint=error.hint or msgspec.UNSET, **told,
    )  # fmt: skip


def response_of(error: RecallError) -> Response:
    """The response that tells an error."""
    problem = problem_of(error)
    headers = {}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER)
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="polign"'
    if isinstance(error, WrongMethod):
        headers["Allow"] = error.allow
    if isinstance(error, RangeUnusable):
        headers["Content-Range"] = f"bytes */{error.size}"
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


def unexpected() -> RecallError:
    """What a client is told of an error of the server's own; the log has the rest."""
    return RecallError("the server met an error of its own", hint="its log has the details")
