"""Steps and answers, as short as a trace wants them."""

from __future__ import annotations

from typing import Any

from polign_recall.chain.entries import open_entry
from polign_recall.chain.steps import Create, Delete, Get, GetMany
from polign_recall.stores.base import Blob, Outcome, Stat

from .oracle import PREFIX


def brief(what: Any) -> str:
    """A step, or the answer to one."""
    match what:
        case Create(key, data):
            return f"create {short(key)} {describe(key, data)}"
        case Get(key):
            return f"get {short(key)}"
        case GetMany(keys) | Delete(keys):
            return f"{type(what).__name__} {[short(key) for key in keys]}"
        case Outcome():
            return what.name
        case Blob(data):
            return f"{len(data)} bytes"
        case [Stat(), *_]:
            return f"{[short(stat.key) for stat in what]}"
        case [Blob() | None, *_]:
            return f"{[blob and len(blob.data) for blob in what]}"
    return f"{what}"


def short(key: str) -> str:
    """A key without its folder of the agent and its zeros."""
    return "/".join(part.lstrip("0") for part in key.removeprefix(PREFIX).removeprefix("log/").split("/"))


def describe(key: str, data: bytes) -> str:
    """What an entry is, in a few words."""
    if not key.rpartition("/")[2].isdigit():
        return ""
    entry = open_entry(data, key).entry
    return f"({entry.kind}, epoch {entry.epoch}, {entry.put})"
