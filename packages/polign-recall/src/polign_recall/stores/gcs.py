"""Google Cloud Storage: `gs://bucket/prefix?endpoint=https://host` (or `gcs://`).

Requests go through Google's own authorized session; credentials are the application default ones. What is asked is
plain: an upload in one part with `ifGenerationMatch=0`, which is the condition at any size, and reads whose answers
carry generation and time, so that one request brings all that a `Blob` has.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import google.auth
import requests
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, RefreshError
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.service_account import Credentials as ServiceAccount
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NewConnectionError

from ..errors import DataError, StoreDenied, StoreError, StoreUnavailable
from ._answers import Service, refusal, silent, unreachable
from ._urls import check_endpoint, parse
from .base import Blob, Outcome, Stat
from .bucket import BucketStore

_GOOGLE: Final = "https://storage.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
_KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_RIGHTS = {
    "create": "storage.objects.create",
    "read": "storage.objects.get",
    "list": "storage.objects.list",
    "delete": "storage.objects.delete",
}
_TIMEOUT: Final = (5.0, 15.0)
"""Seconds to connect, and without a byte from the server."""
_PATIENT: Final = (5.0, 120.0)
"""The same after an upload of more than `_SMALL` bytes."""
_SMALL: Final = 1_000_000
_PAGE: Final = 1000
_PARALLEL: Final = 16


def open_url(url: str, env: Mapping[str, str] | None) -> BucketStore:
    """The store at a `gs:` or `gcs:` URL; no request is made. See `open_store`.

    Nobody is asked for credentials when the endpoint, also that in STORAGE_EMULATOR_HOST, is plain `http:`: it is an
    emulator, and no token is sent in the clear.
    """
    place = parse(url, "gs", 1, ("endpoint",))
    bucket = place.root[0]
    variables = os.environ if env is None else env
    endpoint = place.options.get("endpoint") or variables.get("STORAGE_EMULATOR_HOST")
    if endpoint and "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    address = check_endpoint(endpoint) if endpoint else _GOOGLE
    service = Service(f"bucket {bucket!r} at {address}", _RIGHTS)
    client = GcsBucket(bucket, address, _credentials(address, env), service)
    return BucketStore(client, place.prefix, place.url({"endpoint": endpoint}))


def _credentials(address: str, env: Mapping[str, str] | None) -> Credentials | None:
    if address.startswith("http:"):
        return None
    path = None if env is None else env.get(_KEY_FILE)
    try:
        if path:  # from a mapping, not from the process's environment: what Google's own search does not know of
            found = ServiceAccount.from_service_account_file(path, scopes=[_SCOPE])  # type: ignore[no-untyped-call]
        else:
            found, _ = google.auth.default(scopes=[_SCOPE])
    except (GoogleAuthError, OSError, ValueError) as error:
        hint = f"set {_KEY_FILE}, log in with gcloud, or give the machine a service account"
        raise StoreDenied("there are no usable Google credentials", hint=hint) from error
    credentials: Credentials = found
    return credentials


class GcsBucket:
    """One bucket, asked without credentials if there are none. `service` is what messages say of it."""

    def __init__(self, bucket: str, address: str, credentials: Credentials | None, service: Service) -> None:
        self._service = service
        self._credentials = credentials
        self._objects = f"{address}/storage/v1/b/{bucket}/o"
        self._upload = f"{address}/upload/storage/v1/b/{bucket}/o?uploadType=multipart&ifGenerationMatch=0"
        self._media = f"{address}/{bucket}/"
        self._process = 0
        self._open_session()

    def put(self, name: str, data: bytes) -> Outcome:
        """Create an object unless the name is taken."""
        body, content_type = _related(name, data)
        try:
            answer = self._send(
                "POST", self._upload, "create", data=body, headers={"Content-Type": content_type},
                timeout=_TIMEOUT if len(data) <= _SMALL else _PATIENT,
            )  # fmt: skip
        except _Unanswered:
            return Outcome.UNKNOWN
        if answer.status_code == 412:
            return Outcome.EXISTS
        if _done(answer):
            return Outcome.CREATED
        if known := self._known(answer, "create"):
            raise known
        return Outcome.UNKNOWN

    def get(self, name: str, start: int, length: int | None) -> Blob | None:
        """An object or a part of it, or None."""
        if length == 0:
            return self._nothing_of(name)
        headers = {"Accept-Encoding": "identity"}
        if start or length is not None:
            headers["Range"] = f"bytes={start}-" + ("" if length is None else str(start + length - 1))
        answer = self._read("GET", self._media + quote(name), "read", headers=headers)
        if answer.status_code == 416:  # it begins past the end
            return self._nothing_of(name)
        return self._blob(answer, answer.content)

    def list(self, folder: str) -> Iterable[Stat]:
        """Every object whose name begins with `folder`."""
        fields = "nextPageToken,items(name,generation,updated)"
        for page in self._pages({"prefix": folder, "fields": fields}):
            for item in page.get("items", ()):
                modified = float(int(datetime.fromisoformat(item["updated"]).timestamp()))
                yield Stat(key=item["name"], version=item["generation"], modified=modified)

    def names(self, folder: str) -> Iterable[str]:
        """What lies right below `folder`."""
        fields = "nextPageToken,prefixes,items(name)"
        for page in self._pages({"prefix": folder, "delimiter": "/", "fields": fields}):
            yield from (prefix.removesuffix("/") for prefix in page.get("prefixes", ()))
            yield from (item["name"] for item in page.get("items", ()))

    def delete(self, names: Sequence[str]) -> builtins.list[str]:
        """Delete objects and give those refused."""
        with ThreadPoolExecutor(min(_PARALLEL, len(names))) as pool:
            gone = builtins.list(pool.map(self._delete_one, names))
        return [name for name, deleted in zip(names, gone, strict=True) if not deleted]

    def now(self, name: str) -> float:
        """The clock that stamps objects: the date of an answer. It needs no right to write."""
        answer = self._read("HEAD", self._media + quote(name), "read")
        return parsedate_to_datetime(answer.headers["Date"]).timestamp()

    def close(self) -> None:
        """Close the connections, unless they are those of the parent of a forked process."""
        if self._process == os.getpid():
            self._session.close()

    def _nothing_of(self, name: str) -> Blob | None:
        return self._blob(self._read("HEAD", self._media + quote(name), "read"), b"")

    def _blob(self, answer: requests.Response, data: bytes) -> Blob | None:
        if answer.status_code == 404 and b"<Code>NoSuchBucket</Code>" not in answer.content:
            return None
        self._check(answer, "read")
        modified = parsedate_to_datetime(answer.headers["Last-Modified"]).timestamp()
        return Blob(data=data, version=answer.headers["X-Goog-Generation"], modified=modified)

    def _pages(self, parameters: dict[str, str]) -> Iterable[dict[str, Any]]:
        token = ""
        while True:
            asked = {**parameters, "maxResults": str(_PAGE)} | ({"pageToken": token} if token else {})
            answer = self._read("GET", self._objects, "list", params=asked)
            self._check(answer, "list")
            page = answer.json()
            yield page
            token = page.get("nextPageToken", "")
            if not token:
                return

    def _delete_one(self, name: str) -> bool:
        answer = self._read("DELETE", f"{self._objects}/{quote(name, safe='')}", "delete")
        if _done(answer) or answer.status_code == 404:
            return True
        if self._known(answer, "delete") is None:
            raise silent(self._service, "delete", str(answer.status_code))
        return False

    def _check(self, answer: requests.Response, act: str) -> None:
        if not _done(answer):
            raise self._known(answer, act) or silent(self._service, act, str(answer.status_code))

    def _known(self, answer: requests.Response, act: str) -> StoreError | DataError | None:
        return refusal(self._service, act, answer.status_code, "")

    def _read(self, method: str, url: str, act: str, **options: Any) -> requests.Response:
        """An answer, whatever its status, to a request that may be sent again."""
        try:
            return self._send(method, url, act, **options)
        except _Unanswered as error:
            raise silent(self._service, act, str(error)) from error

    def _send(self, method: str, url: str, act: str, **options: Any) -> requests.Response:
        """One request. Raises `_Unanswered` when it may have been carried out, a `StoreError` when it was not."""
        if self._process != os.getpid():
            self._open_session()  # a forked process must not write into its parent's connections
        try:
            answer: requests.Response = self._session.request(
                method, url, allow_redirects=False, **{"timeout": _TIMEOUT, **options}
            )
        except GoogleAuthError as error:
            if isinstance(error, RefreshError) and not error.retryable:
                raise StoreDenied("the Google credentials are no longer accepted", hint="nothing was sent") from error
            raise StoreUnavailable("no Google credentials just now", hint="nothing was sent; try again") from error
        except requests.RequestException as error:
            if _never_sent(error):
                raise unreachable(self._service, str(error).rpartition(": ")[2].rstrip("'\")")) from error
            raise _Unanswered(type(error).__name__) from error
        return answer

    def _open_session(self) -> None:
        self._session: Any = requests.Session()
        if self._credentials is not None:
            self._session = AuthorizedSession(self._credentials)  # type: ignore[no-untyped-call]
        adapter = HTTPAdapter(pool_maxsize=_PARALLEL, max_retries=0)  # every attempt is ours
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        self._process = os.getpid()


class _Unanswered(Exception):
    """A request was sent, and no whole answer came."""


def _done(answer: requests.Response) -> bool:
    return 200 <= answer.status_code < 300


def _never_sent(error: requests.RequestException) -> bool:
    cause = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)


def _related(name: str, data: bytes) -> tuple[bytes, str]:
    """The body of an upload in one part, and its type: the object's name as JSON, then the object."""
    boundary = uuid4().hex
    about = json.dumps({"name": name})
    head = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{about}\r\n"
    head += f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    return head.encode() + data + f"\r\n--{boundary}--".encode(), f"multipart/related; boundary={boundary}"
