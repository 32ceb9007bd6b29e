"""The directory store: what is on the disk, and what happens when the disk, the rights or the neighbours are bad."""

import errno
import gc
import io
import os
import stat
import subprocess
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polign_recall.errors import Invalid, StoreDenied, StoreUnavailable, StoreUnsupported, TooLarge
from polign_recall.stores import DirectoryStore, Outcome, _directories, _files
from polign_recall.stores._filenames import to_path, to_segment

LOG = "agents/billing/log"
ENTRY = f"{LOG}/00000000000000000001"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def store(root):
    store = DirectoryStore(root)
    yield store
    store.close()


@pytest.fixture(params=["nameless", "renamed"])
def either(request, root, monkeypatch):
    """A store of each of the two ways to publish a file."""
    if request.param == "renamed":
        monkeypatch.setattr(_files, "_TMPFILE", 0)
    store = DirectoryStore(root)
    yield store
    store.close()


def files_below(path):
    """Every file there is, temporary ones too."""
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


# -- files and their names -------------------------------------------------------------------------------------


def test_one_readable_file_per_key(store, root):
    keys = ["agents/a%2Fb/log/00000000000000000001", "agents/%2E%2Ex/history/1-2", "memory/~x_y-z.=+/log/1.snap"]
    for key in keys:
        store.create(key, b"value")
    assert files_below(root) == sorted(keys)
    assert (root / keys[0]).read_bytes() == b"value"


def test_rights_are_what_the_umask_leaves(store, root):
    before = os.umask(0o027)
    try:
        store.create(ENTRY, b"value")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / ENTRY).stat().st_mode) == 0o640
    assert stat.S_IMODE((root / LOG).stat().st_mode) == 0o750


SEGMENTS = st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text and "\0" not in text)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)


def usable(key):
    return not any(segment in (".", "..") for segment in key.split("/")) and all(
        not "\ud800" <= character <= "\udfff" for character in key
    )


@settings(deadline=None)
@given(KEYS.filter(usable), KEYS.filter(usable))
@example("^5C", "\\")
@example("a^2E", "a.")
@example(".a", "^2Ea")
def test_names_are_reversible(one, other):
    names = to_path(one).split("/")
    assert [to_segment(name) for name in names] == one.split("/")
    assert not any(name.startswith(".") or len(name.encode()) > 255 for name in names)
    assert to_path(one).isascii()
    assert to_path(one).isprintable()
    assert (to_path(one) == to_path(other)) == (one == other)


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("abcXYZ019%~._-=+ ,:@!"), min_size=1, max_size=255))
def test_names_of_the_core_stay_as_they_are(segment):
    if not segment.startswith("."):
        assert to_path(f"agents/{segment}") == f"agents/{segment}"


DOTTED = [".tmp-1", ".nfs000", ".DS_Store"]
NOT_ESCAPES_OF_OURS = ["^2F", "^00", "^", "^5", "^5c", "^41", "^2E", "^2E.", "^FF", "Ü", "a\\b", "a\udcff", "^5C\udcff"]


@pytest.mark.parametrize("name", [*DOTTED, *NOT_ESCAPES_OF_OURS])
def test_files_of_others_are_no_keys(store, root, name):
    store.create("key", b"value")
    (root / name).write_bytes(b"other")
    assert to_segment(name) is None
    assert [found.key for found in store.list("")] == ["key"]
    assert store.names("") == ["key"]


def test_names_too_long(store, root):
    longest = "x" * 255
    assert store.create(longest, b"value") is Outcome.CREATED
    assert [found.key for found in store.list(longest)] == [longest]
    for key in ("x" * 256, "ü" * 43, f"a/{'x' * 256}/b"):  # each ü takes six characters
        for call in (lambda key=key: store.create(key, b""), lambda key=key: store.get(key)):
            with pytest.raises(TooLarge, match="a directory takes 255"):
                call()
        with pytest.raises(TooLarge, match="a directory takes 255"):
            store.list(f"{key}/")
    deep = "/".join(["x" * 200] * 25)
    for call in (lambda: store.create(deep, b"value"), lambda: store.get(deep)):
        with pytest.raises(TooLarge, match="longer than the system allows"):
            call()
    assert files_below(root) == [longest]
    assert os.listdir(root) == [longest], "no directories were made either"


