"""Client processes that die, are forked, and live long, all behind a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from polign_recall import Client, LeaseHeld

from ..server.running import LONG, Server

HOLDING = """
import sys
from polign_recall import Client
agent = Client(url=sys.argv[1]).resume("a", holder="victim")
agent.update_working_state(goal="the goal")
number = agent.context.recent_turns[-1].seq if agent.context.recent_turns else 0
while True:
    number += 1
    assert agent.record_turn("user", f"turn {number}") == number
    print(number, flush=True)
"""
FORKING = """
import os, sys, warnings
warnings.simplefilter("ignore")  # that forking with threads is a bad idea is known
from polign_recall import Client, RecallError
client = Client(url=sys.argv[1])
agent = client.resume("a")
agent.record_turn("user", "parent")
child = os.fork()
if child == 0:
    try:
        agent.record_turn("user", "child")
    except RecallError as error:
        print(error.code, len(list(agent.turns())), flush=True)
    with client.resume("b") as own:
        print(own.record_turn("user", "of its own"), flush=True)
    client.close()
    sys.exit()
for number in range(50):
    agent.record_turn("user", f"parent {number}")
assert os.waitpid(child, 0)[1] == 0
print(agent.record_turn("user", "last"), client.status("b").turns)
"""

GROWING = """
import gc, sys, tracemalloc
from polign_recall import Client
with Client(url=sys.argv[1]) as client, client.resume("grows") as agent:
    tracemalloc.start()
    sizes = []
    for count in (100, 400):
        for _ in range(count):
            agent.record_turn("user", "x" * 1_000)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    print(len(agent._chain.replay.links), len(list(agent.turns())), sizes[1] - sizes[0])
"""


@pytest.fixture
def remote(server: Server) -> Iterator[Client]:
    with Client(url=server.url) as client:
        yield client


def test_after_a_kill_the_next_process_on_the_host_goes_on_at_once(server: Server, remote: Client) -> None:
    known = 0
    for life in range(1, 4):
        command = [sys.executable, "-c", HOLDING, server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            try:
                assert victim.stdout
                for _ in range(30):
                    known = int(victim.stdout.readline())
                with pytest.raises(LeaseHeld, match="held by victim"):
                    remote.resume("a")
            finally:
                victim.kill()
            known = int((victim.stdout.read().split() or [known])[-1])
            victim.wait(LONG)
        with remote.resume("a", lease_ttl=3600) as agent:  # no wait, no takeover
            assert agent.epoch == 2 * life
            assert agent.context.working_state.goal == "the goal"
            found = [str(turn.content) for turn in agent.turns()]
            assert found == [f"turn {number}" for number in range(1, len(found) + 1)]
            assert known <= len(found) <= known + 1  # the last one may have been saved and not told


def test_a_forked_child_does_not_talk_on_its_parents_connections(server: Server) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, server.url], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.stdout.splitlines()[-1] == "52 1"
    child = ended.stdout.split()
    assert child[0] == "lease_not_held"
    assert child[2] == "1"


def test_the_memory_of_a_holder_does_not_grow_with_what_it_wrote(server: Server) -> None:
    # In a process of its own: here pytest keeps what httpx logs.
    ended = subprocess.run(
        [sys.executable, "-c", GROWING, server.url], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert ended.returncode == 0, ended.stderr
    entries, turns, grown = map(int, ended.stdout.split())
    assert (entries, turns) == (1, 500)
    assert grown < 100_000, "most of 400 turns of 1,000 bytes are still in memory"
