"""Agents behind a polign-server: the same operations as on a store, over HTTP.

`RemoteChain` has the interface of `Chain`, and its generators yield requests instead of store operations. The server
runs the chain's own code; what it cannot do for us stays here: the lease's deadline by our own clock, sending a write
again until there is an answer, and seeing that a holder on our own host is dead.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import httpx
import msgspec

from . import errors, outputs
from .backend import AgentStatus, DeleteReport
from .chain import Chain, Entry, Env, Host, Link, Replay, Snapshot, drive, encode_id
from .chain.protocol import ATTEMPTS, POLL, Pending
from .chain.steps import Sleep, Steps, T
from .errors import (
    AuthFailed,
    DataError,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RecallError,
    StoreDenied,
    StoreUnavailable,
    WriteUnknown,
)
from .outputs import StoredValue

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""Seconds without a byte from the server. A page of history, an output or a deletion may take so long."""
QUICK = httpx.Timeout(10.0, connect=5.0)
"""The same for a chain's own requests, which are small: a server answers a write within 8 s, also where its store does
not. One that hangs for longer is left for the next replica, and a lease of a minute has room for several."""
PAGE = 200
_PATHS = {"records": "records", "renew": "lease/renew", "release": "lease/release"}
_CODES: dict[str, type[RecallError]] = {
    cls.code: cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, RecallError) and cls.code != RecallError.code
}
"""Without those that only group others: of an error that has no code of its own, anything may have happened."""
_encode = msgspec.json.Encoder().encode


class Request(NamedTuple):
    """A step of a remote chain: one request, answered with JSON of the given type."""

    method: str
    path: str
    answer: Any
    body: Any = None
    params: Mapping[str, Any] = MappingProxyType({})
    part: tuple[int, int | None] | None = None
    """Start and length (above 0) of the part of a value that is asked for."""
    quick: bool = False
    """Whether it waits as `QUICK` says, not as `TIMEOUT` does."""


class _Problem(msgspec.Struct):
    """What we use of a problem document (RFC 9457)."""

    code: str = "error"
    detail: str = ""
    hint: str | None = None
    agent_id: str | None = None
    holder: str = ""
    since: str = ""
    expires_in: float = 0.0
    epoch: int = 0
    host: Host | None = None
    by: str = ""
    landed: bool | None = None


class _HeldElsewhere(LeaseHeld):
    """LeaseHeld with where the holder runs, so that its death can be seen on the same host."""

    epoch: int = 0
    host: Host | None = None


class _Appended(msgspec.Struct):
    digest: str


class _Stored(msgspec.Struct):
    ref: str
    size: int


class _Upload(NamedTuple):
    """A stream to send, from its beginning at each attempt."""

    source: BinaryIO

    def rewound(self) -> BinaryIO:
        """The stream, at its beginning."""
        self.source.seek(0)
        return self.source


class _AgentsPage(msgspec.Struct):
    agents: list[AgentStatus]
    next: str | None


class _EntriesPage(msgspec.Struct):
    entries: list[Entry]
    next: int | None


