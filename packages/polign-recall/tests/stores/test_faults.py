"""A proxy that breaks things stands between the stores and real servers: every outcome is mapped right.

"Right" means: an error only where it is certain that nothing was written, UNKNOWN where nobody can know, and one
request for each call of `create`, since every attempt must be the chain's own.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from polign_recall.errors import (
    DataError,
    Invalid,
    StoreDenied,
    StoreError,
    StoreUnavailable,
    StoreUnsupported,
    TooLarge,
)
from polign_recall.stores import Outcome, Store, _obstore, bucket, gcs, open_store
from polign_recall.testing.proxy import Answer, Fault, FaultProxy, Request
from polign_recall.testing.servers import Server, free_port

PROVIDERS = ["ministack", "azurite", "fake_gcs"]
WRITES = ("PUT", "POST")
KEY = "agents/a/log/00000000000000000001"


@pytest.fixture(params=PROVIDERS)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.port, rewrite_host=server.place.startswith("gs")) as proxy:
        yield proxy


@pytest.fixture
def store(server: Server, proxy: FaultProxy, area: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that sees the server through the proxy. It waits less long than others."""
    monkeypatch.setattr(_obstore, "_QUICK", timedelta(seconds=1))
    monkeypatch.setattr(_obstore, "_STALLED", timedelta(seconds=1))
    monkeypatch.setattr(gcs, "_TIMEOUT", (1.0, 1.0))
    monkeypatch.setattr(bucket, "_PAUSES", (0.001, 0.001))
    store = open_store(server.url(area, proxy.port), env=server.env)
    yield store
    store.close()


@pytest.fixture
def direct(server: Server, area: str) -> Iterator[Store]:
    """The same place, without the proxy in between."""
    store = open_store(server.url(area), env=server.env)
    yield store
    store.close()


def on(methods: tuple[str, ...], fault: Fault | Answer) -> object:
    return lambda request: fault if request.method in methods else None


# -- create ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "written"),
    [
        (Fault.RESET, False),
        (Fault.HANG, False),
        (Fault.LOST, True),
        (Fault.CUT, True),
        (Answer(503, "SlowDown"), False),
        (Answer(503, "SlowDown", after=True), True),
        (Answer(500, "InternalError"), False),
        (Answer(500, "InternalError", after=True), True),
        (Answer(429, "TooManyRequests"), False),
        (Answer(408, "RequestTimeout"), False),
        (Answer(409, "ConditionalRequestConflict"), False),
    ],
    ids=str,
)
def test_a_create_that_nobody_can_tell_is_unknown(
    store: Store, direct: Store, proxy: FaultProxy, fault: Fault | Answer, written: bool
) -> None:
    proxy.plan = on(WRITES, fault)
    assert store.create(KEY, b"ours") is Outcome.UNKNOWN
    assert proxy.asked(*WRITES) == 1, "an attempt that the chain does not know of"
    found = direct.get(KEY)
    assert (found is not None) == written
    proxy.plan = lambda request: None
    assert store.create(KEY, b"ours") is (Outcome.EXISTS if written else Outcome.CREATED)
    assert direct.get(KEY).data == b"ours"


@pytest.mark.parametrize("server", ["ministack"], indirect=True)
def test_s3_says_400_when_a_body_took_too_long(store: Store, proxy: FaultProxy) -> None:
    proxy.plan = on(WRITES, Answer(400, "RequestTimeout"))
    assert store.create(KEY, b"ours") is Outcome.UNKNOWN


def test_a_request_that_arrives_twice(store: Store, direct: Store, proxy: FaultProxy) -> None:
    proxy.plan = on(WRITES, Fault.TWICE)
    assert store.create(KEY, b"ours") is Outcome.EXISTS, "by its own duplicate: the chain reads the slot"
    assert direct.get(KEY).data == b"ours"


