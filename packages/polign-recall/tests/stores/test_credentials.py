"""Credentials that expire while a store is in use are renewed; the proxy sees which ones signed each request."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.oauth2.service_account import Credentials
from polign_recall import Client
from polign_recall.errors import StoreDenied, StoreUnavailable, StoreUnsupported
from polign_recall.stores import Outcome, gcs, open_store, s3
from polign_recall.stores._answers import Service
from polign_recall.stores.bucket import BucketStore
from polign_recall.testing.proxy import Answer, FaultProxy, Request
from polign_recall.testing.servers import BUCKET, Server

PROCESS = """
import datetime, json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1
count.write_text(str(number))
expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)
print(json.dumps({"Version": 1, "AccessKeyId": f"KEY{number}", "SecretAccessKey": "no secret", "SessionToken": "token",
                  "Expiration": expires.isoformat()}))
"""
"""Gives other credentials each time, good for five minutes: botocore renews ten minutes before the end, so always."""


@pytest.fixture
def proxy(ministack: Server) -> Iterator[FaultProxy]:
    with FaultProxy(ministack.port) as proxy:
        yield proxy


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A profile whose credentials come from a program and expire, and no patience with those at hand."""
    monkeypatch.setattr(s3, "TRUSTED", timedelta(0))
    (tmp_path / "count").write_text("0")
    (tmp_path / "credentials.py").write_text(PROCESS)
    (tmp_path / "config").write_text(
        "[profile work]\nregion = us-east-1\n"
        f"credential_process = {sys.executable} {tmp_path}/credentials.py {tmp_path}/count\n"
    )
    return {"AWS_PROFILE": "work", "AWS_CONFIG_FILE": f"{tmp_path}/config"}


def signer(request: Request) -> tuple[str, str]:
    """Access key and region of a request's signature."""
    found = re.search(r"Credential=(\w+)/\d+/([\w-]+)/s3/", request.headers["authorization"])
    assert found
    return found[1], found[2]


def test_credentials_are_renewed_in_the_middle_of_a_run(
    ministack: Server, proxy: FaultProxy, profile: dict[str, str], area: str
) -> None:
    def the_old_ones_expired(request: Request) -> Answer | None:
        return Answer(400, "ExpiredToken") if number > 1 and signer(request)[0] == "KEY1" else None

    number = 1
    proxy.plan = the_old_ones_expired
    with Client(store=open_store(ministack.url(area, proxy.port), env=profile)) as client, client.resume("a") as agent:
        for number in range(1, 4):
            assert agent.record_turn("user", "hello") == number
    used = [signer(request) for request in proxy.seen]
    assert {region for _, region in used} == {"us-east-1"}
    assert len({key for key, _ in used}) > 3


def test_credentials_that_cannot_be_renewed(
    ministack: Server, proxy: FaultProxy, profile: dict[str, str], area: str, tmp_path: Path
) -> None:
    store = open_store(ministack.url(area, proxy.port), env=profile)
    assert store.create("first", b"value") is Outcome.CREATED
    (tmp_path / "count").write_text("not a number")  # the program fails from here on
    asked = proxy.asked()
    for act in (lambda: store.create("second", b"value"), lambda: store.get("first"), lambda: store.list("")):
        with pytest.raises(StoreUnavailable, match="no credentials"):
            act()
    assert proxy.asked() == asked, "nothing was sent"
    (tmp_path / "count").write_text("100")
    assert store.create("second", b"value") is Outcome.CREATED


def test_credentials_that_expired_for_good(ministack: Server, proxy: FaultProxy, area: str) -> None:
    store = open_store(ministack.url(area, proxy.port), env=ministack.env)
    proxy.plan = lambda request: Answer(400, "ExpiredToken")
    for act in (lambda: store.create("key", b"value"), lambda: store.get("key"), lambda: store.list("")):
        with pytest.raises(StoreDenied, match="ExpiredToken"):
            act()


def test_the_environment_of_the_process_is_not_looked_at(
    ministack: Server, proxy: FaultProxy, area: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "PROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no secret")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    url = ministack.url(area, proxy.port)
    open_store(url, env={"AWS_ACCESS_KEY_ID": "GIVEN", "AWS_SECRET_ACCESS_KEY": "no secret"}).list("")
    with suppress(StoreUnsupported):  # the bucket is elsewhere; what counts is how the request was signed
        open_store(url).list("")
    assert [signer(request) for request in proxy.seen] == [("GIVEN", "us-east-1"), ("PROCESS", "ap-south-1")]


class _Tokens(BaseHTTPRequestHandler):
    """A token server: every token is another one and expires at once."""

    given: list[str]
    refuse: bool

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.given.append(f"token-{len(self.given)}")
        body: dict[str, object] = {"access_token": self.given[-1], "expires_in": 1, "token_type": "Bearer"}
        if self.refuse:
            body = {"error": "invalid_grant", "error_description": "account disabled"}
        data = json.dumps(body).encode()
        self.send_response(400 if self.refuse else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def token_server() -> Iterator[tuple[str, type[_Tokens]]]:
    handler = type("Tokens", (_Tokens,), {"given": [], "refuse": False})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", handler
        server.shutdown()
        thread.join()


def test_google_tokens_are_renewed_in_the_middle_of_a_run(fake_gcs: Server, area: str) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with FaultProxy(fake_gcs.port, rewrite_host=True) as proxy, token_server() as (address, tokens):
        account = {"client_email": "agent@example.com", "token_uri": address, "private_key_id": "1"}
        credentials = Credentials.from_service_account_info(
            {**account, "private_key": key.private_bytes(*form).decode()}, scopes=["storage"]
        )
        service = Service("the bucket", gcs._RIGHTS)
        client = gcs.GcsBucket(BUCKET, f"http://127.0.0.1:{proxy.port}", credentials, service)
        store = BucketStore(client, f"{area}/", "")
        for number in range(3):
            assert store.create(f"key/{number}", b"value") is Outcome.CREATED
        assert len(store.list("key/")) == 3
        used = [request.headers["authorization"] for request in proxy.seen]
        assert used == [f"Bearer {token}" for token in tokens.given]
        assert len(set(used)) == 4

        proxy.plan = lambda request: Answer(401) if request is proxy.seen[4] else None
        assert store.create("key/3", b"value") is Outcome.CREATED, "a token that was revoked is renewed as well"
        tokens.refuse = True
        with pytest.raises(StoreDenied, match="no longer accepted"):
            store.create("key/4", b"value")
        store.close()
