"""A proxy on 127.0.0.1 that breaks HTTP on purpose, for tests: between a client and its server.

    with FaultProxy(server.port) as proxy:
        proxy.plan = lambda request: Fault.LOST if request.method == "PUT" else None

Every connection carries one request. What was asked is kept in `proxy.seen`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypeAlias

_PATIENCE = 30.0
"""Seconds that a socket of the proxy waits for the other side."""


class Fault(Enum):
    """What happens to a request in place of being carried out and answered."""

    RESET = "reset"
    """The connection breaks; the server never sees the request."""
    LOST = "lost"
    """The server carries it out; the connection breaks instead of an answer."""
    CUT = "cut"
    """The server carries it out; the connection breaks in the middle of its answer."""
    TWICE = "twice"
    """The server sees it twice; the second answer comes back."""
    LATE = "late"
    """The connection breaks at once; the server sees the request when `FaultProxy.release` is called."""
    HANG = "hang"
    """Nothing happens until `FaultProxy.release` is called; the server never sees the request."""


@dataclass(frozen=True)
class Answer:
    """An answer given in the server's place. With `after`, the server has carried the request out before."""

    status: int
    code: str = ""
    after: bool = False

    def raw(self) -> bytes:
        """The bytes of it, in the form that S3 and Azure give their errors."""
        body = f"<Error><Code>{self.code}</Code></Error>".encode() if self.code else b""
        head = f"HTTP/1.1 {self.status} Fault\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"Connection: close\r\n\r\n" + body


@dataclass(frozen=True)
class Request:
    """What a client asked. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    raw: bytes = field(repr=False)


Plan: TypeAlias = Callable[[Request], "Fault | Answer | None"]


class FaultProxy:
    """A proxy to `port`. `plan` says what goes wrong with a request; None lets it pass. A context manager.

    With `rewrite_host` the server is told its own address, for servers that look at it.
    """

    def __init__(self, port: int, *, rewrite_host: bool = False) -> None:
        self.plan: Plan = lambda request: None
        self.seen: list[Request] = []
        self._server = port
        self._rewrite_host = rewrite_host
        self._released = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(_PATIENCE)
        self.release()

    def release(self) -> None:
        """Let late requests reach the server, and wait until all that was asked is done."""
        self._released.set()
        for thread in list(self._threads):
            thread.join(_PATIENCE)
        self._released.clear()

    def asked(self, *methods: str) -> int:
        """How many requests there were, of these methods if any are named."""
        return sum(not methods or request.method in methods for request in self.seen)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(_PATIENCE)
        with client:
            try:
                request = self._receive(client)
                if request is not None:
                    self.seen.append(request)
                    self._treat(client, request, self.plan(request))
            except OSError:
                pass  # one of the sides went away, as happens in these tests

    def _treat(self, client: socket.socket, request: Request, fault: Fault | Answer | None) -> None:
        match fault:
            case None:
                client.sendall(self._forward(request))
            case Answer():
                if fault.after:
                    self._forward(request)
                client.sendall(fault.raw())
            case Fault.RESET:
                _reset(client)
            case Fault.LOST:
                self._forward(request)
                _reset(client)
            case Fault.CUT:
                answer = self._forward(request)
                client.sendall(answer[: len(answer) // 2])
                _reset(client)
            case Fault.TWICE:
                self._forward(request)
                client.sendall(self._forward(request))
            case Fault.LATE:
                _reset(client)
                self._released.wait(_PATIENCE)
                self._forward(request)
            case Fault.HANG:
                self._released.wait(_PATIENCE)

    def _receive(self, client: socket.socket) -> Request | None:
        """One whole request, or None when the client went away before it began one."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = client.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("expect", "").lower() == "100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts = [body]
        missing = int(headers.get("content-length", 0)) - len(body)
        while missing > 0:
            part = client.recv(min(missing, 1 << 20))
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        method, target, _ = first.split(" ")
        return Request(method, target, headers, self._as_sent(first, lines, b"".join(parts)))

    def _as_sent(self, first: str, lines: list[str], body: bytes) -> bytes:
        """The request for the server: as it came, but for a connection of its own and perhaps the host."""
        dropped = ("connection", "expect") + (("host",) if self._rewrite_host else ())
        kept = [line for line in lines if line.partition(":")[0].lower() not in dropped]
        if self._rewrite_host:
            kept.append(f"Host: 127.0.0.1:{self._server}")
        return "\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1") + body

    def _forward(self, request: Request) -> bytes:
        """Have the server carry a request out; gives its whole answer."""
        with socket.create_connection(("127.0.0.1", self._server), timeout=_PATIENCE) as server:
            server.sendall(request.raw)
            parts = []
            while part := server.recv(1 << 20):
                parts.append(part)
        return b"".join(parts)


def _reset(client: socket.socket) -> None:
    """End a connection without a goodbye: the other side sees a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