def test_a_request_that_arrives_late_changes_nothing_that_is_there(
    store: Store, direct: Store, proxy: FaultProxy
) -> None:
    proxy.plan = on(WRITES, Fault.LATE)
    assert store.create(KEY, b"late") is Outcome.UNKNOWN
    assert direct.create(KEY, b"another's") is Outcome.CREATED
    before = direct.get(KEY)
    proxy.release()
    assert direct.get(KEY) == before


def test_a_conflict_over_a_taken_slot_is_exists(store: Store, direct: Store, proxy: FaultProxy) -> None:
    direct.create(KEY, b"another's")
    proxy.plan = on(WRITES, Answer(409, "ConditionalRequestConflict"))
    gcs_has_no_such_answer = store.url.startswith("gs")
    assert store.create(KEY, b"ours") is (Outcome.UNKNOWN if gcs_has_no_such_answer else Outcome.EXISTS)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (Answer(403, "AccessDenied"), StoreDenied, "PutObject|Contributor|objects.create"),
        (Answer(401, "Unauthorized"), StoreDenied, "credentials"),
        (Answer(404, "NoSuchBucket"), Invalid, "there is no (bucket|container)"),
        (Answer(301, "PermanentRedirect"), StoreUnsupported, "region"),
        (Answer(307, "TemporaryRedirect"), StoreUnsupported, "region"),
        (Answer(501, "NotImplemented"), StoreUnsupported, "put-if-absent"),
        (Answer(413, "EntityTooLarge"), TooLarge, "more than"),
        (Answer(400, "InvalidArgument"), StoreUnsupported, "400"),
    ],
    ids=str,
)
def test_a_create_that_was_refused_is_an_error(
    store: Store, direct: Store, proxy: FaultProxy, answer: Answer, error: type[Exception], text: str
) -> None:
    proxy.plan = on(WRITES, answer)
    with pytest.raises(error, match=text) as raised:
        store.create(KEY, b"ours")
    assert proxy.asked() == 1
    assert "recall-tests" in str(raised.value)
    assert direct.get(KEY) is None


def test_nothing_is_sent_where_nobody_listens(server: Server, area: str) -> None:
    store = open_store(server.url(area, free_port()), env=server.env)
    for act in (lambda: store.create(KEY, b"ours"), lambda: store.get(KEY)):
        with pytest.raises(StoreUnavailable, match=r"cannot be reached: .*onnection refused \(nothing was sent"):
            act()


def test_a_large_value_gets_more_time(store: Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_obstore, "_SMALL", 10)
    assert store.create(KEY, b"x" * 3_000_000) is Outcome.CREATED
    assert proxy.asked(*WRITES) == 1, "in one request, or the condition would not hold for all of it"
    assert store.get(KEY).data == b"x" * 3_000_000


@pytest.mark.parametrize(
    "name", ["kind: Connect", "status code: 403", "TokenRequest", "source: TokenRequest {", "<Code>NoSuchBucket<"]
)
def test_keys_that_look_like_errors(store: Store, direct: Store, proxy: FaultProxy, name: str) -> None:
    key = f"agents/{name}"
    assert store.get(key) is None
    proxy.plan = on(WRITES, Answer(503, after=True))
    assert store.create(key, b"ours") is Outcome.UNKNOWN
    assert direct.get(key).data == b"ours"


# -- reads -------------------------------------------------------------------------------------------------------

BROKEN = [Fault.RESET, Fault.CUT, Answer(503, "SlowDown"), Answer(500), Answer(429)]


class Times:
    """A plan that goes wrong so many times, then not any more."""

    def __init__(self, times: int, fault: Fault | Answer) -> None:
        self.left = times
        self.fault = fault

    def __call__(self, request: Request) -> Fault | Answer | None:
        self.left -= 1
        return self.fault if self.left >= 0 else None


