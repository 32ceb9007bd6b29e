"""polign doctor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import pytest
from polign_db.cli import probes
from polign_recall import Client, StoreDenied, StoreUnavailable
from polign_recall.chain.keys import entry_key
from polign_recall.stores import Blob, MemoryStore, Outcome

from ..server.running import Server, new_key, serving
from .running import in_process, polign


def results(*args: object) -> dict[str, str]:
    return {finding["check"]: finding["result"] for finding in json.loads(in_process("doctor", "--json", *args).stdout)}


def test_a_directory_in_order(records: Path) -> None:
    done = polign("doctor", "-store", records)
    assert done.returncode == 0
    assert "2 agents can be read and are folded" in done.stdout
    assert set(results("-store", records).values()) == {"ok"}
    assert list((records / "probe").iterdir()) == []


def test_a_damaged_agent_is_named(records: Path) -> None:
    (records / "agents/other/log/00000000000000000002").write_text("{")
    done = polign("doctor", "-store", records)
    assert done.returncode == 1
    assert "failed   agents           agent 'other': [corrupt] agents/other/log/00000000000000000002" in done.stdout
    assert "-> restore the named object" in done.stdout
    assert "billing" not in done.stdout


def test_a_server_in_order(server: Server) -> None:
    done = polign("doctor", "-url", server.url)
    assert done.returncode == 0
    for text in (f"{server.url} runs", "the key may read", "the key may write", "agents can be read"):
        assert text in done.stdout


def test_what_keys_allow(tmp_path: Path) -> None:
    reader = new_key(tmp_path, access="read")
    with serving(tmp_path, "-require-key") as server:
        found = results("-url", server.url, "-key", reader)
        assert (found["read"], found["write"]) == ("ok", "failed")
        found = results("-url", server.url, "-key", "plgn_no")
        assert (found["ready"], found["read"], found["write"], found["agents"]) == ("ok", "failed", "failed", "failed")
        assert in_process("doctor", "-url", server.url).exit_code == 1


def test_servers_that_are_none(server: Server) -> None:
    done = polign("doctor", "-url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "is polign-server running there" in done.stdout
    found = json.loads(in_process("doctor", "--json", "-url", f"{server.url}/else,{server.url}").stdout)
    assert [finding["result"] for finding in found if finding["check"] == "server"] == ["failed", "ok"]


class Overwriting(MemoryStore):
    """A store that ignores the condition."""

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        self.delete([key])
        return super().create(key, data)


class NotWritable(MemoryStore):
    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        raise StoreDenied("may not create", hint="give it the right")


class NotDeletable(MemoryStore):
    def delete(self, keys: Iterable[str]) -> list[str]:
        return list(keys)


class NotReadable(MemoryStore):
    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        raise StoreDenied("may not read")


class Forgetful(MemoryStore):
    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        return None


class Unlisted(MemoryStore):
    def list(self, prefix: str) -> list:
        return []


class Silent(MemoryStore):
    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        super().create(key, data)
        return Outcome.UNKNOWN


class Away(MemoryStore):
    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        raise StoreUnavailable("away")


class Early(MemoryStore):
    def now(self) -> float:
        return super().now() - 3600


@pytest.mark.parametrize(
    ("store", "check", "result"),
    [
        (Overwriting, "put-if-absent", "failed"),
        (NotWritable, "create", "failed"),
        (NotDeletable, "delete", "warning"),
        (NotReadable, "read", "failed"),
        (Forgetful, "read", "failed"),
        (Unlisted, "list", "failed"),
        (Silent, "create", "failed"),
        (Away, "create", "failed"),
        (Early, "clock", "warning"),
    ],
)
def test_what_is_wrong_with_a_store(store: type[MemoryStore], check: str, result: str) -> None:
    found = [finding for finding in probes.of_store(store()) if finding.result != "ok"]
    assert (found[0].check, found[0].result) == (check, result)
    assert len(found) == (2 if store is Overwriting else 1)  # what was written is not read either
    assert found[0].advice or store in (NotReadable, Away)


def test_folding_that_does_not_keep_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "FOLDING_LAGS", 8)
    with Client(local_dir=tmp_path) as client:
        with client.resume("above") as agent:
            for number in range(10):
                agent.record_turn("user", str(number))
        with client.resume("below") as agent:
            for number in range(70):
                agent.record_turn("user", str(number))
        for seq in range(2, 12):
            (tmp_path / entry_key("agents/below/", seq)).write_text("left")
        found = list(probes.of_agents(client))
    assert [(finding.check, finding.result) for finding in found] == [("folding", "warning")] * 2
    assert "'above': 12 entries are not folded" in found[0].detail
    assert "'below': 10 folded entries are still there" in found[1].detail
