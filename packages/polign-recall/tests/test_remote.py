"""The client's side of the wire, against a server that answers whatever a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from polign_recall import (
    AuthFailed,
    Client,
    Corrupt,
    FormatTooNew,
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RecallError,
    StoreDenied,
    StoreUnavailable,
    StoreUnsupported,
    TooLarge,
    WriteUnknown,
    errors,
)
from polign_recall.chain import Host
from polign_recall.remote import RemoteBackend

REF = "out-" + "0" * 32
STATUS = json.dumps({"agent_id": "a", "turns": 7}).encode()
HEAD = json.dumps(
    {"v": 1, "seq": 1, "epoch": 1, "digest": "d" * 32, "kind": "claim", "put": "p", "claims": [1],
     "lease": {"holder": "me", "epoch": 1, "ttl": 60.0, "since": "2026-11-29T12:00:00Z"}, "state": {}}
).encode()  # fmt: skip


@dataclass
class Answer:
    """What the server says."""

    status: int = 200
    body: bytes = b""
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def problem(status: int, code: str, **more: Any) -> Answer:
    told = {"type": f"urn:polign:problem:{code}", "title": "T", "status": status, "detail": "why", "code": code}
    return Answer(status, json.dumps({**told, **more}).encode(), "application/problem+json")


class Scripted:
    """An HTTP server that gives these answers, one after another, and the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[Any] = set()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                script.seen.append((self.command, self.path, dict(self.headers), body))
                script.connections.add(self.client_address)
                answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                self.send_response(answer.status)
                headers = {"Content-Type": answer.type, "Content-Length": str(len(answer.body)), **answer.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)
                self.close_connection = len(answer.body) != int(headers["Content-Length"])

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Scripted:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def started() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def server(started: Scripted) -> Scripted:
    started.seen.clear()
    return started


@pytest.fixture(scope="module")
def backend(started: Scripted) -> Iterator[RemoteBackend]:
    backend = RemoteBackend([started.url], "plgn_key")
    yield backend
    backend.close()


pytestmark = pytest.mark.usefixtures("no_pauses")

# ---- errors --------------------------------------------------------------------------------------------------------

TOLD = [
    (problem(409, "lease_held", agent_id="a", holder="h", since="s", expires_in=2.5, epoch=3), LeaseHeld),
    (problem(409, "lease_lost", agent_id="a", by="h", epoch=3, landed=True), LeaseLost),
    (problem(404, "not_found", agent_id="a"), NotFound), (problem(403, "store_denied", agent_id="a"), StoreDenied),
    (problem(422, "invalid", agent_id="a"), Invalid), (problem(409, "invalid", agent_id="a"), Invalid),
    (problem(413, "too_large", agent_id="a"), TooLarge), (problem(500, "corrupt", agent_id="a"), Corrupt),
    (problem(501, "format_too_new", agent_id="a"), FormatTooNew),
    (problem(501, "store_unsupported", agent_id="a"), StoreUnsupported),
    (problem(401, "auth_failed", agent_id="a"), AuthFailed), (problem(403, "auth_failed", agent_id="a"), AuthFailed),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "error"), TOLD, ids=lambda value: getattr(value, "status", None))
def test_an_error_comes_as_it_was_raised_there(
    server: Scripted, backend: RemoteBackend, answer: Answer, error: type[RecallError]
) -> None:
    server.answers = [answer]

    with pytest.raises(error, match="why") as told:
        backend.status("a")

    assert (told.value.agent_id, told.value.message, told.value.code) == ("a", "why", error.code)
    assert len(server.seen) == 1, "what will not change is not asked again"
    for name in ("holder", "since", "expires_in", "by", "landed", "epoch"):
        if hasattr(told.value, name):
            assert getattr(told.value, name) == json.loads(answer.body)[name]


