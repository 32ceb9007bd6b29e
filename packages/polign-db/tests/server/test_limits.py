"""Limits of size, number and time, each met by a client that goes past it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from polign_recall.outputs import MAX_BYTES

from .holding import Holder, claim_body, path_of, problem
from .running import LONG, Server, limited

QUICK = 0.3


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little patience and little room."""
    directory = tmp_path_factory.mktemp("tight") / "records"
    limits = {"body": 20_000, "head_seconds": QUICK, "body_seconds": QUICK, "read_seconds": QUICK, "idle_seconds": 1}
    with limited(directory, **limits, discard_seconds=QUICK, body_rate=1_000_000) as server:
        yield server


def connected(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=LONG)


def answer(connection: socket.socket) -> bytes:
    """All that the server sends until it closes; empty when it just closes."""
    found = b""
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


def ends_while_sending(connection: socket.socket, data: bytes) -> bool:
    """Whether the server ends the connection while data trickles in."""
    try:
        for _ in range(int(LONG / 0.02)):
            connection.sendall(data)
            time.sleep(0.02)
    except OSError:
        return True
    return False


def post(path: str, length: int, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def test_a_body_too_large(tight: Server) -> None:
    with tight.client() as client:
        holder = Holder(client, "large")
        holder.claim()
        problem(holder.send(holder.body("x" * 20_000)), 413, "too_large")
        data = msgspec.json.encode(holder.body("x" * 20_000))
        pieces = (data[start : start + 1000] for start in range(0, len(data), 1000))
        headers = {"content-type": "application/json"}
        problem(client.post(path_of("large", "/records"), content=pieces, headers=headers), 413, "too_large")
        holder.record("x" * 10_000)


def test_what_is_too_large_is_refused_before_it_is_sent(tight: Server) -> None:
    with tight.client() as client:
        Holder(client, "upload").claim()
    with connected(tight) as connection:
        head = post(path_of("upload", "/outputs"), MAX_BYTES + 1, "Expect: 100-continue")
        connection.sendall(head.replace(b"POST", b"PUT").replace(b"application/json", b"application/octet-stream"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/agents HTTP/1.1\r\nHost: x\r\n", b"G"])
def test_a_head_that_does_not_arrive(tight: Server, sent: bytes) -> None:
    with connected(tight) as connection:
        connection.sendall(sent)
        assert answer(connection) == b""


def test_a_head_in_drops(tight: Server) -> None:
    with connected(tight) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert ends_while_sending(connection, b"X-Slow: x\r\n")


def test_a_head_that_does_not_end(tight: Server) -> None:
    with connected(tight) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000)
        assert answer(connection).startswith((b"HTTP/1.1 400 ", b""))


def test_a_second_head_that_does_not_arrive(tight: Server) -> None:
    with connected(tight) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea")
        assert answer(connection).count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("sent", [b"", b'{"holder":'])
def test_a_body_that_does_not_arrive(tight: Server, sent: bytes) -> None:
    with connected(tight) as connection:
        connection.sendall(post(path_of("slow", "/lease"), 100) + sent)
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_what_was_refused_is_not_read_for_ever(tight: Server) -> None:
    with connected(tight) as connection:
        connection.sendall(post(path_of("x", "/lease"), 10**9))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        assert ends_while_sending(connection, b"x" * 1000)


def test_a_client_that_takes_no_answer(tight: Server) -> None:
    """The answer is larger than what the connection buffers; the server lets go of a client that does not read it."""
    with tight.client() as client:
        Holder(client, "reader").claim()
        headers = {"content-type": "application/octet-stream"}
        ref = client.put(path_of("reader", "/outputs"), content=b"x" * 50_000_000, headers=headers).json()["ref"]
    with connected(tight) as connection:
        request = f"GET {path_of('reader', f'/outputs/{ref}')} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(request.encode())
        await_true(lambda: running(tight) == 2)  # this one, and the look itself
        await_true(lambda: running(tight) == 1)
        assert len(answer(connection)) < 50_000_000


def running(server: Server) -> int:
    with server.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("polign_requests_running ")).split()[1]))


def await_true(check) -> None:  # type: ignore[no-untyped-def]
    for _ in range(int(LONG / 0.02)):
        if check():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true")


def test_too_many_requests_at_once(tmp_path: Path) -> None:
    with limited(tmp_path, requests=3, body_seconds=LONG) as server, server.client() as client:
        waiting = [connected(server) for _ in range(3)]
        for connection in waiting:
            connection.sendall(post(path_of("x", "/lease"), 10))
        await_true(lambda: running(server) == 4)
        response = client.get("/v1/agents")
        assert problem(response, 503, "store_unavailable")["retryable"] is True
        assert response.headers["retry-after"]
        assert client.get("/healthz").status_code == 200
        for connection in waiting:
            connection.close()
        await_true(lambda: running(server) == 1)
        assert client.get("/v1/agents").status_code == 200


def test_too_many_uploads_at_once(tmp_path: Path) -> None:
    with limited(tmp_path, uploads=1) as server, server.client() as client:
        Holder(client).claim()
        first, go_on = threading.Event(), threading.Event()
        headers = {"content-type": "application/octet-stream"}

        def pieces() -> Iterator[bytes]:
            yield b"x" * 1000
            first.set()
            go_on.wait(LONG)
            yield b"y"

        def upload() -> None:
            with server.client() as other:
                answers.append(other.put(path_of("agent", "/outputs"), content=pieces(), headers=headers))

        answers: list[httpx.Response] = []
        thread = threading.Thread(target=upload)
        thread.start()
        first.wait(LONG)
        await_true(lambda: running(server) == 2)
        refused = client.put(path_of("agent", "/outputs"), content=b"x", headers=headers)
        problem(refused, 503, "store_unavailable")
        go_on.set()
        thread.join(LONG)
        assert answers[0].json()["size"] == 1001
        assert client.put(path_of("agent", "/outputs"), content=b"x", headers=headers).status_code == 201


def test_too_many_connections(tmp_path: Path) -> None:
    with limited(tmp_path, connections=3) as server:
        held = [connected(server) for _ in range(3)]
        with connected(server) as one_more:
            assert answer(one_more) == b""
        for connection in held:
            connection.close()


def test_a_client_that_leaves_is_no_error(tmp_path: Path) -> None:
    with limited(tmp_path) as server:
        with connected(server) as connection:
            connection.sendall(post(path_of("x", "/lease"), 100) + b"{")
            await_true(lambda: running(server) == 2)
        await_true(lambda: running(server) == 1)
        assert server.terminate() == 0
        assert not [line for line in server.read_log() if line.get("level") == "error" or "trace" in line]


def test_not_http_at_all(tight: Server) -> None:
    with connected(tight) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 400 ")
    with tight.client() as client:
        assert client.post(path_of("fine", "/lease"), json=claim_body()).status_code == 201
