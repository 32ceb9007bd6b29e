"""A bucket by way of obstore: S3 and what speaks its language, Azure Blob Storage."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from ..errors import DataError, StoreDenied, StoreError, StoreUnavailable, StoreUnsupported
from ._answers import Service, refusal, silent, unreachable
from .base import Blob, Outcome, Stat

if TYPE_CHECKING:  # obstore has these names for type checkers only
    from obstore.store import AzureStore, ClientConfig, RetryConfig, S3Store

    Connect = Callable[[ClientConfig, RetryConfig], S3Store | AzureStore]

NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
"""Every attempt is ours: obstore would take a connection that broke after sending for one that never sent."""

_SMALL: Final = 1_000_000
"""Bytes. What is larger than this may take minutes on a slow line; entries of a chain are far smaller."""
_QUICK: Final = timedelta(seconds=10)
"""For the whole of a small write. A lease of a minute has room for several attempts."""
_STALLED: Final = timedelta(seconds=15)
"""Without a byte from the server while reading."""
_LONG: Final = timedelta(minutes=10)
_CONNECT: Final = timedelta(seconds=5)

_ERRORS = (BaseError, FileNotFoundError)

# What obstore's errors say beyond their class is in their text only. It has the request's address, so everything looked
# for here contains a character that an address cannot.
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NEVER_SENT = re.compile(r"\bkind: Connect\b")
_REASON = re.compile(r'(?:error|message): "([^"]+)"|(InvalidCertificate)\(')
_NO_TOKEN = re.compile(r"\bsource: Token(Request|ResponseBody) ")
_NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>")
_TAKEN = re.compile(r"\bstatus: 412,|<Code>BlobAlreadyExists</Code>")
_PARALLEL: Final = 16


class ObstoreBucket:
    """One bucket or container. `connect` makes a client with given options; `service` is what messages say of it."""

    def __init__(self, connect: Connect, service: Service) -> None:
        self._service = service
        reading: ClientConfig = {"connect_timeout": _CONNECT, "read_timeout": _STALLED, "timeout": _LONG}
        try:
            self._reader = connect(reading, NO_RETRIES)
            self._writer = connect({"connect_timeout": _CONNECT, "timeout": _QUICK}, NO_RETRIES)
            self._patient = connect({"connect_timeout": _CONNECT, "timeout": _LONG}, NO_RETRIES)
        except BaseError as error:
            raise StoreDenied(f"the credentials for {service.label} cannot be used: {_summary(error)}") from None

    def put(self, name: str, data: bytes) -> Outcome:
        """Create an object unless the name is taken."""
        _check_process()
        client = self._writer if len(data) <= _SMALL else self._patient
        try:
            obstore.put(client, name, data, mode="create")
        except AlreadyExistsError as error:
            return self._taken(name, str(error))
        except _ERRORS as error:
            known = self._known(error, "create")
            if known is None:
                return Outcome.UNKNOWN
            raise known from error
        return Outcome.CREATED

    def get(self, name: str, start: int, length: int | None) -> Blob | None:
        """An object or a part of it, or None."""
        _check_process()
        if length == 0:
            meta = self._head(name)
            return None if meta is None else _blob(b"", meta)
        try:
            if length is not None:
                result = obstore.get(self._reader, name, options={"range": (start, start + length)})
            elif start:
                result = obstore.get(self._reader, name, options={"range": {"offset": start}})
            else:
                result = obstore.get(self._reader, name)
            data = result.bytes().to_bytes()
        except FileNotFoundError as error:
            self._check_bucket(error, "read")
            return None
        except BaseError as error:
            # Perhaps it begins past the end: the server may say so, or obstore when it looks at the answer.
            meta = self._head(name) if (start or length) and _status(error) in (416, None) else None
            if meta is None or start < meta["size"]:
                raise self._failed(error, "read") from error
            return _blob(b"", meta)
        return _blob(data, result.meta)

    def list(self, folder: str) -> Iterable[Stat]:
        """Every object whose name begins with `folder`."""
        _check_process()
        try:
            found = obstore.list(self._reader, folder or None, chunk_size=1000).collect()
        except _ERRORS as error:
            raise self._failed(error, "list") from error
        return [_stat(meta) for meta in found]

    def names(self, folder: str) -> Iterable[str]:
        """What lies right below `folder`."""
        _check_process()
        try:
            found = obstore.list_with_delimiter(self._reader, folder or None)
        except _ERRORS as error:
            raise self._failed(error, "list") from error
        return [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]

    def delete(self, names: Sequence[str]) -> builtins.list[str]:
        """Delete objects and give those refused."""
        _check_process()
        try:
            obstore.delete(self._writer, names)
        except _ERRORS:
            # It stopped at the first problem, which may have been an absent object. So one by one, to see which.
            with ThreadPoolExecutor(min(_PARALLEL, len(names))) as pool:
                gone = builtins.list(pool.map(self._delete_one, names))
            return [name for name, deleted in zip(names, gone, strict=True) if not deleted]
        return []

    def now(self, name: str) -> float:
        """The clock that stamps objects: that of one made for it, since obstore does not show an answer's date."""
        if self.put(name, b"") is not Outcome.CREATED:
            raise silent(self._service, "create", "asking for its time")
        try:
            meta = self._head(name)
        finally:
            self._forget(name)
        if meta is None:
            raise silent(self._service, "read", "asking for its time")
        return _stat(meta).modified

    def close(self) -> None:
        """Nothing to do: obstore closes connections that are idle."""

    def _taken(self, name: str, answer: str) -> Outcome:
        """What obstore's `AlreadyExistsError` stands for: it is raised for every 409, also for "try again"."""
        if _TAKEN.search(answer):
            return Outcome.EXISTS
        try:
            return Outcome.UNKNOWN if self._head(name) is None else Outcome.EXISTS
        except StoreError:
            return Outcome.UNKNOWN

    def _head(self, name: str) -> obstore.ObjectMeta | None:
        try:
            return obstore.head(self._reader, name)
        except FileNotFoundError as error:
            self._check_bucket(error, "read")
            return None
        except BaseError as error:
            raise self._failed(error, "read") from error

    def _delete_one(self, name: str) -> bool:
        try:
            obstore.delete(self._writer, name)
        except FileNotFoundError:
            pass  # gone already
        except BaseError as error:
            known = self._known(error, "delete")
            if known is None or isinstance(known, StoreUnavailable):
                raise known or silent(self._service, "delete", _summary(error)) from error
            return False
        return True

    def _forget(self, name: str) -> None:
        try:
            self.delete([name])
        except StoreError:
            pass  # an empty object stays in `probe/`

    def _check_bucket(self, error: FileNotFoundError, act: str) -> None:
        if _NO_BUCKET.search(str(error)):
            raise self._failed(error, act) from error

    def _failed(self, error: Exception, act: str) -> StoreError | DataError:
        """The error of a read that failed with `error`."""
        if isinstance(error, InvalidPathError):
            hint = "what lies below the prefix must be the store's alone"
            return StoreUnsupported(
                f"{self._service.label} has an object that is not ours: {_summary(error)}", hint=hint
            )
        return self._known(error, act) or silent(self._service, act, _summary(error))

    def _known(self, error: Exception, act: str) -> StoreError | DataError | None:
        """The error to raise when it is certain that nothing was done, else None."""
        status = _status(error)
        if (isinstance(error, UnauthenticatedError) and status is None) or _NO_TOKEN.search(str(error)):
            return _no_credentials(self._service, status)
        if status is not None:
            code = _CODE.search(str(error))
            return refusal(self._service, act, status, code[1] if code else "")
        if "redirect without LOCATION" in str(error):
            return refusal(self._service, act, 301, "")
        return unreachable(self._service, _reason(error)) if _NEVER_SENT.search(str(error)) else None


