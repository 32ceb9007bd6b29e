"""A real polign-server process on a free port of 127.0.0.1, and what it logs."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from polign_db.server import keys
from polign_recall import open_store

LONG = 60.0
"""Seconds after which something that should have happened is a failure."""
PROGRAM = """
import json, sys
from polign_db.server.limits import Limits
from polign_db.server.serving import Options, serve
serve(Options(sys.argv[1], sys.argv[2], limits=Limits(**json.loads(sys.argv[3]))))
"""


class Server:
    """A server process. `log` has the lines that were read so far."""

    def __init__(self, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.log: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url: str = self.event("listening")["url"]

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._lines.put(json.loads(line) if line.startswith("{") else {"event": "text", "text": line})
        self._lines.put(None)

    def event(self, name: str) -> dict[str, Any]:
        """Wait for the next line of this event that has not been read yet."""
        while True:
            line = self._lines.get(timeout=LONG)
            assert line is not None, f"the server ended without {name!r}: {self.log}"
            self.log.append(line)
            if line["event"] == name:
                return line

    def read_log(self) -> list[dict[str, Any]]:
        """Everything logged, once the process has ended."""
        self.process.wait(LONG)
        self._reader.join(LONG)
        while not self._lines.empty():
            if line := self._lines.get():
                self.log.append(line)
        return self.log

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """An HTTP client of this server."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=LONG, trust_env=False, **options)

    def store_requests(self) -> dict[str, int]:
        """How many requests the store got so far, by operation."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        found: dict[str, int] = {}
        for line in lines:
            if line.startswith("polign_store_requests_total{"):
                operation = line.partition('operation="')[2].partition('"')[0]
                found[operation] = found.get(operation, 0) + int(float(line.rpartition(" ")[2]))
        return found

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(LONG)

    def terminate(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONG)

    def close(self) -> None:
        """End the process if it runs still, and let go of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LONG)
        self._reader.join(LONG)
        assert self.process.stderr
        self.process.stderr.close()


@contextmanager
def serving(store: Path | str, *args: str) -> Iterator[Server]:
    """A server of the command, with these arguments."""
    command = Path(sys.executable).with_name("polign-server")
    server = Server([str(command), "-store", str(store), "-http", "127.0.0.1:0", *args])
    try:
        yield server
    finally:
        server.close()


@contextmanager
def limited(store: Path, **limits: float) -> Iterator[Server]:
    """A server with limits of its own."""
    server = Server([sys.executable, "-c", PROGRAM, str(store), "127.0.0.1:0", json.dumps(limits)])
    try:
        yield server
    finally:
        server.close()


def new_key(store: Path, collection: str = "", access: keys.Access = "write") -> str:
    """A key for the server on this directory."""
    opened = open_store(str(store))
    key, _ = keys.create(opened, collection=collection, access=access)
    opened.close()
    return key
