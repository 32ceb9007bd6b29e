"""Looking for secrets in what is stored: in a store object by object, behind a server as far as it gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from polign_recall import Client, Corrupt, Invalid, NotFound
from polign_recall.backend import StoreBackend
from polign_recall.chain import agent_prefix, decode_id, encode_id
from polign_recall.chain.keys import AGENTS
from polign_recall.cleaning import parts
from polign_recall.redact import find, is_named_secret
from polign_recall.stores.base import Store

from .stored import REFERENCE, fetched

PASSES = 3
"""Listings of an agent that is being written while it is read: folding moves what it recorded to other names."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret is. `kind` is a record's type, entry (a holder's name), state (a snapshot's), output or object.

    `seq` is that of a turn or an action, `entry` that of the entry or snapshot, `ref` names an output or an object.
    """

    agent_id: str
    kind: str
    rule: str
    seq: int | None = None
    entry: int | None = None
    ref: str | None = None

    @property
    def where(self) -> str:
        """In words."""
        return " ".join(str(part) for part in (self.kind, self.seq, self.ref) if part is not None)


def every_agent(client: Client) -> list[str]:
    """The agents of a place, in a store also those that were deleted: something may have been left over."""
    if not isinstance(client.backend, StoreBackend):
        return [status.agent_id for status in client.agents()]
    return [decode_id(name) for name in client.backend.store.names(AGENTS) if _is_id(name)]


def scanned(client: Client, agent_id: str) -> list[Hit]:
    """Every place with a secret in what an agent has stored, each once for a rule. Raises NotFound, StoreError."""
    if isinstance(client.backend, StoreBackend):
        return list(dict.fromkeys(_in_store(client, client.backend.store, agent_id)))
    return list(dict.fromkeys(_served(client, agent_id)))


# ---- from a store --------------------------------------------------------------------------------------------------


def _in_store(client: Client, store: Store, agent_id: str) -> Iterator[Hit]:
    prefix = agent_prefix(agent_id)
    seen: set[str] = set()
    for _ in range(PASSES):
        new = [stat.key for stat in store.list(prefix) if stat.key not in seen]
        seen.update(new)
        for key in new:
            yield from _object(client, store, agent_id, key, key.removeprefix(prefix))
        if not new:
            break
    if not seen:
        raise NotFound("there is no such agent", agent_id=agent_id)


def _object(client: Client, store: Store, agent_id: str, key: str, name: str) -> Iterator[Hit]:
    folder, _, last = name.partition("/")
    if folder == "outputs":
        yield from _output(client, agent_id, f"out-{last}")
        return
    blob = store.get(key)
    for line in (blob.data if blob is not None else b"").splitlines():
        try:
            fields = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            fields = line.decode(errors="replace")
        if folder in ("log", "history") and isinstance(fields, dict):
            yield from _state(agent_id, fields) if "state" in fields else _entry(agent_id, fields)
        else:
            yield from _hits(fields, agent_id=agent_id, kind="object", ref=name)


# ---- from a server -------------------------------------------------------------------------------------------------


def _served(client: Client, agent_id: str) -> Iterator[Hit]:
    """What a server gives: entries, the state of its newest snapshot, and the outputs that are spoken of."""
    client.status(agent_id)  # raises NotFound
    refs: dict[str, None] = {}
    for entry in client.backend.entries(agent_id):
        refs.update(dict.fromkeys(ref.decode() for raw in entry.records for ref in REFERENCE.findall(bytes(raw))))
        yield from _entry(agent_id, msgspec.json.decode(msgspec.json.encode(entry)))
    snapshot = client.backend.run(client.backend.chain(agent_id).load()).snapshot
    if snapshot is not None:
        yield from _state(agent_id, {"seq": snapshot.seq, "state": msgspec.json.decode(snapshot.state)})
    for ref in refs:
        try:
            yield from _output(client, agent_id, ref)
        except NotFound:
            continue  # a text that only looks like a reference, or an output that is gone


# ---- what is in it -------------------------------------------------------------------------------------------------


def _entry(agent_id: str, fields: dict[str, Any]) -> Iterator[Hit]:
    records, seq = fields.pop("records", None) or [], fields.get("seq")
    yield from _hits(fields, agent_id=agent_id, kind="entry", entry=seq)
    for record in records:
        known = record if isinstance(record, dict) else {}
        number = known["seq"] if isinstance(known.get("seq"), int) else None
        yield from _hits(record, agent_id=agent_id, kind=str(known.get("type", "record")), seq=number, entry=seq)


def _state(agent_id: str, fields: dict[str, Any]) -> Iterator[Hit]:
    return _hits(fields, agent_id=agent_id, kind="state", entry=fields.get("seq"))


def _output(client: Client, agent_id: str, ref: str) -> Iterator[Hit]:
    try:
        for part in parts(fetched(client, agent_id, ref)):
            yield from _hits(part.decode(errors="replace"), agent_id=agent_id, kind="output", ref=ref)
    except (Corrupt, Invalid):
        return  # damaged, or no output of ours: what could be read of it was looked at


def _hits(value: Any, **where: Any) -> Iterator[Hit]:
    return (Hit(rule=rule, **where) for rule in _rules(value))


def _rules(value: Any, name: str = "") -> Iterator[str]:
    """The rules by which there are secrets in a JSON value, also in the names of its fields."""
    if isinstance(value, str):
        found = [finding.rule for finding in find(value)]
        yield from found or (["named-secret"] if is_named_secret(name, value) else [])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _rules(key)
            yield from _rules(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _rules(item)


def _is_id(name: str) -> bool:
    """Whether a name below `agents/` is one that we give, not somebody else's."""
    try:
        return encode_id(decode_id(name)) == name
    except Invalid:
        return False