def test_a_key_is_not_also_a_folder(store):
    store.create("a/b", b"value")
    with pytest.raises(Invalid, match="is a directory"):
        store.create("a", b"value")
    with pytest.raises(Invalid, match="a file is in the way"):
        store.create("a/b/c", b"value")
    assert store.get("a") is None
    assert store.get("a/b/c") is None


def test_links_to_directories_work_and_loops_end(store, root, tmp_path):
    store.create("agents/x/log/1", b"value")
    (root / "agents/y").symlink_to(root / "agents/x")
    (root / "agents/x/log/loop").symlink_to(root / "agents")
    (root / "agents/x/log/broken").symlink_to(tmp_path / "nowhere")
    assert [found.key for found in store.list("agents/y/log/")] == ["agents/y/log/1"]
    assert store.names("agents/") == ["x", "y"]
    assert "agents/x/log/1" in [found.key for found in store.list("")]


# -- temporary files -------------------------------------------------------------------------------------------


def test_nothing_is_left_behind(either, root):
    for number in range(3):
        either.create(f"a/{number}", b"value")
        either.create(f"a/{number}", b"other")
    either.now()
    assert files_below(root) == ["a/0", "a/1", "a/2"]


def test_temporary_files_are_no_keys(either, root):
    either.create(ENTRY, b"value")
    (root / LOG / ".tmp-0123456789abcdef").write_bytes(b"half a val")
    (root / "agents/other").mkdir()
    (root / "agents/other/.tmp-0123456789abcdef").write_bytes(b"half a val")
    assert [found.key for found in either.list("")] == [ENTRY]
    assert either.names("agents/") == ["billing"]
    assert either.names(f"{LOG}/") == ["00000000000000000001"]


def test_a_value_that_cannot_be_read_leaves_nothing(either, root):
    class Broken(io.BytesIO):
        def read(self, size=-1):
            if self.tell():
                raise RuntimeError("the source broke")
            return super().read(3)

    with pytest.raises(RuntimeError):
        either.create("key", Broken(b"value"))
    assert either.get("key") is None
    assert files_below(root) == []


def test_both_ways_are_really_taken(store, tmp_path, monkeypatch):
    store.create(ENTRY, b"value")
    monkeypatch.setattr(_files, "_TMPFILE", 0)
    other = DirectoryStore(tmp_path / "other")
    other.create(ENTRY, b"value")
    assert (store._publish, other._publish) == (_files.publish_nameless, _files.publish_renamed)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT])