class RemoteChain(Chain):
    """A chain that a server keeps. It has no history at hand: folding is the server's business."""

    def __init__(self, agent_id: str, env: Env | None = None) -> None:
        super().__init__(f"/v1/agents/{_segment(agent_id)}", agent_id, env)

    def load(self) -> Steps[Replay]:
        """Read the end of the chain with the state folded up to it."""
        head: Snapshot = yield from _patiently(self.env, Request("GET", f"{self.prefix}/state", Snapshot, quick=True))
        return Replay.above(head if head.seq else None)

    def acquire(
        self, *, ttl: float, holder: str, host: Host, wait: float = 0.0, takeover: bool = False,
        on_wait: Callable[[LeaseHeld], None] | None = None,
    ) -> Steps[Replay]:  # fmt: skip
        """Own the chain; see `Chain.acquire`. The claim is idempotent by its put id, so it is simply sent again."""
        until = self.env.clock() + wait
        put, dead_epoch = self.env.new_put(), None
        while True:
            sent = self.env.clock()
            body = {
                "put": put, "holder": holder, "at": self.env.wall(), "ttl": ttl, "host": host, "takeover": takeover,
                "dead_epoch": dead_epoch,
            }  # fmt: skip
            try:
                claim = Request("POST", f"{self.prefix}/lease", Snapshot, body, quick=True)
                head = yield from _patiently(self.env, claim)
            except _HeldElsewhere as held:
                if held.epoch != dead_epoch and self.env.dead(held.host):
                    dead_epoch = held.epoch
                    continue
                left = until - self.env.clock()
                if left <= 0:
                    raise
                if on_wait is not None:
                    on_wait(held)
                yield Sleep(min(left, max(0.05, held.expires_in), POLL * self.env.rng.uniform(0.5, 1.0)))
                put = self.env.new_put()
            except LeaseLost:  # it was ours while no answer came, and is another's now: look again who
                put = self.env.new_put()
            else:
                self.replay = Replay.above(head)
                self.epoch, self.holder, self.lost, self.pending = head.epoch, holder, None, None
                self.deadline = sent + ttl
                return self.replay

    def settle(self) -> Steps[Link]:
        """Send the pending write until there is an answer; see `Chain.settle`."""
        pending = self.pending
        if pending is None:
            raise AssertionError("nothing is pending")
        entry = pending.link.entry
        problem: RecallError | None = None
        for attempt in range(ATTEMPTS):
            clean, pending.clean = pending.clean, False  # whatever interrupts this attempt leaves it unknown
            try:
                answer: _Appended = yield from _ask(self._append_request(pending, again=not clean))
            except LeaseLost as error:
                self.pending, self.lost = None, error
                raise
            except WriteUnknown as error:
                problem = error
            except StoreUnavailable as error:
                pending.clean, problem = clean, error
            except (StoreDenied, DataError, AuthFailed):
                if clean:
                    self.pending = None
                raise
            else:
                return self._settled(pending, answer)
            yield self.env.pause(attempt)
        if pending.clean and problem is not None:
            self.pending = None
            raise problem
        raise self._unknown(entry) from problem

    def _append_request(self, pending: Pending, *, again: bool) -> Request:
        entry = pending.link.entry
        body = {
            "put": entry.put, "holder": entry.holder, "at": entry.at, "seq": entry.seq, "epoch": entry.epoch,
            "prev": entry.prev, "again": again,
        }  # fmt: skip
        if entry.kind == "records":
            body["records"] = entry.records
        return Request("POST", f"{self.prefix}/{_PATHS[entry.kind]}", _Appended, body, quick=True)

    def _settled(self, pending: Pending, answer: _Appended) -> Link:
        link = pending.link
        if answer.digest != link.digest:
            raise errors.Corrupt("the server stored other bytes than were sent", agent_id=self.agent_id)
        self.pending = None
        self.replay.add(link)
        del self.replay.links[:-1]
        self.deadline = pending.sent + self.replay.lease.ttl
        if link.entry.kind == "release":
            self.epoch = 0
        return link


