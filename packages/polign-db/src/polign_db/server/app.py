"""The ASGI application: routes made from the table, and what is the same for every request."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import msgspec
from polign_recall import Invalid, NotFound, RecallError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from . import openapi
from .access import ANYBODY
from .limits import whole_body
from .logs import event, log
from .operations import OPERATIONS, Operation
from .problems import Malformed, WrongMethod, WrongType, response_of, unexpected
from .service import Call, Service

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_CLIENT_LEFT = 499
"""What logs and metrics say where no answer could be given."""


def application(service: Service, *, key_required: bool) -> Observed:
    """The application over a service."""
    service.document = msgspec.json.encode(openapi.document(OPERATIONS, key_required=key_required))
    by_path: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    routes = [Route(path, Endpoint(service, operations)) for path, operations in by_path.items()]

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await service.folds.drain(service.limits.drain_seconds)

    router = Router(routes, redirect_slashes=False, default=Endpoint(service, []), lifespan=lifespan)
    return Observed(router, service)


class Observed:
    """Counts and logs every request, and has the router see the path as it was sent: ids stay percent-encoded."""

    def __init__(self, app: Router, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told: dict[str, Any] = {"operation": "none", "status": _CLIENT_LEFT}
        began = time.perf_counter()

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        sent = {**scope, "path": scope["raw_path"].decode("ascii"), "polign.told": told}
        with self._service.metrics.running.track_inprogress():
            try:
                await self._app(sent, receive, telling)
            finally:
                self._tell(scope["method"], told, time.perf_counter() - began)

    def _tell(self, method: str, told: dict[str, Any], seconds: float) -> None:
        metrics = self._service.metrics
        metrics.requests.labels(told["operation"], told["status"]).inc()
        metrics.seconds.labels(told["operation"]).observe(seconds)
        level = logging.DEBUG if told.get("open") else logging.INFO
        event("request", level, method=method, **told, ms=round(seconds * 1000, 2))


class Endpoint:
    """All operations of one path."""

    def __init__(self, service: Service, operations: Iterable[Operation]) -> None:
        self._service = service
        self._operations = {operation.method: operation for operation in operations}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        try:
            await response(scope, receive, send)
        except RecallError as error:  # in the middle of a stream: to break it off is all that can be done
            event("an answer was cut off", logging.WARNING, error=str(error))

    async def _answer(self, request: Request) -> Response:
        told = request.scope["polign.told"]
        try:
            operation = self._find(request.method)
            told["operation"] = operation.name
            if operation.access == "open":
                told["open"] = True
                return await operation.handler(await self._taken_apart(request, operation))
            with self._service.admission():
                return await operation.handler(await self._taken_apart(request, operation))
        except RecallError as error:
            told["code"] = error.code
            if error.code == "corrupt":
                event("corrupt", logging.ERROR, error=str(error))
            return response_of(error)
        except ClientDisconnect:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer and the log the rest
            log.exception("an error of the server's own")
            return response_of(unexpected())

    def _find(self, method: str) -> Operation:
        if not self._operations:
            raise NotFound("there is no such path", hint="/openapi.json has them all")
        if method not in self._operations:
            raise WrongMethod(f"{method} is not for this path", ", ".join(sorted(self._operations)))
        return self._operations[method]

    async def _taken_apart(self, request: Request, operation: Operation) -> Call:
        """The request, admitted and checked against what the operation takes."""
        caller = ANYBODY
        told = request.scope["polign.told"]
        if operation.access != "open":
            caller = await self._service.doorkeeper.admit(request, operation.access)
            told["key"] = caller.key_id
        path = {name: _decoded(value) for name, value in request.path_params.items()}
        if "id" in path:
            told["agent"] = path["id"]
        query = _query(request, operation.query)
        body = await self._body(request, operation.body)
        return Call(self._service, request, caller, path, query, body)

    async def _body(self, request: Request, kind: type[msgspec.Struct] | str | None) -> Any:
        if kind is None:
            return None
        sent_as = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = kind if isinstance(kind, str) else "application/json"
        # A page of another site cannot send these types to a server that asks for no key.
        if sent_as != wanted:
            raise WrongType(f"a body of type {wanted} is expected", hint=f"send Content-Type: {wanted}")
        return None if isinstance(kind, str) else _parse(await whole_body(request, self._service.limits), kind)


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise Malformed("the path is not valid UTF-8 when decoded") from None


def _query(request: Request, cls: type[msgspec.Struct]) -> msgspec.Struct:
    given = request.query_params.multi_items()
    if len(dict(given)) < len(given):
        raise Invalid("a query parameter is given twice")
    try:
        return msgspec.convert(dict(given), cls, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"the query cannot be used: {error}") from None


def _parse(data: bytes, cls: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.json.decode(data, type=cls)
    except msgspec.ValidationError as error:
        raise Invalid(f"the body cannot be used: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None
