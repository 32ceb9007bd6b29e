"""The conformance suite on real servers. Where one is slow, fewer keys make the same point."""

from collections.abc import Iterator

import pytest
from polign_recall.stores import Outcome, Store, gcs, open_store, probe
from polign_recall.testing.servers import Server

pytest.register_assert_rewrite("polign_recall.testing.conformance")

from polign_recall.testing.conformance import StoreConformance  # noqa: E402 - after what it must come after

pytestmark = pytest.mark.conformance


class Remote(StoreConformance):
    """The suite, and what concerns stores that are elsewhere."""

    def test_probe(self, store: Store) -> None:
        probe(store)
        assert store.list("probe/") == [], "the probe is deleted again"

    def test_its_url_leads_to_the_same_place(self, store: Store, server: Server) -> None:
        store.create("conformance/reopened", b"value")
        again = open_store(store.url, env=server.env)
        assert again.url == store.url
        assert again.get("conformance/reopened") == store.get("conformance/reopened")
        again.close()
        for secret in server.env.values():
            assert secret not in f"{store.url} {store!r}"

    @pytest.fixture
    def store(self, server: Server, area: str) -> Iterator[Store]:
        store = open_store(server.url(area), env=server.env)
        yield store
        store.close()


class InBucket(Remote):
    """And what concerns those that are in a bucket."""

    @pytest.mark.parametrize("prefix", ["", "/a/b", " a b ", "Ünï+%2F~", "-=&;,'()"])
    def test_awkward_prefixes(self, server: Server, area: str, prefix: str) -> None:
        """What a prefix may hold is taken literally."""
        store = open_store(server.url(f"{area}{prefix}"), env=server.env)
        assert store.create("agents/a/1", b"value") is Outcome.CREATED
        again = open_store(store.url, env=server.env)
        assert [stat.key for stat in again.list("agents/")] == ["agents/a/1"]
        assert again.names("") == ["agents"]
        assert again.get("agents/a/1") is not None
        assert again.delete(["agents/a/1"]) == []
        assert again.list("") == []

    def test_without_a_prefix(self, server: Server, area: str) -> None:
        store = open_store(server.url(), env=server.env)
        key = f"agents/{area}/1"
        assert store.create(key, b"value") is Outcome.CREATED
        assert [stat.key for stat in store.list(f"agents/{area}/")] == [key]
        assert "agents" in store.names("")
        assert store.names(f"agents/{area}/") == ["1"]
        assert store.delete([key]) == []


class TestMinistack(InBucket):
    busy_creates = 200

    @pytest.fixture
    def server(self, ministack: Server) -> Server:
        return ministack


class TestSeaweedFS(InBucket):
    many_keys = 1_100
    busy_creates = 100
    creators, contended_keys = 4, 4  # who loses a key waits for seconds there
    folders_linger = True

    @pytest.fixture
    def server(self, seaweedfs: Server) -> Server:
        return seaweedfs


class TestAzurite(InBucket):
    many_keys = 300
    busy_creates = 60
    contended_keys = 20

    @pytest.fixture
    def server(self, azurite: Server) -> Server:
        return azurite


class TestFakeGcs(InBucket):
    many_keys = 450
    busy_creates = 100
    contended_keys = 40

    @pytest.fixture
    def server(self, fake_gcs: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
        monkeypatch.setattr(gcs, "_PAGE", 100)
        return fake_gcs


class TestPostgres(Remote):
    @pytest.fixture
    def server(self, postgres: Server) -> Server:
        return postgres

    @pytest.fixture
    def store(self, postgres_store: Store) -> Store:
        return postgres_store