def _status(error: Exception) -> int | None:
    """The HTTP status that obstore's error speaks of, if an answer came."""
    found = _STATUS.search(str(error))
    if found:
        return int(found[1])
    if isinstance(error, PermissionDeniedError):
        return 403
    return 404 if isinstance(error, FileNotFoundError) else None


def _no_credentials(service: Service, status: int | None) -> StoreError:
    """The error when credentials were to be had from elsewhere, which gave this status if it answered at all."""
    if status is not None and 400 <= status < 500 and status not in (408, 429):
        return StoreDenied(f"no credentials for {service.label}: refused with status {status}", hint="nothing was sent")
    return StoreUnavailable(f"no credentials for {service.label} just now", hint="nothing was sent; try again")


def _summary(error: Exception) -> str:
    """The part of obstore's message that is for people."""
    return str(error).partition("\n")[0].rpartition(" - ")[2][:200]


def _reason(error: Exception) -> str:
    """Why no connection was made, as far as obstore's message tells."""
    found = _REASON.search(str(error))
    return next(filter(None, found.groups()), "") if found else "no connection"


def _stat(meta: obstore.ObjectMeta) -> Stat:
    """Listings and answers may quote a tag or not, and give fractions of a second or not: here they agree."""
    version = meta["version"] or (meta["e_tag"] or "").strip('"')
    return Stat(key=meta["path"], version=version, modified=float(int(meta["last_modified"].timestamp())))


def _blob(data: bytes, meta: obstore.ObjectMeta) -> Blob:
    stat = _stat(meta)
    return Blob(data=data, version=stat.version, modified=stat.modified)


_process: int | None = None


def _check_process() -> None:
    """Raise `StoreUnsupported` in a process that was forked from one in which obstore had been used.

    obstore's threads do not survive a fork: a call in the child would hang for ever, and hang the parent too, since
    both wait for the same events of the system.
    """
    global _process
    pid = os.getpid()
    if _process is None:
        _process = pid
    elif _process != pid:
        raise StoreUnsupported(
            "S3 and Azure cannot be used in a process forked from one that used them",
            hint="start the child with 'spawn' or 'forkserver', or use the store only after forking",
        )
