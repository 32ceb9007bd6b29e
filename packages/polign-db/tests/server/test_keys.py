"""polign keys, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from hmac import compare_digest
from pathlib import Path

import pytest
from polign_db.server import keys
from polign_recall.stores import DirectoryStore

from .holding import Holder
from .running import serving


def polign(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("polign")
    return subprocess.run([command, *args], capture_output=True, text=True, env=env or {}, timeout=60)


def make(store: Path, *args: str) -> str:
    done = polign("--store", str(store), "keys", "create", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_from_making_to_revoking(tmp_path: Path) -> None:
    key = make(tmp_path, "--collection", "team/a", "-access", "write", "--note", "ci \x1b[31m")
    parsed = keys.parse(key)
    assert parsed
    assert make(tmp_path) != key
    with serving(tmp_path, "-require-key") as server, server.client(key) as client:
        Holder(client).claim()
    out = polign("-store", f"fs:{tmp_path}", "keys", "list").stdout
    assert [parsed[0] in line for line in out.splitlines()] == [True, False]
    assert "team/a" in out
    assert "(default)" in out
    assert parsed[1] not in out
    assert "\x1b" not in out
    assert polign("--store", str(tmp_path), "keys", "revoke", parsed[0]).stdout == f"revoked {parsed[0]}\n"
    assert polign("--store", str(tmp_path), "keys", "revoke", parsed[0]).returncode == 0
    assert "revoked" in polign(f"--store={tmp_path}", "keys", "list").stdout.splitlines()[0]
    assert keys.good(DirectoryStore(tmp_path), parsed[0]) is None


def test_json(tmp_path: Path) -> None:
    made = json.loads(make(tmp_path, "--access", "read", "--json"))
    listed = json.loads(polign("keys", "list", "--json", env={"POLIGN_STORE": str(tmp_path)}).stdout)
    assert made.pop("key").startswith(f"plgn_{made['id']}_")
    assert listed == [made]
    assert (made["access"], made["collection"], made["revoked"]) == ("read", "", "")


def test_only_a_hash_is_stored(tmp_path: Path) -> None:
    parsed = keys.parse(make(tmp_path))
    assert parsed
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files] == [parsed[0]]
    assert parsed[1] not in files[0].read_text()


def test_secrets_are_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right, wrong or of no key at all: it is the one comparison, of two hashes."""
    compared: list[tuple[int, int]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return compare_digest(one, other)

    monkeypatch.setattr(keys.hmac, "compare_digest", compare)
    store = DirectoryStore(tmp_path)
    key, info = keys.create(store, access="read")
    _, secret = keys.parse(key) or ("", "")
    record = keys.good(store, info.id)
    wrong = "0" * len(secret)
    assert [keys.matches(record, each) for each in (secret, wrong, "")] == [True, False, False]
    assert [keys.matches(None, each) for each in (secret, wrong, "")] == [False, False, False]
    assert compared == [(64, 64)] * 6


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["revoke", "0123456789abcdef"], "not_found"),
        (["revoke", "../agents"], "not_found"),
        (["create", "--collection", "x" * 241], "invalid"),
        (["create", "--collection", "a\nb"], "invalid"),
    ],
)
def test_errors_are_named(tmp_path: Path, args: list[str], code: str) -> None:
    done = polign("--store", str(tmp_path), "keys", *args)
    assert done.returncode != 0
    assert f"[{code}]" in done.stderr
    assert "agent id" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_store_and_no_keys(tmp_path: Path) -> None:
    assert "POLIGN_STORE" in polign("keys", "list").stderr
    assert polign("--store", str(tmp_path), "keys", "list").stdout == "no keys\n"
    assert polign("--store", str(tmp_path), "keys", "create", "--access", "admin").returncode == 2


def test_the_command_is_quick_to_load() -> None:
    """The server's libraries are loaded by the server alone."""
    script = "import sys, polign_db.cli; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"starlette", "uvicorn", "h11", "prometheus_client"} & set(loaded.stdout.split())