@pytest.mark.parametrize("fault", BROKEN, ids=str)
def test_reads_are_tried_three_times(store: Store, direct: Store, proxy: FaultProxy, fault: Fault | Answer) -> None:
    value = b"0123456789" * 20_000
    direct.create(KEY, value)
    proxy.plan = Times(2, fault)
    assert store.get(KEY).data == value
    proxy.plan = Times(2, fault)
    assert [stat.key for stat in store.list("agents/")] == [KEY]
    proxy.plan = Times(2, fault)
    assert store.names("agents/") == ["a"]
    proxy.plan = Times(1000, fault)
    for read in (lambda: store.get(KEY), lambda: store.list("agents/"), lambda: store.names("agents/")):
        before = proxy.asked()
        with pytest.raises(StoreUnavailable):
            read()
        assert proxy.asked() - before <= 6


def test_a_server_that_says_nothing_is_not_waited_for(store: Store, direct: Store, proxy: FaultProxy) -> None:
    direct.create(KEY, b"value")
    proxy.plan = Times(2, Fault.HANG)
    assert store.get(KEY).data == b"value"
    assert proxy.asked() == 3
    proxy.release()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(403, "AccessDenied"), StoreDenied),
        (Answer(401), StoreDenied),
        (Answer(301, "PermanentRedirect"), StoreUnsupported),
    ],
    ids=str,
)
def test_reads_that_are_refused(
    store: Store, direct: Store, proxy: FaultProxy, answer: Answer, error: type[StoreError | DataError]
) -> None:
    direct.create(KEY, b"value")
    proxy.plan = lambda request: answer
    for read in (lambda: store.get(KEY), lambda: store.list("agents/"), lambda: store.names("agents/")):
        with pytest.raises(error):
            read()
    assert proxy.asked() == 3, "asking again would not help"


def test_a_bucket_that_is_gone_is_no_absent_key(store: Store, proxy: FaultProxy) -> None:
    code = "ContainerNotFound" if store.url.startswith("az") else "NoSuchBucket"
    proxy.plan = lambda request: Answer(404, code)
    for read in (lambda: store.get(KEY), lambda: store.list("agents/")):
        with pytest.raises(Invalid, match=r"there is no (bucket|container)"):
            read()


# -- delete and now ----------------------------------------------------------------------------------------------


def deleting(request: Request) -> bool:
    return request.method == "DELETE" or "comp=batch" in request.target


@pytest.mark.parametrize("answer", [Answer(403, "AccessDenied"), Answer(405, "MethodNotAllowed")], ids=str)
def test_deletes_that_are_refused_are_returned(store: Store, direct: Store, proxy: FaultProxy, answer: Answer) -> None:
    keys = [f"agents/a/log/{number:020d}" for number in range(5)]
    for key in keys:
        direct.create(key, b"value")
    proxy.plan = lambda request: answer if deleting(request) else None
    assert store.delete(keys) == keys
    assert [stat.key for stat in direct.list("")] == keys


def test_a_delete_that_gets_no_answer(store: Store, direct: Store, proxy: FaultProxy) -> None:
    keys = [f"agents/a/log/{number:020d}" for number in range(5)]
    for key in keys:
        direct.create(key, b"value")
    proxy.plan = lambda request: Fault.RESET if deleting(request) else None
    with pytest.raises(StoreUnavailable):
        store.delete(keys)
    assert len(direct.list("")) == 5
    proxy.plan = Times(1, Fault.LOST)
    assert store.delete(keys) == []
    assert direct.list("") == []


def test_the_time_without_the_right_to_delete(store: Store, direct: Store, proxy: FaultProxy) -> None:
    proxy.plan = lambda request: Answer(403, "AccessDenied") if deleting(request) else None
    times = [store.now() for _ in range(3)]
    assert times == sorted(times)
    direct.create(KEY, b"value")
    assert abs(direct.get(KEY).modified - times[-1]) < 60


def test_the_time_without_the_right_to_write(store: Store, proxy: FaultProxy) -> None:
    proxy.plan = on(WRITES, Answer(403, "AccessDenied"))
    if store.url.startswith("gs"):
        assert store.now() > 0, "every answer of GCS tells it"
    else:
        with pytest.raises(StoreDenied):
            store.now()
