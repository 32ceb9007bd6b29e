"""Running the server: what it may bind, the process around the application, and a graceful end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from polign_recall import Invalid, StoreDenied, StoreUnavailable, open_store

from polign_db import __version__

from . import logs
from .access import Doorkeeper, is_loopback
from .app import application
from .connections import patient
from .limits import Limits
from .logs import event
from .metrics import CountedStore, Metrics
from .service import Service

THREADS = 64
"""Store requests at once: each waits in a thread of its own."""
BACKLOG = 1024


@dataclass(frozen=True)
class Options:
    """How to serve. `http` is HOST:PORT; an empty host is every address, port 0 any free one."""

    store: str
    http: str = "127.0.0.1:23000"
    require_key: bool = False
    insecure: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    limits: Limits = field(default_factory=Limits)


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is under way. Raises Invalid, or a StoreError at the start."""
    host, port = address_of(options.http)
    check_exposure(host, options)
    _check_tls(options)
    logs.configure()
    store = open_store(options.store)
    try:
        with _bound(host, port) as listener:
            service = service_of(CountedStore(store, Metrics()), options, host)
            _look_at_store(service)
            asyncio.run(_serve(options, service, listener))
    finally:
        store.close()


def address_of(http: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, [IPv6]:PORT or :PORT. Raises Invalid."""
    host, colon, port = http.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise Invalid(f"-http takes HOST:PORT, not {http!r}", hint="for example 127.0.0.1:23000 or [::1]:23000")
    return host.strip("[]"), int(port)


def check_exposure(host: str, options: Options) -> None:
    """Without keys anybody who reaches the server may read and write everything: loopback only. Raises Invalid."""
    if not (options.require_key or options.insecure or is_loopback(host)):
        raise Invalid(
            f"without keys the server binds a loopback address only, not {host or 'every address'}",
            hint="ask for keys with -require-key, or say -insecure if everybody on that network may read and write",
        )


def _check_tls(options: Options) -> None:
    """Raise Invalid unless there is no certificate, or one that can be used."""
    if options.tls_cert is None and options.tls_key is None:
        return
    if options.tls_cert is None or options.tls_key is None:
        raise Invalid("-tls-cert and -tls-key go together")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:  # an SSLError is one
        raise Invalid(f"the certificate or its key cannot be used: {error}") from error


def service_of(store: CountedStore, options: Options, host: str) -> Service:
    """The service that a server of these options gives."""
    local_only = is_loopback(host) and not options.insecure
    seconds = options.limits.key_seconds
    doorkeeper = Doorkeeper(store, required=options.require_key, local_only=local_only, seconds=seconds)
    return Service(store, doorkeeper, store.metrics, options.limits)


def _look_at_store(service: Service) -> None:
    try:
        service.check_store()
    except (StoreUnavailable, StoreDenied) as error:  # it may be readable; the first write looks again
        event("the store cannot be written just now", logging.WARNING, error=str(error))


async def _serve(options: Options, service: Service, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "polign-store"))
    limits = options.limits
    config = uvicorn.Config(
        application(service, key_required=options.require_key), http=patient(limits), ws="none", lifespan="on",
        log_config=None, access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=limits.idle_seconds, timeout_graceful_shutdown=limits.drain_seconds,
        ssl_certfile=options.tls_cert, ssl_keyfile=options.tls_key, backlog=BACKLOG,
    )  # fmt: skip
    host, port = listener.getsockname()[:2]
    scheme = "https" if options.tls_cert else "http"
    if options.require_key and not options.tls_cert and not is_loopback(host):
        event("keys are sent in clear: use -tls-cert and -tls-key, or a proxy that has TLS", logging.WARNING)
    event("listening", url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", version=__version__)
    await _Server(config).serve(sockets=[listener])
    event("stopped")


class _Server(uvicorn.Server):
    """uvicorn's server, which ends in an orderly way at a signal instead of dying by it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises Invalid for an address that cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Invalid(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    with listener:
        # Inherited by every connection: an answer in two writes must not wait for the client's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener
