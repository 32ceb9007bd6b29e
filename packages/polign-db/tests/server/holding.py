"""A holder of an agent that writes through servers: what a client has to do, in small."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
from polign_recall.chain import FORMAT, Entry
from polign_recall.chain.entries import seal

TTL = 3600
"""Seconds: no lease expires while a test runs, however slowly."""
AT = "2026-11-29T12:00:00.000Z"


def path_of(agent_id: str, rest: str = "") -> str:
    """The path of an agent. A dot at the beginning is encoded, or clients take `..` for the folder above."""
    segment = quote(agent_id, safe="")
    return f"/v1/agents/{'%2E' + segment[1:] if segment.startswith('.') else segment}{rest}"


def new_put() -> str:
    return uuid.uuid4().hex


def turn(text: str, seq: int) -> dict[str, Any]:
    return {"type": "turn", "role": "user", "content": text, "seq": seq, "at": AT}


def claim_body(holder: str = "me", **more: Any) -> dict[str, Any]:
    return {"holder": holder, "ttl": TTL, "put": new_put(), "at": AT, **more}


class Holder:
    """Holds one agent, and knows the end of its chain."""

    def __init__(self, client: httpx.Client, agent_id: str = "agent", holder: str = "me") -> None:
        self.client = client
        self.agent_id = agent_id
        self.holder = holder
        self.seq = self.epoch = self.turns = 0
        self.prev = ""

    def claim(self, **more: Any) -> dict[str, Any]:
        """Claim the lease; gives the answer."""
        response = self.client.post(path_of(self.agent_id, "/lease"), json=claim_body(self.holder, **more))
        assert response.status_code == 201, response.text
        head: dict[str, Any] = response.json()
        self.seq, self.epoch, self.prev = head["seq"], head["epoch"], head["digest"]
        self.turns = head["state"].get("turn_count", 0)
        return head

    def body(self, *texts: str, **more: Any) -> dict[str, Any]:
        """The body of the next write; with texts, of turns."""
        turns = [turn(text, self.turns + number) for number, text in enumerate(texts, 1)]
        found = {"epoch": self.epoch, "seq": self.seq + 1, "prev": self.prev, "put": new_put(), "holder": self.holder}
        return {**found, "at": AT, **({"records": turns} if turns else {}), **more}

    def send(self, body: dict[str, Any], where: str = "/records", by: httpx.Client | None = None) -> httpx.Response:
        """Send a write; an acknowledged one moves the end of the chain."""
        response = (by or self.client).post(path_of(self.agent_id, where), json=body)
        if response.status_code == 200:
            self.take(body, response.json())
        return response

    def take(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        """Take in that a write was acknowledged."""
        if answer["seq"] > self.seq:
            self.turns += len(body.get("records", []))
        self.seq, self.prev = answer["seq"], answer["digest"]

    def record(self, *texts: str) -> httpx.Response:
        """Record turns, durably."""
        response = self.send(self.body(*texts))
        assert response.status_code == 200, response.text
        return response

    def renew(self) -> httpx.Response:
        return self.send(self.body(), "/lease/renew")

    def release(self) -> httpx.Response:
        return self.send(self.body(), "/lease/release")


def sealed(body: dict[str, Any], kind: Any = "records") -> str:
    """The digest that a client of the store itself would give this entry."""
    fields = {name: body[name] for name in ("epoch", "seq", "prev", "put", "holder", "at")}
    records = [msgspec.Raw(msgspec.json.encode(record)) for record in body.get("records", [])]
    return seal(Entry(v=FORMAT, kind=kind, records=records, **fields)).digest


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a response is this problem, as RFC 9457 has it; gives it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert (found["status"], found["code"], found["type"]) == (status, code, f"urn:polign:problem:{code}")
    assert found["title"]
    assert found["detail"]
    return found
