"""The process: what it binds, TLS, health, and a graceful end."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from polign_db.server.serving import address_of
from polign_recall import Client, Invalid, StoreUnavailable

from .holding import Holder, claim_body, path_of, problem
from .running import LONG, Server, serving

COMMAND = str(Path(sys.executable).with_name("polign-server"))


def refused(*args: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([COMMAND, *args], capture_output=True, text=True, timeout=60, env=env or {})
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("http", ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0"])
def test_without_keys_it_binds_loopback_only(tmp_path: Path, http: str) -> None:
    message = refused("-store", str(tmp_path), "-http", http)
    assert "-require-key" in message
    assert "-insecure" in message


@pytest.mark.parametrize("args", [("-insecure",), ("-require-key",), ("--insecure",), ("--require-key",)])
def test_told_so_it_binds_every_address(tmp_path: Path, args: tuple[str]) -> None:
    server = Server([COMMAND, "--store", str(tmp_path), "--http", "0.0.0.0:0", *args])
    try:
        assert server.url.startswith("http://0.0.0.0:")
        port = server.url.rpartition(":")[2]
        response = httpx.get(f"http://127.0.0.1:{port}/v1/agents", trust_env=False, headers={"host": "any.example"})
        assert response.status_code == (200 if "insecure" in args[0] else 401)
    finally:
        server.close()


@pytest.mark.parametrize("http", ["127.0.0.1", "23000", "127.0.0.1:x", "127.0.0.1:70000", "::1:5", "127.0.0.1:-1"])
def test_addresses_that_cannot_be_used(http: str) -> None:
    with pytest.raises(Invalid, match="HOST:PORT"):
        address_of(http)


def test_addresses() -> None:
    assert address_of("127.0.0.1:23000") == ("127.0.0.1", 23000)
    assert address_of("[::1]:5") == ("::1", 5)
    assert address_of(":0") == ("", 0)


def test_what_cannot_be_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused("-store", str(tmp_path), "-http", f"127.0.0.1:{port}")
    assert "[invalid]" in refused("-store", str(tmp_path / "no" / "such"))
    assert "[store_unsupported]" in refused("-store", "gopher://x")
    assert "store" in refused()
    assert "go together" in refused("-store", str(tmp_path), "-tls-cert", "x")
    assert "cannot be used" in refused("-store", str(tmp_path), "-tls-cert", "no", "-tls-key", "no")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("tls")
    cert, key = place / "cert.pem", place / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return cert, key


@pytest.mark.usefixtures("no_pauses")
def test_tls(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = certificate
    with serving(tmp_path, "-tls-cert", str(cert), "-tls-key", str(key)) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=server.url, verify=context, trust_env=False) as client:
            Holder(client).claim()
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https", "http"), trust_env=False)
        with Client(url=server.url, env={}) as stranger, pytest.raises(StoreUnavailable, match="certificate"):
            stranger.status("agent")
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with Client(url=server.url, env={}) as friend:
            assert friend.status("agent").held
        assert server.terminate() == 0


def test_health_and_metrics(server: Server, client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    Holder(client, "measured").claim()
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = metrics.text.splitlines()
    assert 'polign_requests_total{operation="claim_lease",status="201"} 1.0' in lines
    assert 'polign_request_seconds_count{operation="claim_lease"} 1.0' in lines
    assert any(line.startswith("polign_store_requests_total{") for line in lines)
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert "measured" not in metrics.text


DOWN = """
import os, sys
import polign_db.server.serving as serving
from polign_recall import StoreUnavailable
from polign_recall.stores import DirectoryStore
class Down(DirectoryStore):
    def get(self, key, start=0, length=None):
        if os.path.exists(sys.argv[2]):
            raise StoreUnavailable("the store is down")
        return super().get(key, start, length)
serving.open_store = Down
serving.serve(serving.Options(sys.argv[1], "127.0.0.1:0"))
"""


def test_not_ready_without_its_store(tmp_path: Path) -> None:
    flag = tmp_path / "down"
    server = Server([sys.executable, "-c", DOWN, str(tmp_path / "r"), str(flag)])
    try:
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
            flag.touch()
            response = client.get("/readyz")
            assert problem(response, 503, "store_unavailable")["retryable"] is True
            assert response.headers["retry-after"] == "1"
            assert client.get("/healthz").status_code == 200
            flag.unlink()
            assert client.get("/readyz").status_code == 200
    finally:
        server.close()


def test_an_answer_that_cannot_be_finished_is_broken_off(tmp_path: Path) -> None:
    flag = tmp_path / "down"
    server = Server([sys.executable, "-c", DOWN, str(tmp_path / "r"), str(flag)])
    try:
        with server.client() as client:
            Holder(client).claim()
            headers = {"content-type": "application/octet-stream"}
            ref = client.put(path_of("agent", "/outputs"), content=b"x" * 50_000_000, headers=headers).json()["ref"]
            with client.stream("GET", path_of("agent", f"/outputs/{ref}")) as response:
                assert response.status_code == 200
                flag.touch()
                with pytest.raises(httpx.RemoteProtocolError):
                    response.read()
            flag.unlink()
            assert client.get("/readyz").status_code == 200
        assert server.event("an answer was cut off")["error"].startswith("[store_unavailable]")
    finally:
        server.close()


HANGING = """
import os, sys, time
import polign_db.server.serving as serving
from polign_db.server.limits import Limits
from polign_recall.stores import DirectoryStore
class Hanging(DirectoryStore):
    def create(self, key, data):
        if os.path.exists(sys.argv[2]) and "/log/" in key:
            time.sleep(3)
        return super().create(key, data)
