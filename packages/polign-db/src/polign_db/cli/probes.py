"""What doctor tries out, each with what was found and what to do about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Literal
from uuid import uuid4

import httpx
import msgspec
from polign_recall import AgentStatus, Client, NotFound, RecallError
from polign_recall.backend import StoreBackend
from polign_recall.chain import Chain
from polign_recall.chain.keys import AGENTS, sort_listing
from polign_recall.stores import Outcome, Store
from polign_recall.writer import FOLD_AFTER

FOLDING_LAGS = 4 * FOLD_AFTER
"""Entries above the newest snapshot, or left below it, that say that folding does not keep up."""
CLOCK_APART = 60.0
"""Seconds between two clocks at which a time that is shown misleads. Nothing is decided by comparing them."""
TIMEOUT = 10.0


class Finding(msgspec.Struct, kw_only=True):
    """One thing that was tried. `advice` says what to do, and is empty when there is nothing to do."""

    check: str
    result: Literal["ok", "warning", "failed"]
    detail: str
    advice: str = ""


def of_store(store: Store) -> Iterator[Finding]:
    """Put-if-absent, reading, listing, deleting and the clock of a store, on one small object."""
    key, data = f"probe/{uuid4().hex}", b"polign doctor"
    created = _tried("create", lambda: _create(store, key, data))
    yield created
    if created.result == "ok":
        yield _tried("put-if-absent", lambda: _create_again(store, key))
        yield _tried("read", lambda: _read(store, key, data))
        yield _tried("list", lambda: _list(store, key))
        yield _tried("clock", lambda: _clock(store.now(), "the store's"))
        yield _tried("delete", lambda: _delete(store, key))
    else:
        yield _tried("list", lambda: _names(store))


def of_servers(urls: str | None) -> Iterator[Finding]:
    """Whether each of the servers runs, its store answers, and what its clock says."""
    with httpx.Client(timeout=TIMEOUT) as http:
        for url in (urls or os.environ.get("POLIGN_URL", "")).split(","):
            yield from _server(http, url.rstrip("/"))


def of_access(client: Client) -> Iterator[Finding]:
    """What the key allows: reading and writing are asked for an agent that does not exist."""
    nobody = f"polign-doctor-{uuid4().hex}"
    yield _tried("read", lambda: _allowed(lambda: client.status(nobody), "the key may read"))
    yield _tried("write", lambda: _allowed(lambda: client.delete_agent(nobody), "the key may write"))


def of_agents(client: Client) -> Iterator[Finding]:
    """Whether every agent can be read, and its entries are folded."""
    try:
        found = client.agents()
    except RecallError as error:
        yield _failed("agents", error)
        return
    in_order = 0
    for agent in found:
        finding = _agent(client, agent)
        in_order += finding is None
        if finding is not None:
            yield finding
    if in_order == len(found):
        yield _ok("agents", f"{in_order} agents can be read and are folded")


def _agent(client: Client, agent: AgentStatus) -> Finding | None:
    name = f"agent {agent.agent_id!r}"
    if agent.problem:
        return Finding(
            check="agents", result="failed", detail=f"{name}: {agent.problem}",
            advice="restore the named object from a copy; nothing was changed",
        )  # fmt: skip
    if not isinstance(client.backend, StoreBackend):
        return None  # the server folds
    chain = client.backend.chain(agent.agent_id)
    try:
        above, below = _unfolded(chain, client.backend)
    except RecallError as error:
        return _failed("agents", error)
    if above > FOLDING_LAGS:
        advice = "is the right to create missing below history/? it goes on when a process opens the agent"
        return _warning("folding", f"{name}: {above} entries are not folded", advice)
    if below > FOLDING_LAGS:
        return _warning("folding", f"{name}: {below} folded entries are still there", "give the right to delete")
    return None


def _unfolded(chain: Chain, backend: StoreBackend) -> tuple[int, int]:
    """Entries above the newest snapshot, and folded ones that could have been deleted."""
    replay = backend.run(chain.load())
    listing = sort_listing(backend.store.list(f"{chain.prefix}log/"))
    left = [seq for seq in listing.entries if seq < replay.base and seq not in replay.claims]
    return len(replay.links), len(left)


# ---- single checks -------------------------------------------------------------------------------------------------


def _create(store: Store, key: str, data: bytes) -> Finding:
    if store.create(key, data) is not Outcome.CREATED:
        return _unclear("create", store)
    return _ok("create", f"{store.url} can be written")


def _create_again(store: Store, key: str) -> Finding:
    outcome = store.create(key, b"another value")
    if outcome is Outcome.CREATED:
        advice = "use another store, or another endpoint of it: this one loses records"
        return _bad("put-if-absent", "a key that exists was written again", advice)
    if outcome is Outcome.UNKNOWN:
        return _unclear("put-if-absent", store)
    return _ok("put-if-absent", "a key that exists is not written again")


def _read(store: Store, key: str, data: bytes) -> Finding:
    blob = store.get(key)
    if blob is None or blob.data != data:
        return _bad("read", "what was written just now is not what is read", "use another store or endpoint")
    return _ok("read", "what was written can be read")


def _list(store: Store, key: str) -> Finding:
    if key not in [stat.key for stat in store.list("probe/")]:
        return _bad("list", "what was written just now is not listed", "use another store or endpoint")
    return _names(store)


def _names(store: Store) -> Finding:
    return _ok("list", f"keys can be listed; {len(store.names(AGENTS))} agents")


def _delete(store: Store, key: str) -> Finding:
    if store.delete([key]):
        advice = "give the right to delete: without it, space is not freed and agents cannot be deleted"
        return _warning("delete", f"{key} could not be deleted", advice)
    return _ok("delete", "keys can be deleted")


def _clock(now: float, whose: str) -> Finding:
    apart = now - time.time()
    detail = f"{whose} clock is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} this machine's"
    if abs(apart) > CLOCK_APART:
        return _warning("clock", detail, "set the clock that is wrong: times that are shown mislead")
    return _ok("clock", detail)


def _server(http: httpx.Client, url: str) -> Iterator[Finding]:
    try:
        alive = http.get(f"{url}/healthz")
        ready = http.get(f"{url}/readyz")
    except httpx.HTTPError as error:
        yield _bad("server", f"{url}: {error}", "is polign-server running there, and is the address right?")
        return
    if not alive.is_success:
        yield _bad("server", f"{url} answers {alive.status_code}", "is it a polign-server? something may be in between")
        return
    yield _ok("server", f"{url} runs")
    if ready.is_success:
        yield _ok("ready", f"the store of {url} answers")
    else:
        detail = f"the store of {url} does not answer: {ready.text[:300]}"
        yield _bad("ready", detail, "run polign doctor --store on the server's machine")
    if "date" in alive.headers:
        yield _clock(parsedate_to_datetime(alive.headers["date"]).timestamp(), f"{url}'s")


def _allowed(ask: Callable[[], object], allowed: str) -> Finding:
    try:
        ask()
    except NotFound:
        pass  # it was looked for, so that is allowed
    return _ok(allowed.rpartition(" ")[2], allowed)


def _tried(check: str, run: Callable[[], Finding]) -> Finding:
    try:
        return run()
    except RecallError as error:
        return _failed(check, error)


def _ok(check: str, detail: str) -> Finding:
    return Finding(check=check, result="ok", detail=detail)


def _warning(check: str, detail: str, advice: str) -> Finding:
    return Finding(check=check, result="warning", detail=detail, advice=advice)


def _bad(check: str, detail: str, advice: str) -> Finding:
    return Finding(check=check, result="failed", detail=detail, advice=advice)


def _unclear(check: str, store: Store) -> Finding:
    return _bad(check, f"{store.url} gave no clear answer", "run doctor again; if it stays so, look at the store")


def _failed(check: str, error: RecallError) -> Finding:
    return _bad(check, f"[{error.code}] {error.message}", error.hint or "")