def test_every_error_of_the_tree_that_a_server_can_tell_is_known() -> None:
    told = {error.code for _, error in TOLD}
    ours = {cls.code for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, RecallError)}
    assert ours - told == {"error", "lease_not_held", "closed", "store_unavailable", "write_unknown"}


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_by_something_in_between_is_told_as_one(
    server: Scripted, backend: RemoteBackend, status: int
) -> None:
    server.answers = [Answer(status, b"<html>go away</html>", "text/html")]

    with pytest.raises(AuthFailed, match=r"answered 40\d .*POLIGN_API_KEY"):
        backend.status("a")


NO_ANSWER = [
    Answer(500), Answer(502, b"<html>", "text/html"), Answer(503), Answer(504), Answer(404, b"no such site"),
    Answer(429), Answer(302, headers={"Location": "http://127.0.0.1:1/"}), Answer(204), Answer(200, b""),
    Answer(200, b"<html>welcome</html>", "text/html"), Answer(200, b"[]"), Answer(200, b'{"turns": 7}'),
    Answer(200, b'{"agent_id": "\xff"}'), Answer(200, STATUS[:9], headers={"Content-Length": str(len(STATUS))}),
    Answer(200, b"no gzip", headers={"Content-Encoding": "gzip"}), Answer(400, b'{"code": "unheard_of"}'),
    problem(503, "store_unavailable"), problem(503, "write_unknown"), problem(500, "error"), problem(408, "invalid"),
]  # fmt: skip


@pytest.mark.parametrize("answer", NO_ANSWER, ids=range(len(NO_ANSWER)))
def test_what_is_no_answer_is_asked_again(server: Scripted, backend: RemoteBackend, answer: Answer) -> None:
    server.answers = [answer, answer, answer, Answer(200, STATUS)]

    assert backend.status("a").turns == 7

    assert len(server.seen) == 4
    server.answers = [answer]
    with pytest.raises(StoreUnavailable):
        backend.status("a")


# Something that reads like success, or like a refusal, and cannot be the server's word on the write.
UNCLEAR = [answer for answer in NO_ANSWER if answer.body not in (NO_ANSWER[-4].body, NO_ANSWER[-1].body)]


@pytest.mark.parametrize("answer", UNCLEAR, ids=range(len(UNCLEAR)))
def test_an_unclear_answer_to_a_write_is_never_success(
    server: Scripted, backend: RemoteBackend, answer: Answer
) -> None:
    chain = backend.chain("a")
    server.answers = [Answer(201, HEAD)]
    backend.run(chain.acquire(ttl=60, holder="me", host=Host()))
    server.answers = [answer]

    with pytest.raises(WriteUnknown, match="no answer says whether it was saved"):
        backend.run(chain.append("renew"))

    assert chain.pending is not None
    bodies = [json.loads(body) for _, path, _, body in server.seen if path.endswith("/renew")]
    assert [body.pop("again") for body in bodies] == [False] + [True] * (len(bodies) - 1)
    assert all(body == bodies[0] for body in bodies), "the same write, byte for byte"
    server.answers = [Answer(200, json.dumps({"digest": chain.pending.link.digest}).encode())]
    assert backend.run(chain.settle()).entry.seq == 2
    assert chain.pending is None


@pytest.mark.parametrize(
    "answer", [problem(503, "store_unavailable"), problem(422, "invalid"), problem(401, "auth_failed")]
)
def test_a_write_that_was_surely_refused_leaves_nothing_pending(
    server: Scripted, backend: RemoteBackend, answer: Answer
) -> None:
    chain = backend.chain("a")
    server.answers = [Answer(201, HEAD)]
    backend.run(chain.acquire(ttl=60, holder="me", host=Host()))
    server.answers = [answer]

    with pytest.raises(RecallError) as told:
        backend.run(chain.append("renew"))

    assert told.value.code == json.loads(answer.body)["code"]
    assert (chain.pending, chain.replay.seq) == (None, 1)
    assert not any(b'"again":true' in body for *_, body in server.seen)


