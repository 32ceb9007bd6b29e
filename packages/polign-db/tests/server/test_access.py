"""Who may do what: tables over every route that needs a key."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from polign_db.server import keys
from polign_db.server.operations import OPERATIONS, Operation
from polign_recall import Client
from polign_recall.stores import DirectoryStore
from polign_recall.testing.servers import free_port

from .holding import Holder, claim_body, path_of, problem
from .running import Server, limited, new_key, serving

AGENT = "secret/agent"
GUARDED = [operation for operation in OPERATIONS if operation.access != "open"]
OPEN = [operation for operation in OPERATIONS if operation.access == "open"]
MISSING = {"show_agent", "delete_agent", "read_briefing", "store_output", "fetch_output"}
"""Operations that say not_found of an agent that is not there; the others find it empty, or claim it."""


@dataclass
class Guarded:
    """A server that asks for keys, and a key of each kind. AGENT is in collection a, held."""

    server: Server
    directory: Path
    keys: dict[str, str]
    holder: Holder
    ref: str

    def send(self, operation: Operation, headers: dict[str, str], agent_id: str = AGENT) -> httpx.Response:
        """Send a request that is fine but, perhaps, for its headers."""
        path = operation.path.replace("/v1/agents/{id}", path_of(agent_id)).replace("{ref}", self.ref)
        content: dict[str, Any] = {}
        if operation.name == "claim_lease":
            content = {"json": claim_body("intruder")}
        elif operation.name == "append_records":
            content = {"json": self.holder.body("intruded")}
        elif operation.name in ("renew_lease", "release_lease"):
            content = {"json": self.holder.body()}
        elif operation.name == "store_output":
            headers = {**headers, "content-type": "application/octet-stream"}
            content = {"content": b"data"}
        with self.server.client() as client:
            return client.request(operation.method, path, headers=headers, **content)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded") / "records"
    kinds = {"a": ("a", "write"), "a/read": ("a", "read"), "b": ("b", "write"), "root": ("", "write")}
    kinds |= {"new/b": ("new 1", "write"), "new/root": ("new 2", "write")}
    made = {name: new_key(directory, *kind) for name, kind in kinds.items()}  # type: ignore[arg-type]
    with serving(directory, "-require-key") as server, server.client(made["a"]) as client:
        holder = Holder(client, AGENT)
        holder.claim()
        holder.record("only for a")
        where = path_of(AGENT, "/outputs")
        ref = client.put(where, content=b"only for a", headers={"content-type": "application/octet-stream"}).json()[
            "ref"
        ]
        yield Guarded(server, directory, made, holder, ref)


def parts(key: str) -> tuple[str, str]:
    found = keys.parse(key)
    assert found
    return found


@pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.name)
def test_no_route_without_a_good_key(guarded: Guarded, operation: Operation) -> None:
    key_id, secret = parts(guarded.keys["a"])
    other_id, other_secret = parts(guarded.keys["b"])
    key = guarded.keys["a"]
    tokens = [
        "x", key[:-1], key + "0", f"plgn_{key_id}_{'0' * 64}", f"plgn_{key_id}_{other_secret}",
        f"plgn_{'0' * 16}_{secret}", f"plgn_../{other_id}_{secret}",
    ]  # fmt: skip
    others = [
        {},
        {"authorization": "Bearer"},
        {"authorization": key},
        {"authorization": f"Basic {key}"},
        {"x-key": key},
    ]
    for headers in [*map(bearer, tokens), *others]:
        response = guarded.send(operation, headers)
        found = problem(response, 401, "auth_failed")
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert secret not in response.text
        assert set(found) == {"type", "title", "status", "detail", "code", "retryable", "hint"}
    assert guarded.holder.client.get(path_of(AGENT)).json()["turns"] == 1


@pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.name)
def test_a_read_key_reads(guarded: Guarded, operation: Operation) -> None:
    response = guarded.send(operation, bearer(guarded.keys["a/read"]))
    if operation.access == "read":
        assert response.status_code == 200
    else:
        problem(response, 403, "auth_failed")
        assert guarded.holder.client.get(path_of(AGENT)).json()["epoch"] == 1


@pytest.mark.parametrize("other", ["b", "root"])
@pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.name)
def test_a_key_of_another_collection_sees_nothing(guarded: Guarded, operation: Operation, other: str) -> None:
    """Every route answers as it would for an agent that was never there; nothing of it, or of its collection, shows."""
    # A claim makes the agent, so it is made where no other test looks.
    headers = bearer(guarded.keys[f"new/{other}" if operation.name == "claim_lease" else other])
    same = guarded.send(operation, headers)
    never = guarded.send(operation, headers, agent_id=f"never there {operation.name} {other}")
    assert same.status_code == never.status_code
    assert "only for a" not in same.text
    assert "collections" not in same.text
    if operation.name in MISSING:
        problem(same, 404, "not_found")
    elif operation.name == "claim_lease":
        assert same.status_code == 201  # an agent of that name, in the other collection
        assert same.json()["state"].get("turn_count", 0) == 0
    elif operation.access == "write":
        assert same.json()["code"] in ("invalid", "lease_lost")
    else:
        assert same.status_code == 200
        assert AGENT not in same.text
    mine = guarded.holder.client.get(path_of(AGENT)).json()
    assert (mine["holder"], mine["epoch"], mine["turns"]) == ("me", 1, 1)


def test_collections_lie_apart(guarded: Guarded) -> None:
    with Client(store=f"fs:{guarded.directory}/collections/a") as client:
        assert [turn.content for turn in client.resume(AGENT, defer_lease=True).turns()] == ["only for a"]
    names = {path.name for path in guarded.directory.iterdir()}
    assert {"collections", "keys"} <= names
    assert (guarded.directory / "collections" / "a" / "agents" / "secret%2Fagent").is_dir()


@pytest.mark.parametrize("name", ["..", "../b", "a/../b", "b/agents", "%2e%2e", "."])
def test_a_collection_cannot_reach_another(tmp_path: Path, name: str) -> None:
    with Client(local_dir=tmp_path / "r") as client, client.resume("agent") as agent:
        agent.record_turn("user", "of the root")
    key = new_key(tmp_path / "r", name)
    with serving(tmp_path / "r", "-require-key") as server, server.client(key) as client:
        assert client.get("/v1/agents").json()["agents"] == []
        Holder(client).claim()
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["agents", "collections", "keys", "probe"]
    assert len(list((tmp_path / "r" / "collections").iterdir())) == 1


@pytest.mark.parametrize("operation", OPEN, ids=lambda operation: operation.name)
def test_open_routes_need_no_key(guarded: Guarded, operation: Operation) -> None:
    for headers in ({}, bearer("wrong")):
        response = guarded.send(operation, headers)
        assert response.status_code == 200
        assert AGENT not in response.text
        assert parts(guarded.keys["a"])[0] not in response.text


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/agents/", "/v2/agents", "/v1/agents/a/b", "/docs/", "/docs/../docs/x"]
)
def test_paths_that_are_not_there(guarded: Guarded, path: str) -> None:
    with guarded.server.client(guarded.keys["a"]) as client:
        problem(client.get(path), 404, "not_found")


def test_methods_that_are_not_there(guarded: Guarded) -> None:
    with guarded.server.client(guarded.keys["a"]) as client:
        response = client.request("PATCH", path_of(AGENT))
        problem(response, 405, "invalid")
        assert response.headers["allow"] == "DELETE, GET"


def test_a_revoked_key_stops(tmp_path: Path) -> None:
    key, other = new_key(tmp_path), new_key(tmp_path)
    with limited(tmp_path, key_seconds=0.1) as server, server.client(key) as client:
        assert client.get("/v1/agents").status_code == 200
        keys.revoke(DirectoryStore(tmp_path), parts(key)[0])
        for _ in range(600):
            if client.get("/v1/agents").status_code == 401:
                break
            time.sleep(0.05)
        problem(client.get("/v1/agents"), 401, "auth_failed")
        assert client.get("/v1/agents", headers=bearer(other)).status_code == 200


def test_what_is_known_of_a_key_is_not_asked_again(guarded: Guarded) -> None:
    with guarded.server.client(guarded.keys["a"]) as client:
        holder = Holder(client, "quick")
        holder.claim()
        before = guarded.server.store_requests()
        for number in range(5):
            holder.record(f"quick {number}")
        after = guarded.server.store_requests()
    assert after["create"] - before["create"] == 5
    assert after["get"] - before["get"] <= 2  # the key once more, at the most


def test_nothing_secret_is_logged_or_stored(tmp_path: Path) -> None:
    key = new_key(tmp_path, "team")
    _, secret = parts(key)
    with serving(tmp_path, "-require-key") as server:
        with server.client(key) as client:
            holder = Holder(client)
            holder.claim()
            holder.record("PRIVATE TEXT")
            client.get("/v1/agents", params={"after": "PRIVATE QUERY"})
            client.get("/v1/agents", headers=bearer(key + "x"))
        assert server.terminate() == 0
        log = str(server.read_log())
    assert "append_records" in log
    for text in (secret, "PRIVATE", "Bearer"):
        assert text not in log
    assert not any(secret.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_password_in_the_url_of_the_store_is_told_to_nobody() -> None:
    with serving(f"postgresql://me:PRIVATE@127.0.0.1:{free_port()}/records") as server:
        with server.client() as client:
            for path in ("/readyz", "/v1/agents"):
                response = client.get(path)
                problem(response, 503, "store_unavailable")
                assert "PRIVATE" not in response.text
        assert server.terminate() == 0
        assert "PostgreSQL cannot be reached" in str(server.read_log())
        assert "PRIVATE" not in str(server.read_log())


LOCAL = ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:23000", "[::1]:5"]
ELSEWHERE = [
    "evil.example",
    "evil.example:23000",
    "localhost.evil.example",
    "169.254.169.254",
    "10.0.0.1",
    "[::2]",
    "[",
]


@pytest.mark.parametrize("host", [*LOCAL, *ELSEWHERE])
def test_without_keys_only_local_names_are_answered(server: Server, host: str) -> None:
    """A page whose own name is made to lead here must not read a server that asks for no keys."""
    with server.client() as client:
        response = client.get("/v1/agents", headers={"host": host})
    if host in LOCAL:
        assert response.status_code == 200
    else:
        problem(response, 403, "auth_failed")


def test_told_so_any_name_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, "-insecure") as server, server.client() as client:
        assert client.get("/v1/agents", headers={"host": "behind.a.proxy.example"}).status_code == 200


def test_a_key_counts_even_where_none_is_asked(tmp_path: Path) -> None:
    key = new_key(tmp_path, "team", "read")
    with serving(tmp_path) as server, server.client(key) as client:
        assert client.get("/v1/agents").json()["agents"] == []
        problem(client.post(path_of("x", "/lease"), json=claim_body()), 403, "auth_failed")
        problem(client.get("/v1/agents", headers=bearer("wrong")), 401, "auth_failed")


def test_a_damaged_key_opens_nothing(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    stored = tmp_path / "keys" / parts(key)[0]
    stored.write_bytes(stored.read_bytes()[:-5])
    with limited(tmp_path) as server, server.client(key) as client:
        problem(client.get("/v1/agents"), 500, "corrupt")


def test_a_damaged_revocation_revokes(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    _, info = keys.create(store, access="write")
    assert keys.good(store, info.id) is not None
    store.create(f"keys/{info.id}.revoked", b"")
    assert keys.good(store, info.id) is None
    assert keys.every(store)[0].revoked
