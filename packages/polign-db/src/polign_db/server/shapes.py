"""What goes over the wire: bodies, queries and answers of the operations. The OpenAPI document is made from these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from polign_recall import AgentStatus
from polign_recall.briefing import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET
from polign_recall.chain import Entry, Host
from polign_recall.client import MAX_TTL, MIN_TTL

MAX_SEQ = 2**53
"""Largest number that every JSON reader keeps exact; a chain does not come near."""
MAX_PID = 2**31 - 1

Seq = Annotated[int, Meta(ge=1, le=MAX_SEQ)]
Cursor = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
PutId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{8,64}$", description="Chosen by the client, fresh per write.")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$", description="BLAKE2b-128 of an entry's bytes, in hex.")]
Holder = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Time = Annotated[str, Meta(max_length=40, extra_json_schema={"format": "date-time"})]
Name = Annotated[str, Meta(max_length=200)]


class HostBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the holder runs, so that a contender on the same host can tell when it is dead."""

    boot: Name = ""
    pid_ns: Name = ""
    pid: Annotated[int, Meta(ge=0, le=MAX_PID)] = 0
    started: Annotated[int, Meta(ge=0, le=MAX_SEQ)] = 0

    def host(self) -> Host:
        """The same as the core has it."""
        return Host(boot=self.boot, pid_ns=self.pid_ns, pid=self.pid, started=self.started)


class Write(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What every write says: who writes, when, and the id of this write."""

    put: PutId
    holder: Holder
    at: Time

    def __post_init__(self) -> None:
        # `$` in a pattern also matches before a line end at the very end.
        if self.put.endswith("\n") or self.holder.endswith("\n"):
            raise ValueError("`put` and `holder` have no line ends")
        if len(self.at) < len("2000-01-01T00:00:00Z") or datetime.fromisoformat(self.at).tzinfo is None:
            raise ValueError("`at` is not a time with its zone (RFC 3339)")


class ClaimBody(Write, kw_only=True):
    """A claim of an agent's lease. `takeover` takes it from a living holder.

    `dead_epoch` is for a client on the holder's own host: it saw that the holder of that epoch is dead, and claims if
    the lease is still of that epoch.
    """

    ttl: Annotated[float, Meta(ge=MIN_TTL, le=MAX_TTL, description="Seconds.")]
    host: HostBody = HostBody()
    takeover: bool = False
    dead_epoch: Seq | None = None


class AppendBody(Write, kw_only=True):
    """One entry, exactly as it will lie in the chain: `seq` follows the entry whose digest is `prev`.

    `again` says that this very write was sent before and no answer came.
    """

    seq: Annotated[int, Meta(ge=2, le=MAX_SEQ)]
    epoch: Seq
    prev: Digest
    again: bool = False


class RecordsBody(AppendBody, kw_only=True):
    """One entry with records; they are stored word for word, as compact JSON."""

    records: Annotated[list[msgspec.Raw], Meta(min_length=1)]


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class AgentsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A page of agents, by id; `after` is the last id of the page before."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    after: Annotated[str, Meta(max_length=1000)] = ""


class DeleteQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`takeover` deletes an agent that a process holds."""

    takeover: bool = False


class BriefingQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The budget in tokens, counted as `model` counts them."""

    token_budget: Annotated[int, Meta(ge=MIN_BUDGET, le=MAX_BUDGET)] = DEFAULT_BUDGET
    model: Name = ""


class TurnsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Turns with a seq above `after`, oldest first. `entry`, from the page before, saves reading from the beginning."""

    after: Cursor = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    entry: Cursor = 0


class EntriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Entries between the seqs `after` and `before`, both exclusive."""

    after: Cursor = 0
    before: Seq = MAX_SEQ
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    order: Literal["asc", "desc"] = "asc"


class AgentsPage(msgspec.Struct):
    """`next` is the `after` of the next page, null on the last."""

    agents: list[AgentStatus]
    next: str | None


class BriefingAnswer(msgspec.Struct):
    """The text for the model, the names of what is not in it or not whole, and its size in tokens."""

    briefing: str
    omitted: list[str]
    tokens: int


class TurnsPage(msgspec.Struct):
    """`next` is the `after` of the next page, null at the end; `entry` goes with it."""

    turns: list[msgspec.Raw]
    next: int | None
    entry: int


class EntriesPage(msgspec.Struct):
    """`next` is the `after` (with order=desc the `before`) of the next page, null at the end."""

    entries: list[Entry]
    next: int | None


class Appended(msgspec.Struct):
    """The entry is durable. `digest` is the `prev` of the next one."""

    seq: int
    epoch: int
    digest: str


class StoredOutput(msgspec.Struct):
    """`ref` fetches the output; `size` is in bytes."""

    ref: str
    size: int


class Health(msgspec.Struct):
    """The process runs; with `ready`, its store answers too."""

    status: Literal["ok", "ready"]


class Problem(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An error (RFC 9457). `code` is the same in Python, over HTTP and on the command line.

    lease_held has holder, since (RFC 3339), expires_in (seconds), epoch and host; lease_lost has by, epoch and landed
    (whether the write that met the loss had been saved before it; null when it cannot be told).
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    agent_id: str | msgspec.UnsetType = msgspec.UNSET
    hint: str | msgspec.UnsetType = msgspec.UNSET
    holder: str | msgspec.UnsetType = msgspec.UNSET
    since: str | msgspec.UnsetType = msgspec.UNSET
    expires_in: float | msgspec.UnsetType = msgspec.UNSET
    epoch: int | msgspec.UnsetType = msgspec.UNSET
    host: Host | msgspec.UnsetType | None = msgspec.UNSET
    by: str | msgspec.UnsetType = msgspec.UNSET
    landed: bool | msgspec.UnsetType | None = msgspec.UNSET