def test_without_nameless_files(store, root, monkeypatch, code):
    opened = os.open

    def no_nameless_files(path, flags, *args, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(code, os.strerror(code))
        return opened(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", no_nameless_files)
    assert store.create(ENTRY, b"value") is Outcome.CREATED
    assert store.create(ENTRY, b"other") is Outcome.EXISTS
    assert store.get(ENTRY).data == b"value"
    assert files_below(root) == [ENTRY]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links(store, root, monkeypatch, code):
    def no_links(*args, **options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StoreUnsupported, match="no hard links"):
        store.create(ENTRY, b"value")
    assert files_below(root) == []


# -- durability ------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch):
    """What is synced, in order: the paths of directories, "file" for files."""
    done = []
    fsync = os.fsync

    def recording(fd):
        fsync(fd)
        info = os.fstat(fd)
        done.append(os.readlink(f"/proc/self/fd/{fd}") if stat.S_ISDIR(info.st_mode) else "file")

    monkeypatch.setattr(os, "fsync", recording)
    return done


def test_a_first_write_makes_its_directories_durable(either, root, synced):
    either.create(ENTRY, b"value")
    above = [root.parent, root, root / "agents", root / "agents/billing"]
    assert synced == [*map(str, above), "file", str(root / LOG)]


def test_so_does_the_first_write_where_another_process_made_them(root, synced):
    (root / LOG).mkdir(parents=True)
    DirectoryStore(root).create(ENTRY, b"value")
    above = [root.parent, root, root / "agents", root / "agents/billing"]
    assert synced == [*map(str, above), "file", str(root / LOG)]


def test_later_writes_sync_the_file_and_its_directory_only(either, root, synced):
    either.create(ENTRY, b"value")
    synced.clear()
    assert either.create(f"{LOG}/2", b"value") is Outcome.CREATED
    assert synced == ["file", str(root / LOG)]


def test_exists_is_synced_too(either, root, synced):
    either.create(ENTRY, b"value")
    synced.clear()
    assert either.create(ENTRY, b"value") is Outcome.EXISTS
    assert synced == ["file", str(root / LOG)]


@pytest.fixture
def failing_sync(monkeypatch):
    """Set `.code` to let syncs of directories fail with it, or `.files_too` for all of them."""

    class Failing:
        code = 0
        files_too = False

    fsync = os.fsync

    def failing(fd):
        if Failing.code and (Failing.files_too or stat.S_ISDIR(os.fstat(fd).st_mode)):
            raise OSError(Failing.code, os.strerror(Failing.code))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", failing)
    return Failing


def test_unknown_when_the_directory_cannot_be_synced(either, failing_sync):
    either.create(f"{LOG}/0", b"value")
    failing_sync.code = errno.EIO
    assert either.create(ENTRY, b"value") is Outcome.UNKNOWN
    assert either.create(ENTRY, b"value") is Outcome.UNKNOWN, "nor is it known that what exists is durable"
    failing_sync.code = 0
    assert either.create(ENTRY, b"value") is Outcome.EXISTS


def test_nothing_is_written_when_the_file_cannot_be_synced(either, root, failing_sync):
    either.create(f"{LOG}/0", b"value")
    failing_sync.code, failing_sync.files_too = errno.EIO, True
    with pytest.raises(StoreUnavailable, match="cannot write"):
        either.create(ENTRY, b"value")
    assert files_below(root) == [f"{LOG}/0"]


def test_file_systems_that_do_not_sync_directories(either, failing_sync):
    failing_sync.code = errno.EINVAL
    assert either.create(ENTRY, b"value") is Outcome.CREATED


def test_unknown_when_linking_ends_in_an_error_that_proves_nothing(either, monkeypatch):
    either.create(f"{LOG}/0", b"value")
    link = os.link

    def answer_lost(*args, **options):
        link(*args, **options)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", answer_lost)
    assert either.create(ENTRY, b"value") is Outcome.UNKNOWN
    monkeypatch.undo()
    assert either.create(ENTRY, b"value") is Outcome.EXISTS


# -- roots that are none ---------------------------------------------------------------------------------------


def test_a_root_is_made_at_the_first_write(tmp_path):
    store = DirectoryStore(tmp_path / "recall-data")
    assert store.list("") == []
    assert store.names("agents/") == []
    assert store.get(ENTRY) is None
    assert store.delete([ENTRY]) == []
    assert not any(tmp_path.iterdir()), "reading makes nothing"
    assert store.create(ENTRY, b"value") is Outcome.CREATED


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(Invalid, match="is a file, not a directory"):
        DirectoryStore(tmp_path / "file")
    with pytest.raises(Invalid, match="a file is in the way"):
        DirectoryStore(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "text"


def test_a_root_whose_parent_is_missing(tmp_path):
    with pytest.raises(Invalid, match=f"there is no directory {tmp_path}/no/such "):
        DirectoryStore(tmp_path / "no/such/parent")
    assert not any(tmp_path.iterdir())


def test_a_root_that_became_a_file(store, root):
    root.write_text("text")
    with pytest.raises(Invalid, match="a file is in the way"):
        store.create(ENTRY, b"value")
    with pytest.raises(Invalid, match="a file is in the way"):
        store.now()


# -- disks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mount(tmp_path):
    """Mounts at tmp_path/"mount"; gives a function that takes the options of mount(8)."""
    point = tmp_path / "mount"
    point.mkdir()
    mounted = []

    def mount(*options):
        try:
            done = subprocess.run(["mount", *options, str(point)], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip(f"this process may not mount: {done.stderr.strip()}")
        mounted.append(point)
        return point

    yield mount
    gc.collect()  # errors that were caught hold on to directories until then
    for point in mounted:
        subprocess.run(["umount", str(point)], check=True)


def test_a_file_system_mounted_read_only(mount):
    point = mount("-t", "tmpfs", "-o", "size=64k", "none")
    store = DirectoryStore(point)
    store.create("a/1", b"value")
    subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
    for call in (lambda: store.create("a/2", b"value"), lambda: store.create("b/1", b"value"), store.now):
        with pytest.raises(StoreDenied, match="mounted read-only"):
            call()
    assert store.delete(["a/1", "a/none"]) == ["a/1"]
    assert store.get("a/1").data == b"value"
    store.close()


@pytest.mark.parametrize("way", ["nameless", "renamed"])
def test_a_full_disk(mount, monkeypatch, way):
    if way == "renamed":
        monkeypatch.setattr(_files, "_TMPFILE", 0)
    point = mount("-t", "tmpfs", "-o", "size=64k,nr_inodes=20", "none")
    store = DirectoryStore(point)
    assert store.create("a/1", b"x" * 30_000) is Outcome.CREATED
    for value in (b"y" * 60_000, io.BytesIO(b"y" * 60_000)):
        with pytest.raises(StoreUnavailable, match=f"the disk is full: {point}.*nothing was written") as caught:
            store.create("a/2", value)
        assert caught.value.retryable
    assert files_below(point) == ["a/1"]
    assert store.create("a/2", b"small") is Outcome.CREATED, "what fits still goes in"
    keys = (f"b{number}/1" for number in range(30))
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        deque((store.create(key, b"") for key in keys), maxlen=0)  # until there are no inodes left
    store.delete(["a/1"])
    assert store.create("a/3", b"x" * 30_000) is Outcome.CREATED
    store.close()


@pytest.mark.parametrize(("code", "said"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "quota is used up")])
def test_a_disk_that_fills_up_in_the_middle_of_a_value(either, root, monkeypatch, code, said):
    written = []

    def full(fd, data):
        if written:
            raise OSError(code, os.strerror(code))
        written.append(os.pwrite(fd, data[:2], 0))
        return 2

    either.create(f"{LOG}/0", b"value")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreUnavailable, match=said) as caught:
        either.create(ENTRY, b"value")
    assert caught.value.retryable
    assert written == [2]
    assert files_below(root) == [f"{LOG}/0"]


def test_a_system_that_writes_little_at_a_time(either, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    assert either.create("bytes", b"0123456789") is Outcome.CREATED
    assert either.create("file", io.BytesIO(b"0123456789")) is Outcome.CREATED
    monkeypatch.undo()
    assert either.get("bytes").data == either.get("file").data == b"0123456789"


# -- directories that go and come ------------------------------------------------------------------------------


def remove(root, path):
    """Remove everything at `path` below `root`, as `rm -r` does."""
    for folder, _, names in os.walk(root / path, topdown=False):
        for name in names:
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)


@pytest.mark.parametrize("removed", [LOG, "agents/billing", "agents", ""])
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-again"])
def test_a_directory_removed_underneath(either, root, removed, again):
    either.create(ENTRY, b"value")
    remove(root, removed)
    if again:
        (root / LOG).mkdir(parents=True)
    assert either.get(ENTRY) is None
    assert either.list(f"{LOG}/") == []
    assert either.create(ENTRY, b"anew") is Outcome.CREATED
    assert (root / ENTRY).read_bytes() == b"anew"
    assert files_below(root) == [ENTRY]


def test_a_directory_moved_away_and_replaced(either, root):
    either.create(ENTRY, b"value")
    (root / "agents/billing").rename(root / "agents/old")
    (root / LOG).mkdir(parents=True)
    assert either.create(ENTRY, b"anew") is Outcome.CREATED
    assert (root / ENTRY).read_bytes() == b"anew"
    assert (root / "agents/old/log/00000000000000000001").read_bytes() == b"value"


def test_a_directory_removed_while_it_is_written_to(either, root, monkeypatch):
    either.create(ENTRY, b"value")
    fill = _files._fill

    def removed_meanwhile(fd, data):
        fill(fd, data)
        remove(root, "agents")

    monkeypatch.setattr(_files, "_fill", removed_meanwhile)
    with pytest.raises(StoreUnavailable, match="removed meanwhile"):
        either.create(f"{LOG}/2", b"value")
    monkeypatch.undo()
    assert either.create(ENTRY, b"anew") is Outcome.CREATED


def open_below(root):
    """How many files at or below `root` this process has open; others come and go with what earlier tests left."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            count += Path(os.readlink(f"/proc/self/fd/{fd}")).is_relative_to(root)
    return count


def test_few_directories_are_held_open(either, root, monkeypatch):
    most = 10
    monkeypatch.setattr(_directories, "MOST_OPEN", most)
    for expected in (Outcome.CREATED, Outcome.EXISTS):
        for number in range(3 * most):
            assert either.create(f"agents/{number}/1", b"value") is expected
            assert 1 <= open_below(root) <= most
    either.list("")
    either.names("agents/")
    either.now()
    assert open_below(root) == most
    either.close()
    assert open_below(root) == 0


def test_directories_leave_the_cache_while_others_write_in_them(store, monkeypatch):
    monkeypatch.setattr(_directories, "MOST_OPEN", 3)
    outcomes = []

    def write(worker):
        outcomes.extend(store.create(f"{worker}/{n % 7}/{n}", b"%d" % worker) for n in range(100))

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.CREATED] * 600
    keys = sorted(f"{worker}/{n % 7}/{n}" for worker in range(6) for n in range(100))
    assert [found.key for found in store.list("")] == keys
    assert all(store.get(key).data == key[:1].encode() for key in keys)


# -- listings while others write -------------------------------------------------------------------------------


@pytest.fixture
def between(monkeypatch):
    """Set `.act` to do something each time a directory's names were read and its files were not looked at yet."""

    class Between:
        passes = 0

        @staticmethod
        def act():
            """Nothing, until a test says what."""

    scandir = os.scandir

    @contextmanager
    def interrupted(directory):
        with scandir(directory) as entries:
            found = list(entries)
            Between.passes += 1
            Between.act()
            yield found

    monkeypatch.setattr(os, "scandir", interrupted)
    return Between


def test_a_fold_in_the_middle_of_a_pass_hides_nothing(store, between):
    for seq in range(1, 6):
        store.create(f"log/{seq}", b"entry")

    def fold():
        between.act = lambda: None
        store.create("log/5.snap", b"state")
        store.delete([f"log/{seq}" for seq in range(1, 6)])

    between.act = fold
    assert [found.key for found in store.list("log/")] == ["log/5.snap"]


def test_a_directory_that_never_holds_still(store, between, monkeypatch):
    monkeypatch.setattr("polign_recall.stores.directory._PAUSE", 0)
    for number in range(101):
        store.create(f"log/{number:03d}", b"entry")
    numbers = iter(range(101))
    between.act = lambda: store.delete([f"log/{next(numbers):03d}"])
    with pytest.raises(StoreUnavailable, match="keep changing"):
        store.list("log/")
    assert between.passes == 101


def test_a_key_made_again_counts_as_changed(store, between):
    store.create("log/1", b"entry")

    def again():
        if between.passes == 2:
            store.delete(["log/1"])
            store.create("log/1", b"another entry")

    between.act = again
    [found] = store.list("log/")
    assert between.passes == 3
    assert found.version == store.get("log/1").version


def test_a_busy_writer_does_not_hold_up_its_readers(store, between):
    numbers = iter(range(100))
    between.act = lambda: store.create(f"log/{next(numbers):03d}", b"entry")
    store.create("log/first", b"entry")
    assert "log/first" in [found.key for found in store.list("log/")]
    assert between.passes == 2
