"""The table of all routes. The router, the checks of access and the OpenAPI document are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from polign_recall import AgentStatus, DeleteReport
from polign_recall.chain import Snapshot
from starlette.responses import Response

from . import agents, outputs, page, reading, upkeep, writing
from .service import Call
from .shapes import (
    AgentsPage,
    AgentsQuery,
    AppendBody,
    Appended,
    BriefingAnswer,
    BriefingQuery,
    ClaimBody,
    DeleteQuery,
    EntriesPage,
    EntriesQuery,
    Health,
    NoQuery,
    RecordsBody,
    StoredOutput,
    TurnsPage,
    TurnsQuery,
)

Handler = Callable[[Call], Awaitable[Response]]
Access = Literal["open", "read", "write"]
AGENT = "/v1/agents/{id}"
BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Operation:
    """One method of one path. `answer` is a type for JSON, a media type for other content.

    `meets` are the statuses of its own problems; those that every operation can meet are not repeated.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    answer: Any
    meets: tuple[int, ...] = ()
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | str | None = None
    status: int = 200

    @property
    def name(self) -> str:
        """The handler's name, which is the operation's id."""
        return getattr(self.handler, "__name__", "")


def _get(path: str, handler: Handler, answer: Any, *meets: int, query: type[msgspec.Struct] = NoQuery) -> Operation:
    return Operation("GET", path, handler, "read", answer, meets, query)


def _post(path: str, handler: Handler, body: type[msgspec.Struct], answer: Any, status: int = 200) -> Operation:
    return Operation("POST", AGENT + path, handler, "write", answer, (409,), body=body, status=status)


def _open(path: str, handler: Handler, answer: Any, *meets: int) -> Operation:
    return Operation("GET", path, handler, "open", answer, meets)


OPERATIONS = (
    _get("/v1/agents", agents.list_agents, AgentsPage, query=AgentsQuery),
    _get(AGENT, agents.show_agent, AgentStatus, 404),
    Operation("DELETE", AGENT, agents.delete_agent, "write", DeleteReport, (404, 409), DeleteQuery),
    _get(f"{AGENT}/state", agents.read_state, Snapshot),
    _get(f"{AGENT}/briefing", agents.read_briefing, BriefingAnswer, 404, query=BriefingQuery),
    _get(f"{AGENT}/turns", reading.read_turns, TurnsPage, query=TurnsQuery),
    _get(f"{AGENT}/entries", reading.read_entries, EntriesPage, query=EntriesQuery),
    _post("/lease", writing.claim_lease, ClaimBody, Snapshot, 201),
    _post("/lease/renew", writing.renew_lease, AppendBody, Appended),
    _post("/lease/release", writing.release_lease, AppendBody, Appended),
    _post("/records", writing.append_records, RecordsBody, Appended),
    Operation("PUT", f"{AGENT}/outputs", outputs.store_output, "write", StoredOutput, (404,), body=BYTES, status=201),
    _get(f"{AGENT}/outputs/{{ref}}", outputs.fetch_output, BYTES, 404, 416),
    _open("/healthz", upkeep.healthz, Health),
    _open("/readyz", upkeep.readyz, Health, 503),
    _open("/metrics", upkeep.metrics, "text/plain"),
    _open("/openapi.json", page.openapi_json, dict[str, Any]),
    _open("/docs", page.docs, "text/html"),
    _open("/docs/page.js", page.script, "text/javascript"),
    _open("/docs/page.css", page.style, "text/css"),
)
