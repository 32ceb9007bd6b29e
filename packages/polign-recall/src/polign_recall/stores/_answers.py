"""What the answer of an object store's server means, for every provider alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..errors import DataError, Invalid, StoreDenied, StoreError, StoreUnavailable, StoreUnsupported, TooLarge

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"})
_TOO_LARGE = frozenset({"EntityTooLarge", "RequestBodyTooLarge"})


class Service(NamedTuple):
    """Whom the answers come from. `label` names the place in messages; `rights` what each act needs there."""

    label: str
    rights: Mapping[str, str]


def refusal(service: Service, act: str, status: int, code: str) -> StoreError | DataError | None:
    """The error of an answer that says that nothing was done; None when it does not say so.

    `act` is "create", "read", "list" or "delete"; `code` is the provider's own name of the error, if any. What may
    have been done all the same, or may succeed when sent again (409, 429, 5xx), gives None.
    """
    what = f"{status} {code}".rstrip()
    if status == 401 or (status == 400 and code in _EXPIRED):
        return StoreDenied(f"{service.label} did not accept the credentials ({what})", hint="are they valid still?")
    if status == 403:
        hint = f"it needs {service.rights[act]}; a wrong key or a wrong clock gives the same answer"
        return StoreDenied(f"no right to {act} in {service.label} ({what})", hint=hint)
    if status == 404:
        return Invalid(f"there is no {service.label} ({what})", hint="make it first, or check the URL")
    if 300 <= status < 400:
        return StoreUnsupported(f"{service.label} is elsewhere ({what})", hint="check its region and the endpoint")
    if status == 413 or code in _TOO_LARGE:
        return TooLarge(f"more than {service.label} takes in one request ({what})")
    if status == 501:
        hint = "it must honour put-if-absent (If-None-Match: *)"
        return StoreUnsupported(f"{service.label} does not know what was asked ({what})", hint=hint)
    if status in (408, 409, 425, 429) or code == "RequestTimeout" or not 400 <= status < 500:
        return None
    return StoreUnsupported(f"{service.label} refused to {act} ({what})")


def unreachable(service: Service, why: str) -> StoreUnavailable:
    """The error of a request that was never sent."""
    return StoreUnavailable(f"{service.label} cannot be reached: {why}", hint="nothing was sent; try again")


def silent(service: Service, act: str, what: str) -> StoreUnavailable:
    """The error of a read that brought no usable answer."""
    return StoreUnavailable(f"{service.label} did not answer when asked to {act} ({what})", hint="try again")
