"""Places that cannot be used are refused, and the error says why."""

import urllib.request

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from polign_recall import Client
from polign_recall.errors import Invalid, StoreDenied, StoreError, StoreUnavailable, StoreUnsupported
from polign_recall.stores import Outcome, open_store, probe
from polign_recall.testing.proxy import Answer, FaultProxy
from polign_recall.testing.servers import READER, Server

from .lying import lying_s3

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "no secret"}


def test_a_store_that_ignores_the_condition() -> None:
    with lying_s3() as port:
        store = open_store(f"s3://bucket?endpoint=http://127.0.0.1:{port}", env=KEYS)
        assert store.create("key", b"first") is Outcome.CREATED
        assert store.create("key", b"second") is Outcome.CREATED, "or it is no server to test this with"
        with pytest.raises(StoreUnsupported, match="does not honour put-if-absent"):
            probe(store)
        with Client(store=store) as client, pytest.raises(StoreUnsupported, match="put-if-absent"):
            client.resume("agent")
        assert store.get("agents/agent/log/00000000000000000001") is None, "refused before anything was written"


def test_a_reader_is_told_which_right_it_lacks(seaweedfs: Server, area: str) -> None:
    store = open_store(seaweedfs.url(area), env=seaweedfs.env)
    store.create("agents/a/x", b"value")
    reader = open_store(seaweedfs.url(area), env=READER)
    assert reader.get("agents/a/x") == store.get("agents/a/x")
    assert reader.list("") == store.list("")
    with pytest.raises(StoreDenied, match="s3:PutObject"):
        reader.create("agents/a/y", b"value")
    with pytest.raises(StoreDenied, match="s3:PutObject"):
        probe(reader)
    assert reader.delete(["agents/a/x", "agents/a/none"])[0] == "agents/a/x"
    assert store.get("agents/a/x") is not None


def test_a_wrong_key(seaweedfs: Server, area: str) -> None:
    store = open_store(seaweedfs.url(area), env=seaweedfs.env | {"AWS_SECRET_ACCESS_KEY": "quite another"})
    for act in (lambda: store.create("key", b"value"), lambda: store.list("")):
        with pytest.raises(StoreDenied, match="SignatureDoesNotMatch") as raised:
            act()
        assert "quite another" not in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"AZURE_STORAGE_ACCOUNT_KEY": "not base64, a secret"},
        {"AZURE_STORAGE_SAS_TOKEN": "no query, a secret"},
        {"AZURE_USE_AZURE_CLI": "perhaps"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_azure_settings_that_cannot_be_used(settings: dict[str, str]) -> None:
    with pytest.raises(StoreDenied, match="credentials for container 'c'") as raised:
        open_store("az://account/c", env=settings)
    assert "secret" not in f"{raised.value} {raised.value.__cause__}"


@pytest.mark.parametrize(("status", "error"), [(400, StoreDenied), (401, StoreDenied), (503, StoreUnavailable)])
def test_a_token_server_that_gives_no_token(status: int, error: type[StoreError], azurite: Server) -> None:
    with FaultProxy(azurite.port) as identity:
        identity.plan = lambda request: Answer(status)
        settings = {"AZURE_CLIENT_ID": "me", "AZURE_CLIENT_SECRET": "a secret", "AZURE_TENANT_ID": "tenant"}
        settings["AZURE_AUTHORITY_HOST"] = f"http://127.0.0.1:{identity.port}"
        store = open_store(azurite.url("p"), env=settings)
        for act in (lambda: store.create("key", b"value"), lambda: store.get("key"), lambda: store.list("")):
            with pytest.raises(error, match="no credentials for container") as raised:
                act()
            assert "a secret" not in f"{raised.value} {raised.value.__cause__}"
        assert {request.target for request in identity.seen} == {"/tenant/oauth2/v2.0/token"}


def test_objects_of_others_below_the_prefix(ministack: Server, area: str) -> None:
    """An object store takes names that are no keys; a folder made in a console is such a one."""
    store = open_store(ministack.url(area), env=ministack.env)
    store.create("agents/a/log/1", b"value")
    put_object(ministack, f"{area}/agents/", b"")
    put_object(ministack, f"{area}/agents/b/", b"")
    put_object(ministack, f"{area}/notes.txt", b"")
    assert [stat.key for stat in store.list("agents/a/")] == ["agents/a/log/1"]
    assert store.names("agents/") == ["a", "b"]
    with Client(store=store) as client:
        assert [status.agent_id for status in client.agents() if not status.problem] == []
    put_object(ministack, f"{area}/agents/a//x", b"")
    with pytest.raises(StoreUnsupported, match="not ours"):
        store.list("agents/a/")


def put_object(server: Server, name: str, value: bytes) -> None:
    request = AWSRequest("PUT", f"http://127.0.0.1:{server.port}/recall-tests/{name}", data=value)
    S3SigV4Auth(Credentials("key", "secret"), "s3", "us-east-1").add_auth(request)
    ask = urllib.request.Request(request.url, value, dict(request.headers), method="PUT")
    urllib.request.urlopen(ask, timeout=30).close()


def test_a_bucket_that_does_not_exist(ministack: Server, azurite: Server, fake_gcs: Server) -> None:
    for server in (ministack, azurite, fake_gcs):
        store = open_store(server.url("p").replace("recall-tests", "nowhere-at-all"), env=server.env)
        for act in (lambda: store.create("key", b"value"), lambda: store.list("")):  # noqa: B023 - called at once
            with pytest.raises(Invalid, match=r"there is no (bucket|container) 'nowhere-at-all'"):
                act()
