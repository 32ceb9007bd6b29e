"""Three replicas on one directory, killed and restarted at random under twenty agents.

POLIGN_CHAOS_SECONDS says for how long; 20 by default, some minutes by hand.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from polign_recall import Client, StoreUnavailable
from polign_recall.errors import LeaseError, WriteUnknown
from polign_recall.testing.servers import free_ports

from ..server.running import Server
from .telling import Tale, run_all

SECONDS = float(os.environ.get("POLIGN_CHAOS_SECONDS", "20"))
AGENTS, RIVALS = 20, 4
LONG = 120.0
Running = Callable[[], bool]


class Replica:
    """A server that is killed and started again, always on the same port."""

    def __init__(self, directory: Path, port: int) -> None:
        program = str(Path(sys.executable).with_name("polign-server"))
        self._command = [program, "-store", str(directory), "-http", f"127.0.0.1:{port}"]
        self.url = f"http://127.0.0.1:{port}"
        self._server = Server(self._command)

    def kill(self) -> None:
        self._server.kill()
        self._server.close()

    def restart(self) -> None:
        self._server = Server(self._command)

    def close(self) -> None:
        self._server.close()


def work(url: str, tale: Tale, name: str, going: Running) -> None:
    """Open the agent over and over, and record until the time is up or another takes it."""
    rng, numbers = random.Random(name), itertools.count()
    with Client(env={"POLIGN_URL": url}) as client:
        while going():
            try:
                with client.resume(tale.agent_id, wait=5, lease_ttl=10) as agent:
                    tale.begin(agent)
                    for _ in range(rng.randrange(5, 60)):
                        if not going():
                            break
                        tale.record(agent, f"{name} {next(numbers)}")
            except (LeaseError, StoreUnavailable, WriteUnknown):
                time.sleep(rng.uniform(0.0, 0.05))


def rival(url: str, tales: list[Tale], name: str, going: Running) -> None:
    """Take one agent after another away from its holder, record a little and give it back."""
    rng, numbers = random.Random(name), itertools.count()
    with Client(env={"POLIGN_URL": url}) as client:
        while going():
            tale = rng.choice(tales)
            try:
                with client.resume(tale.agent_id, takeover=True, lease_ttl=10) as agent:
                    tale.begin(agent)
                    for _ in range(rng.randrange(3)):
                        tale.record(agent, f"{name} {next(numbers)}")
            except (LeaseError, StoreUnavailable, WriteUnknown):
                pass
            time.sleep(rng.uniform(0.05, 0.3))


def kill_at_random(replicas: list[Replica], going: Running, kills: list[float]) -> None:
    """Kill one, or two, of the replicas; they come back a moment later."""
    rng = random.Random(3)
    while going():
        time.sleep(rng.uniform(0.2, 1.5))
        victims = rng.sample(replicas, rng.choice([1, 1, 2]))
        for victim in victims:
            victim.kill()
            kills.append(time.monotonic())
        time.sleep(rng.uniform(0.0, 0.5))
        for victim in victims:
            victim.restart()


def test_every_acknowledged_record_once_and_one_holder_at_a_time(tmp_path: Path) -> None:
    directory = tmp_path / "records"
    tales = [Tale(f"agent {number}") for number in range(AGENTS)]
    kills: list[float] = []
    replicas = [Replica(directory, port) for port in free_ports(3)]
    try:
        url = ",".join(replica.url for replica in replicas)
        end = time.monotonic() + SECONDS

        def going() -> bool:
            return time.monotonic() < end

        works = [partial(work, url, tale, f"holder of {tale.agent_id}:", going) for tale in tales]
        works += [partial(rival, url, tales, f"rival {number}:", going) for number in range(RIVALS)]
        run_all([*works, partial(kill_at_random, replicas, going, kills)], SECONDS + LONG)
    finally:
        for replica in replicas:
            replica.close()
    for tale in tales:
        with Client(local_dir=directory) as behind:
            tale.check(behind)
    assert all(tale.told for tale in tales)
    assert any(len(tale.opened) > 1 for tale in tales)
    assert len(kills) >= SECONDS / 4
    fates = [landed for tale in tales for landed in tale.lost.values()]
    print(
        f"{sum(len(tale.told) for tale in tales)} acknowledged, {sum(tale.unanswered for tale in tales)} without an"
        f" answer, {len(fates)} met a takeover ({fates.count(True)} of them saved before it), {len(kills)} kills,"
        f" {sum(len(tale.opened) for tale in tales)} epochs"
    )