def test_other_bytes_than_were_sent_are_noticed(server: Scripted, backend: RemoteBackend) -> None:
    chain = backend.chain("a")
    server.answers = [Answer(201, HEAD)]
    backend.run(chain.acquire(ttl=60, holder="me", host=Host()))
    server.answers = [Answer(200, b'{"digest": "another"}')]
    with pytest.raises(Corrupt, match="other bytes"):
        backend.run(chain.append("renew"))
    server.answers = [Answer(201, json.dumps({"ref": REF, "size": 3}).encode())]
    with pytest.raises(Corrupt, match="other bytes"):
        backend.put_output("a", b"abc")


# ---- claims and deletions whose answer was lost --------------------------------------------------------------------


def test_a_claim_that_was_overtaken_unheard_is_made_anew(server: Scripted, backend: RemoteBackend) -> None:
    lost = problem(409, "lease_lost", agent_id="a", by="other", epoch=2, landed=True)
    held = problem(409, "lease_held", agent_id="a", holder="other", since="s", expires_in=9.0, epoch=2)
    server.answers = [Answer(502), lost, held]

    with pytest.raises(LeaseHeld) as told:
        backend.run(backend.chain("a").acquire(ttl=60, holder="me", host=Host()))

    assert told.value.holder == "other"
    puts = [json.loads(body)["put"] for *_, body in server.seen]
    assert puts[0] == puts[1] != puts[2]


def test_a_holder_that_is_dead_on_this_host_is_replaced_at_once(server: Scripted, backend: RemoteBackend) -> None:
    held = problem(409, "lease_held", holder="dead", since="s", expires_in=9.0, epoch=7, host={"boot": "b", "pid": 1})
    server.answers = [held, Answer(201, HEAD)]
    chain = backend.chain("a")
    chain.env.dead = lambda host: host is not None and host.pid == 1

    backend.run(chain.acquire(ttl=60, holder="me", host=Host()))

    assert [json.loads(body)["dead_epoch"] for *_, body in server.seen] == [None, 7]


def test_a_deletion_whose_answer_was_lost_was_one(server: Scripted, backend: RemoteBackend) -> None:
    server.answers = [Answer(502), problem(404, "not_found", agent_id="a")]
    assert backend.delete("a").refused == []

    server.answers = [problem(503, "store_unavailable"), problem(404, "not_found", agent_id="a")]
    with pytest.raises(NotFound):
        backend.delete("a")


# ---- requests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent_id", "segment"),
    [("a", "a"), ("a/b", "a%2Fb"), (".", "%2E"), ("..", "%2E."), ("Ünï", "%C3%9Cn%C3%AF"), ("a b", "a%20b"),
     ("?#%", "%3F%23%25")],
)  # fmt: skip
def test_an_id_stays_one_segment_of_the_path(
    server: Scripted, backend: RemoteBackend, agent_id: str, segment: str
) -> None:
    server.answers = [Answer(200, STATUS)]

    backend.status(agent_id)

    assert [path for _, path, _, _ in server.seen] == [f"/v1/agents/{segment}"]
    assert server.seen[0][2]["Authorization"] == "Bearer plgn_key"


PARTS = [
    ((0, None), None, Answer(200, b"abcdef"), b"abcdef"), ((1, None), "bytes=1-", Answer(206, b"bcdef"), b"bcdef"),
    ((1, 2), "bytes=1-2", Answer(206, b"bc"), b"bc"), ((1, 2), "bytes=1-2", Answer(200, b"abcdef"), b"bc"),
    ((0, 0), "bytes=0-0", Answer(206, b"a"), b""), ((9, 0), "bytes=9-9", problem(416, "invalid"), b""),
    ((9, None), "bytes=9-", problem(416, "invalid"), b""), ((9, None), "bytes=9-", Answer(200, b"abcdef"), b""),
]  # fmt: skip


@pytest.mark.parametrize(("part", "asked", "answer", "got"), PARTS, ids=range(len(PARTS)))
def test_a_part_of_an_output(
    server: Scripted,
    backend: RemoteBackend,
    part: tuple[int, int | None],
    asked: str | None,
    answer: Answer,
    got: bytes,
) -> None:
    server.answers = [answer]

    assert backend.get_output("a", REF, *part) == got

    assert server.seen[0][2].get("Range") == asked