serving.open_store = Hanging
serving.serve(serving.Options(sys.argv[1], "127.0.0.1:0", limits=Limits(write_seconds=0.2)))
"""


def test_a_store_that_hangs_leaves_the_write_unknown(tmp_path: Path) -> None:
    flag = tmp_path / "hangs"
    server = Server([sys.executable, "-c", HANGING, str(tmp_path / "r"), str(flag)])
    try:
        with server.client() as client:
            holder = Holder(client)
            holder.claim()
            holder.record("one")
            body = holder.body("two")
            flag.touch()
            response = holder.send(body)
            found = problem(response, 503, "write_unknown")
            assert (found["retryable"], found["agent_id"]) == (True, "agent")
            assert response.headers["retry-after"]
            claim = claim_body("other", takeover=True)
            problem(client.post(path_of("agent", "/lease"), json=claim), 503, "write_unknown")
            flag.unlink()
            assert holder.send({**body, "again": True}).status_code == 200
            holder.record("three")
            turns = client.get(path_of("agent", "/turns")).json()["turns"]
            assert [turn["content"] for turn in turns] == ["one", "two", "three"]
    finally:
        server.close()


def test_sigterm_finishes_what_is_under_way(tmp_path: Path) -> None:
    """Writers go on until the end: whatever was answered is there, and requests under way are answered."""
    with serving(tmp_path / "r") as server:
        done: list[list[str]] = [[] for _ in range(4)]
        sure = threading.Barrier(5)

        def write(number: int) -> None:
            with server.client() as client:
                holder = Holder(client, f"agent-{number}")
                holder.claim()
                sure.wait(LONG)
                for count in range(100_000):
                    try:
                        response = holder.send(holder.body(f"{number}/{count}"))
                    except httpx.TransportError:
                        return
                    assert response.status_code == 200
                    done[number].append(f"{number}/{count}")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        sure.wait(LONG)
        while min(len(texts) for texts in done) < 100:
            time.sleep(0.01)
        # A large upload is half there when the signal comes.
        half = threading.Event()

        def upload() -> httpx.Response:
            def pieces():  # type: ignore[no-untyped-def]
                yield b"x" * 1_000_000
                half.set()
                time.sleep(0.5)
                yield b"y" * 1_000_000

            with server.client() as client:
                headers = {"content-type": "application/octet-stream"}
                return client.put(path_of("agent-0", "/outputs"), content=pieces(), headers=headers)

        answers: list[httpx.Response] = []
        uploading = threading.Thread(target=lambda: answers.append(upload()))
        uploading.start()
        half.wait(LONG)
        assert server.terminate() == 0
        for thread in (*threads, uploading):
            thread.join(LONG)
        assert [answer.status_code for answer in answers] == [201]
        assert server.read_log()[-1]["event"] == "stopped"
    with Client(local_dir=tmp_path / "r") as client:
        for number in range(4):
            found = [turn.content for turn in client.resume(f"agent-{number}", defer_lease=True).turns()]
            # At most the one write whose answer was cut off may be there besides.
            assert found[: len(done[number])] == done[number]
            assert len(found) <= len(done[number]) + 1


def test_a_server_on_a_store_that_lies_does_not_start(tmp_path: Path) -> None:
    script = """
import sys
from polign_recall.stores import DirectoryStore, Outcome
import polign_db.server.serving as serving
class Lying(DirectoryStore):
    def create(self, key, data):
        super().create(key, data)
        return Outcome.CREATED
serving.open_store = Lying
from polign_db.server.main import main
main(["-store", sys.argv[1], "-http", "127.0.0.1:0"])
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "[store_unsupported]" in done.stderr
    assert "Traceback" not in done.stderr


def test_problem_documents_name_the_code(client: httpx.Client) -> None:
    found = problem(client.get("/v1/agents?limit=0"), 422, "invalid")
    assert found["title"] == "Unprocessable Entity" or found["title"] == "Unprocessable Content"
