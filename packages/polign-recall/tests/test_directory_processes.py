"""The directory store in processes of its own: other users, limits, races between processes, and SIGKILL."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

import pytest
from polign_recall.stores import DirectoryStore


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def run_python(code, *args, **options):
    """Start Python with `code`, which finds the packages where this process does."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], env=environment, **options)


AS_NOBODY = """
import os, sys
from polign_recall.stores import DirectoryStore
try:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
except PermissionError:
    pass  # no privilege to give up
try:
    os.mkdir(sys.argv[1] + "/shut/x")
    print("rights do not bind"); sys.exit()
except PermissionError:
    pass
def attempt(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__} {error}"
for name in ("shut", "shut/new", "hidden", "hidden/new"):
    print(attempt(lambda: DirectoryStore(f"{sys.argv[1]}/{name}").create("agents/x/log/2", b"value")))
store = DirectoryStore(sys.argv[1] + "/shut")
print(attempt(store.now))
print(attempt(lambda: store.get("agents/x/log/1").data))
print(attempt(lambda: [stat.key for stat in store.list("agents/")]))
print(attempt(lambda: store.delete(["agents/x/log/1", "agents/x/log/none"])))
print(attempt(lambda: store.get("secret")))
print(attempt(lambda: DirectoryStore(sys.argv[1] + "/unreadable").list("")))
"""


@pytest.fixture
def for_all():
    """A directory that every user may pass through, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)
        for name in ("shut", "hidden", "unreadable"):
            (Path(path) / name).chmod(0o755)


def test_missing_rights_are_named(for_all):
    shut = DirectoryStore(for_all / "shut")
    shut.create("agents/x/log/1", b"value")
    shut.create("secret", b"value")
    (for_all / "shut/secret").chmod(0)
    (for_all / "hidden").mkdir(mode=0)
    (for_all / "unreadable").mkdir()
    (for_all / "unreadable").chmod(0o311)
    for path in ("shut/agents/x/log", "shut/agents/x", "shut/agents", "shut"):
        (for_all / path).chmod(0o555)
    with run_python(AS_NOBODY, for_all, stdout=subprocess.PIPE, text=True) as process:
        answers = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    if answers == ["rights do not bind"]:
        pytest.skip("this user may write everywhere and cannot become another")
    assert len(answers) == 10
    create, create_new, *hidden, now, get, listed, deleted, secret, unreadable = answers
    for answer, path in ((create, "shut/agents/x/log"), (create_new, "shut/new"), (now, "shut")):
        assert answer.startswith(f"StoreDenied [store_denied] no right to write: {for_all}/{path} (it needs write")
        assert "w and x" in answer
    for answer in hidden:
        assert answer.startswith("StoreDenied [store_denied] no right to ")
        assert f": {for_all}/hidden" in answer
    assert get == "b'value'", "reading needs no right to write"
    assert listed == "['agents/x/log/1']"
    assert deleted == "['agents/x/log/1']", "what is absent was not refused"
    assert secret.startswith(f"StoreDenied [store_denied] no right to read: {for_all}/shut/secret (it needs read")
    assert unreadable.startswith(f"StoreDenied [store_denied] no right to read: {for_all}/unreadable")
    assert shut.get("agents/x/log/1").data == b"value"


LIMITED = """
import resource, sys
from polign_recall.errors import TooLarge
from polign_recall.stores import DirectoryStore
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
store = DirectoryStore(sys.argv[1])
try:
    store.create("a/1", b"x" * 20_000)
except TooLarge as error:
    print(error)
print(store.create("a/2", b"x" * 10_000), [stat.key for stat in store.list("")])
"""


def test_a_file_larger_than_the_process_may_write(root):
    with run_python(LIMITED, root, stdout=subprocess.PIPE, text=True) as process:
        answers = process.communicate(timeout=60)[0].splitlines()
    assert answers[0].startswith("[too_large] a file larger than")
    assert answers[1:] == ["Outcome.CREATED ['a/2']"]


RACER = """
import sys
from polign_recall.stores import DirectoryStore, Outcome, _files
root, way, me, keys = sys.argv[1:]
if way == "renamed":
    _files._TMPFILE = 0
store = DirectoryStore(root)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(keys)):
    if store.create(f"race/log/{number:04d}", me.encode()) is Outcome.CREATED:
        print(number)
"""


@pytest.mark.parametrize("way", ["nameless", "renamed"])
def test_racing_processes_have_one_winner(root, way):
    keys = 300
    racers = [
        run_python(RACER, root, way, me, keys, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for me in range(4)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [[int(line) for line in racer.communicate(timeout=120)[0].split()] for racer in racers]
    assert sorted(chain.from_iterable(won)) == list(range(keys))
    store = DirectoryStore(root)
    for me, numbers in enumerate(won):
        assert all(store.get(f"race/log/{number:04d}").data == b"%d" % me for number in numbers)
    assert len(os.listdir(root / "race/log")) == keys, "nothing else is left"


WRITER = """
import hashlib, os, sys
from polign_recall.stores import DirectoryStore, _files
if sys.argv[2] == "renamed":
    _files._TMPFILE = 0
store = DirectoryStore(sys.argv[1])
for number in range(2_000):
    body = os.urandom(1_000_000)
    store.create(f"log/{os.getpid()}-{number:05d}", hashlib.sha256(body).digest() + body)
    print(number, flush=True)
"""


@pytest.mark.parametrize("way", ["nameless", "renamed"])
@pytest.mark.parametrize("moment", range(15))
def test_a_killed_writer_leaves_whole_values_only(root, way, moment):
    with run_python(WRITER, root, way, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "0\n"
        time.sleep(random.Random(moment).uniform(0, 0.02))  # a value takes about 3 ms
        writer.kill()
        acknowledged = 1 + len(writer.stdout.readlines())
    assert writer.returncode == -signal.SIGKILL
    store = DirectoryStore(root)
    values = [store.get(found.key).data for found in store.list("log/")]
    assert len(values) in (acknowledged, acknowledged + 1)
    for value in values:
        assert len(value) == 1_000_032
        assert hashlib.sha256(value[32:]).digest() == value[:32]