@pytest.mark.parametrize("answer", [Answer(302, b"moved"), Answer(500, b"oops"), Answer(404, b"<html>")])
def test_the_body_of_an_error_is_no_output(server: Scripted, backend: RemoteBackend, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(StoreUnavailable):
        backend.get_output("a", REF)


def test_a_connection_is_kept() -> None:
    with Scripted() as server:
        server.answers = [Answer(200, STATUS)]
        backend = RemoteBackend([server.url])
        for _ in range(20):
            backend.status("a")
        assert (len(server.seen), len(server.connections)) == (20, 1)
        backend.close()


def test_all_pages_are_read(server: Scripted, backend: RemoteBackend) -> None:
    pages: list[dict[str, Any]] = [
        {"agents": [{"agent_id": "a"}], "next": "a"}, {"agents": [], "next": "b"},
        {"agents": [{"agent_id": "c"}], "next": None},
    ]  # fmt: skip
    server.answers = [Answer(200, json.dumps(page).encode()) for page in pages]

    assert [status.agent_id for status in backend.agents()] == ["a", "c"]

    assert [path.partition("?")[2] for _, path, _, _ in server.seen] == [
        "limit=200", "limit=200&after=a", "limit=200&after=b",
    ]  # fmt: skip


# ---- replicas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [Answer(502), problem(503, "store_unavailable"), Answer(200, b"<html>")])
def test_a_replica_that_does_not_do_is_left_for_the_next(server: Scripted, bad: Answer) -> None:
    server.answers = [Answer(200, STATUS)]
    with Scripted() as other:
        other.answers = [bad]
        backend = _at_first([other.url, server.url])
        assert [backend.status("a").turns for _ in range(3)] == [7, 7, 7]
        backend.close()
    assert (len(other.seen), len(server.seen)) == (1, 3)


def test_a_replica_that_is_not_there_is_left_for_the_next(server: Scripted) -> None:
    server.answers = [Answer(200, STATUS)]
    backend = _at_first(["http://127.0.0.1:1", server.url])
    assert [backend.status("a").turns for _ in range(3)] == [7, 7, 7]
    backend.close()


def _at_first(urls: list[str]) -> RemoteBackend:
    backend = RemoteBackend(urls)
    backend._at = 0
    return backend


def test_a_replica_that_was_left_already_is_not_left_again() -> None:
    backend = RemoteBackend(["http://a", "http://b", "http://c"])
    backend._at = 2
    backend._leave_replica(2)
    assert backend._at == 0
    backend._leave_replica(0)
    backend._leave_replica(2)  # by a thread that asked it before
    assert backend._at == 1
    backend.close()


@pytest.mark.parametrize(
    "url",
    ["", "http://", "127.0.0.1:23000", "ftp://host", "http://a,,http://b", "http://[::1", "http://a\x00b", "x" * 10],
)
def test_what_is_no_url_of_a_server_is_named(url: str) -> None:
    with pytest.raises(Invalid, match="is not the URL of a server"):
        Client(url=url, env={})


@pytest.mark.parametrize("key", ["plgn_ü", "plgn_a\nb"])
def test_what_can_be_no_key_is_named_without_showing_it(key: str) -> None:
    with pytest.raises(Invalid, match="POLIGN_API_KEY") as told:
        Client(url="http://127.0.0.1:1", api_key=key, env={})
    assert key not in str(told.value)


def test_urls_and_key_come_from_the_environment(server: Scripted) -> None:
    server.answers = [Answer(200, STATUS)]
    env = {"POLIGN_URL": f" {server.url}/below/ , {server.url}/below", "POLIGN_API_KEY": "plgn_env"}
    with Client(env=env) as client:
        client.status("a")
    assert [(path, headers["Authorization"]) for _, path, headers, _ in server.seen] == [
        ("/below/v1/agents/a", "Bearer plgn_env")
    ]


def test_a_server_that_is_not_there_is_named() -> None:
    with (
        Client(url="http://127.0.0.1:1", env={}) as client,
        pytest.raises(StoreUnavailable, match=r"cannot be reached.*is polign-server running"),
    ):
        client.status("a")