class RemoteBackend:
    """Agents behind one server, or behind several replicas of it that share a store: any of them will do."""

    def __init__(self, urls: Sequence[str], api_key: str | None = None) -> None:
        self._urls = [_base_url(url) for url in urls]
        self._at = random.randrange(len(self._urls))
        self._headers = {"Authorization": f"Bearer {_checked_key(api_key)}"} if api_key else {}
        self._connecting = threading.Lock()
        self._connect()

    def chain(self, agent_id: str) -> Chain:
        """An agent's chain, not read yet."""
        return RemoteChain(agent_id)

    def run(self, steps: Steps[T]) -> T:
        """Carry out what a chain's method asks for."""
        return drive(steps, self._perform)

    def prepare(self) -> None:
        """Nothing to check: the server has probed its store."""

    def entries(self, agent_id: str, *, newest_first: bool = False) -> Iterator[Entry]:
        """Every entry of an agent, a page at a time."""
        path, bound = f"/v1/agents/{_segment(agent_id)}/entries", "before" if newest_first else "after"
        params: dict[str, Any] = {"limit": PAGE, "order": "desc" if newest_first else "asc"}
        while True:
            page: _EntriesPage = self.run(_patiently(Env(), Request("GET", path, _EntriesPage, None, params)))
            yield from page.entries
            if page.next is None:
                return
            params = {**params, bound: page.next}

    def put_output(self, agent_id: str, data: str | bytes | BinaryIO) -> StoredValue:
        """Store a large value whole; see `outputs.put`."""
        source, size, digest = outputs.measured(data)
        content = source if isinstance(source, bytes) else _Upload(source)
        path = f"/v1/agents/{_segment(agent_id)}/outputs"
        stored: _Stored = self.run(_patiently(Env(), Request("PUT", path, _Stored, content)))
        if (stored.ref, stored.size) != (f"out-{digest}", size):
            raise errors.Corrupt("the server stored other bytes than were sent", agent_id=agent_id)
        return StoredValue(stored.ref, stored.size)

    def get_output(self, agent_id: str, ref: str, start: int = 0, length: int | None = None) -> bytes:
        """A stored value or a part of it; see `outputs.get`."""
        outputs.check_part(ref, start, length)
        part = (start, None if length is None else max(1, length)) if start or length is not None else None
        path = f"/v1/agents/{_segment(agent_id)}/outputs/{ref}"
        data: bytes = self.run(_patiently(Env(), Request("GET", path, bytes, part=part)))
        return data[:length]

    def agents(self) -> list[AgentStatus]:
        """Every agent, by id."""
        found: list[AgentStatus] = []
        after = ""
        while True:
            params = {"limit": PAGE, "after": after} if after else {"limit": PAGE}
            page: _AgentsPage = self.run(_patiently(Env(), Request("GET", "/v1/agents", _AgentsPage, None, params)))
            found += page.agents
            if page.next is None:
                return found
            after = page.next

    def status(self, agent_id: str) -> AgentStatus:
        """One agent, seen from outside. Raises NotFound."""
        request = Request("GET", f"/v1/agents/{_segment(agent_id)}", AgentStatus)
        status: AgentStatus = self.run(_patiently(Env(), request))
        return status

    def delete(self, agent_id: str, *, takeover: bool = False) -> DeleteReport:
        """Delete all that an agent recorded. Raises NotFound, LeaseHeld."""
        params = {"takeover": "true"} if takeover else {}
        request = Request("DELETE", f"/v1/agents/{_segment(agent_id)}", DeleteReport, None, params)
        return self.run(_deletion(Env(), request))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _perform(self, step: Any) -> Any:
        """Send one request and decode its answer; an error of the project's comes as it was raised there."""
        request: Request = step
        headers = {}
        if request.part is not None:
            start, length = request.part
            headers["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        content = request.body
        if content is not None:
            raw = isinstance(content, bytes | _Upload)
            headers["Content-Type"] = "application/octet-stream" if raw else "application/json"
            content = content if isinstance(content, bytes) else content.rewound() if raw else _encode(content)
        if self._process != os.getpid():
            self._leave_to_parent()
        at = self._at
        url = self._urls[at] + request.path
        try:
            response = self._http.request(
                request.method, url, params=dict(request.params), content=content, headers=headers,
                timeout=QUICK if request.quick else TIMEOUT,
            )  # fmt: skip
            return _answer(request, response)
        except (StoreUnavailable, WriteUnknown):
            self._leave_replica(at)
            raise
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            self._leave_replica(at)
            raise StoreUnavailable(
                f"the server cannot be reached: {error}", hint="is polign-server running?"
            ) from error
        except httpx.RequestError as error:
            self._leave_replica(at)
            raise WriteUnknown(f"the connection to the server broke: {str(error) or type(error).__name__}") from error

    def _leave_replica(self, at: int) -> None:
        """Ask the next replica from now on, unless another thread has turned away from this one already."""
        if self._at == at:
            self._at = (at + 1) % len(self._urls)

    def _connect(self) -> None:
        self._http = httpx.Client(headers=self._headers, follow_redirects=False)
        self._process = os.getpid()

    def _leave_to_parent(self) -> None:
        """After a fork: what is sent on the parent's connections would end up among its own requests."""
        with self._connecting:
            if self._process != os.getpid():
                self._left = self._http  # kept as it is: closing it would end a TLS session of the parent's
                self._connect()


def _answer(request: Request, response: httpx.Response) -> Any:
    if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and request.part is not None:
        return b""  # the part begins past the end
    if not response.is_success:
        raise _error_of(response)
    if request.answer is bytes:
        return _part(request, response)
    try:
        return msgspec.json.decode(response.content, type=request.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WriteUnknown(f"the server's answer cannot be read: {error}") from error


def _part(request: Request, response: httpx.Response) -> bytes:
    """The bytes that were asked for; what is in between may have sent the whole value instead."""
    if request.part is None or response.status_code == httpx.codes.PARTIAL_CONTENT:
        return response.content
    start, length = request.part
    return response.content[start:][:length]


def _error_of(response: httpx.Response) -> RecallError:
    """The error that a problem document tells; what is none comes from something in between, which knows nothing."""
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
        cls = _CODES[problem.code]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        if response.status_code in (401, 403):
            return AuthFailed(f"the server answered {response.status_code}", hint="check POLIGN_API_KEY")
        return WriteUnknown(f"the server answered {response.status_code} without saying why")
    told = {"agent_id": problem.agent_id, "hint": problem.hint}
    if response.status_code == httpx.codes.REQUEST_TIMEOUT:
        return StoreUnavailable(problem.detail, **told)  # our request came too slowly and was not carried out
    if cls is LeaseHeld:
        held = _HeldElsewhere(
            problem.detail, **told, holder=problem.holder, since=problem.since, expires_in=problem.expires_in
        )
        held.epoch, held.host = problem.epoch, problem.host
        return held
    if cls is LeaseLost:
        return LeaseLost(problem.detail, **told, by=problem.by, epoch=problem.epoch, landed=problem.landed)
    return cls(problem.detail, **told)


def _ask(request: Request) -> Steps[Any]:
    """Send one request. It is a step of its own kind, for `RemoteBackend.run` alone."""
    return (yield request)  # type: ignore[misc]


def _patiently(env: Env, request: Request) -> Steps[Any]:
    """Send a request that is safe to repeat until there is an answer."""
    return (yield from _persist(env, lambda: _ask(request)))


def _persist(env: Env, once: Callable[[], Steps[T]]) -> Steps[T]:
    """Do something that is safe to repeat until there is an answer."""
    for attempt in range(ATTEMPTS):
        try:
            return (yield from once())
        except (StoreUnavailable, WriteUnknown) as error:
            if attempt == ATTEMPTS - 1:
                raise StoreUnavailable(error.message, agent_id=error.agent_id, hint=error.hint) from error
        yield env.pause(attempt)
    raise AssertionError("unreachable")


def _deletion(env: Env, request: Request) -> Steps[DeleteReport]:
    """`_patiently` for a deletion: one whose answer was lost leaves nothing for the next one to find."""
    unknown = False

    def once() -> Steps[DeleteReport]:
        nonlocal unknown
        try:
            report: DeleteReport = yield from _ask(request)
            return report
        except WriteUnknown:
            unknown = True
            raise
        except NotFound:
            if unknown:
                return DeleteReport(0, [])
            raise

    return (yield from _persist(env, once))


def _segment(agent_id: str) -> str:
    """An agent id as one segment of a path. Raises Invalid."""
    return encode_id(agent_id)


def _checked_key(api_key: str) -> str:
    if not (api_key.isascii() and api_key.isprintable()):
        raise errors.Invalid("the API key has characters that no key has", hint="check POLIGN_API_KEY")
    return api_key


def _base_url(url: str) -> str:
    try:
        parts = httpx.URL(url.strip())
    except httpx.InvalidURL:
        parts = httpx.URL()
    if parts.scheme not in ("http", "https") or not parts.host:
        begin = url.partition(":")[0][:40]  # what follows may be a password, of a store's URL given in the wrong place
        raise errors.Invalid(f"{begin!r}... is not the URL of a server", hint="for example http://127.0.0.1:23000")
    return str(parts).rstrip("/")
