"""What Prometheus reads: nothing in here names an agent, a key or a collection."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import BinaryIO, TypeVar

from polign_recall import RecallError
from polign_recall.stores import Blob, Outcome, Stat, Store
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
T = TypeVar("T")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The counters of one server process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "polign_requests", "Requests answered.", ["operation", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "polign_request_seconds", "Time to answer.", ["operation"], buckets=SECONDS, registry=self.registry
        )
        self.running = Gauge("polign_requests_running", "Requests under way.", registry=self.registry)
        self.store = Counter(
            "polign_store_requests", "Requests to the store.", ["operation", "outcome"], registry=self.registry
        )
        self.folds = Counter("polign_folds", "Chains folded in the background.", ["outcome"], registry=self.registry)

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self.registry)


class CountedStore:
    """A store that counts its requests."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self.metrics = metrics
        self.url = store.url
        self.parallel = store.parallel

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """See `Store.create`."""
        return self._counted("create", lambda: self._store.create(key, data))

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """See `Store.get`."""
        return self._counted("get", lambda: self._store.get(key, start, length))

    def list(self, prefix: str) -> builtins.list[Stat]:
        """See `Store.list`."""
        return self._counted("list", lambda: self._store.list(prefix))

    def names(self, prefix: str) -> builtins.list[str]:
        """See `Store.names`."""
        return self._counted("names", lambda: self._store.names(prefix))

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """See `Store.delete`."""
        return self._counted("delete", lambda: self._store.delete(keys))

    def now(self) -> float:
        """See `Store.now`."""
        return self._counted("now", self._store.now)

    def close(self) -> None:
        """See `Store.close`."""
        self._store.close()

    def _counted(self, operation: str, call: Callable[[], T]) -> T:
        try:
            answer = call()
        except RecallError as error:
            self.metrics.store.labels(operation, error.code).inc()
            raise
        outcome = answer.value if isinstance(answer, Outcome) else "ok"
        self.metrics.store.labels(operation, outcome).inc()
        return answer
