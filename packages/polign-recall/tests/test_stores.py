"""The stores of the core: the conformance suite on each, `open_store`, `probe`, and what only a named one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from polign_recall.errors import Invalid, StoreDenied, StoreUnavailable, StoreUnsupported
from polign_recall.stores import DirectoryStore, MemoryStore, Outcome, _files, open_store, probe

pytest.register_assert_rewrite("polign_recall.testing.conformance")

from polign_recall.testing.conformance import StoreConformance  # noqa: E402 - after what it must come after


@pytest.mark.conformance
class TestDirectory(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        store = open_store(str(tmp_path / "data"))
        yield store
        store.close()


@pytest.mark.conformance
class TestDirectoryWithoutNamelessFiles(StoreConformance):
    """As on a file system without O_TMPFILE, or without /proc."""

    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_files, "_TMPFILE", 0)
        store = DirectoryStore(tmp_path / "data")
        yield store
        assert store._publish in (None, _files.publish_renamed)
        store.close()


@pytest.mark.conformance
class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self):
        return open_store("memory:")


@pytest.mark.parametrize("form", ["{0}", "fs:{0}", "FS:{0}", "fs://{0}", "file://{0}", "file://localhost{0}"])
def test_open_a_directory(tmp_path, form):
    path = tmp_path / "my data%"
    with_escapes = str(path).replace("%", "%25").replace(" ", "%20")
    store = open_store(form.format(with_escapes if form.startswith("file") else path))
    assert isinstance(store, DirectoryStore)
    assert store.url == f"fs:{path}"
    store.create("key", b"value")
    assert (path / "key").read_bytes() == b"value"
    assert open_store(store.url).get("key") == store.get("key")


def test_open_a_relative_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for url in ("./recall-data", "recall-data", "fs:recall-data", "fs:./recall-data/", Path("recall-data")):
        assert open_store(url).url == f"fs:{tmp_path}/recall-data"
    assert open_store("./odd:name").url == f"fs:{tmp_path}/odd:name"
    assert open_store(Path("odd:name")).url == f"fs:{tmp_path}/odd:name"
    assert open_store("~/recall").url == f"fs:{tmp_path}/home/recall"
    assert not any((tmp_path / "home").iterdir()), "opening alone makes nothing"


def test_a_relative_directory_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("./recall-data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.create("key", b"value")
    assert (tmp_path / "recall-data" / "key").exists()


@pytest.mark.parametrize("scheme", ["http", "s3a", "abfs", "sqlite"])
def test_schemes_there_is_no_store_for(scheme):
    with pytest.raises(StoreUnsupported, match=rf"no store for {scheme}: .*fs:PATH.*memory:.*s3:"):
        open_store(f"{scheme}://bucket/prefix")


@pytest.mark.parametrize(
    "url", ["", "fs:", "fs://host/path", "file://host/path", "file:relative", "file:///a?b", "a\0b"]
)
def test_urls_that_are_none(url):
    with pytest.raises(Invalid):
        open_store(url)


def test_a_named_memory_store_is_shared_within_the_process():
    first = open_store("memory:test-shared")
    first.create("key", b"value")
    first.close()
    again = open_store("memory:test-shared")
    assert again.get("key") == first.get("key") is not None
    assert again.url == "memory:test-shared"
    assert open_store("memory:test-other").get("key") is None
    assert open_store("memory:").get("key") is None


def test_versions_of_the_memory_store_only_rise():
    store = MemoryStore()
    versions = []
    for _ in range(12):
        store.create("key", b"value")
        versions.append(int(store.get("key").version))
        store.delete(["key"])
    assert versions == sorted(set(versions))


class Overwriting(MemoryStore):
    """A store that ignores the condition, as some servers do."""

    def create(self, key, data):
        self.delete([key])
        return super().create(key, data)


class Vague(MemoryStore):
    """A store whose answers are lost."""

    def create(self, key, data):
        super().create(key, data)
        return Outcome.UNKNOWN


class Refusing(MemoryStore):
    """A store that may only be read."""

    def create(self, key, data):
        raise StoreDenied("may not create")


def test_probe(tmp_path):
    for store in (MemoryStore(), DirectoryStore(tmp_path)):
        probe(store)
        assert store.list("") == []
    for store, error in (
        (Overwriting(), StoreUnsupported),
        (Vague(), StoreUnavailable),
        (Refusing(), StoreDenied),
    ):
        with pytest.raises(error):
            probe(store)
        assert store.list("") == []


def test_the_stores_do_not_import_pytest():
    code = "import sys, polign_recall.stores, polign_recall.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def test_a_probe_that_the_network_delivers_twice_is_no_lie():
    class Doubled(MemoryStore):
        def create(self, key, data):
            super().create(key, data)
            return super().create(key, data)

    probe(Doubled())
