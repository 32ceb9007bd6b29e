"""Several servers on one store: kill any of them, and nothing is lost or doubled."""

from __future__ import annotations

import itertools
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
from polign_recall import Client

from .holding import Holder
from .running import LONG, serving

WRITES = 150
WRITERS = 4


class Writer(Holder):
    """Writes through whichever server answers, and sends a write again, as it is, until one does."""

    def __init__(self, clients: list[httpx.Client], agent_id: str) -> None:
        super().__init__(clients[0], agent_id)
        self.clients = itertools.cycle(clients)
        self.repeats = 0

    def write(self, text: str) -> None:
        body = self.body(text)
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            try:
                response = self.send(body)
            except httpx.TransportError:
                self.client, self.repeats = next(self.clients), self.repeats + 1
                body["again"] = True
                continue
            if response.status_code == 503:
                time.sleep(0.05)
                body["again"] = True
                continue
            assert response.status_code == 200, response.text
            return
        raise AssertionError("no server answers")


def test_a_replica_is_killed_in_the_middle_of_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(tmp_path / "r")) for _ in range(2)]
        started = threading.Barrier(WRITERS + 1)
        failures: list[BaseException] = []
        writers: list[Writer] = []

        def work(number: int) -> None:
            try:
                clients = [stack.enter_context(server.client()) for server in servers]
                writer = Writer(clients if number % 2 else clients[::-1], f"agent-{number}")
                writer.claim()
                writers.append(writer)
                started.wait(LONG)
                for count in range(WRITES):
                    writer.write(f"{number}/{count}")
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        started.wait(LONG)
        time.sleep(random.Random().uniform(0.05, 0.3))
        servers[0].kill()
        for thread in threads:
            thread.join(2 * LONG)
        assert failures == []
        assert any(writer.repeats for writer in writers)
    with Client(local_dir=tmp_path / "r") as client:
        for number in range(WRITERS):
            agent = client.resume(f"agent-{number}", defer_lease=True)
            assert [turn.content for turn in agent.turns()] == [f"{number}/{count}" for count in range(WRITES)]


def test_contenders_for_one_agent(tmp_path: Path) -> None:
    """Many claim at once, through two servers: one gets it, and each epoch has one holder."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(tmp_path / "r")) for _ in range(2)]
        clients = [stack.enter_context(server.client()) for server in servers]
        start = threading.Barrier(8)
        won: list[tuple[int, str]] = []

        def contend(number: int) -> None:
            holder = Holder(clients[number % 2], "agent", f"holder-{number}")
            start.wait(LONG)
            for _ in range(3):
                try:
                    holder.claim(takeover=number == 0)
                except AssertionError:
                    continue
                won.append((holder.epoch, holder.holder))
                if holder.send(holder.body(f"by {number}")).status_code == 200:
                    holder.release()

        threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        epochs = [epoch for epoch, _ in won]
        assert len(set(epochs)) == len(epochs) > 0
        with Client(local_dir=tmp_path / "r") as client:
            agent = client.resume("agent", defer_lease=True)
            assert client.status("agent").epoch == max(epochs)
            assert len(list(agent.turns())) <= len(epochs)


def test_agents_move_between_servers(tmp_path: Path) -> None:
    """A holder that goes from one server to the other with every write still has one chain."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(tmp_path / "r")) for _ in range(3)]
        clients = itertools.cycle([stack.enter_context(server.client()) for server in servers])
        holder = Holder(next(clients))
        holder.claim()
        for number in range(140):
            holder.client = next(clients)
            holder.record(str(number))
    with Client(local_dir=tmp_path / "r") as client, client.resume("agent", takeover=True) as agent:
        assert [turn.content for turn in agent.turns()] == [str(number) for number in range(140)]
