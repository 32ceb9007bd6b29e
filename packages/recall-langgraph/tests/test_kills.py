"""Agents killed with SIGKILL again and again, also inside a tool, until they finish; what they did to the world.

RECALL_KILL_RUNS=200 makes so many runs.
"""

import json
import os
import random
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from killed_agent import STEPS, Life
from polign_recall import Client

RUNS = int(os.environ.get("RECALL_KILL_RUNS", "16"))
MOST_KILLS = 4
POINTS = ("before", "effect", "returned", "recorded")
HERE = Path(__file__).parent


def started(script):
    """A script beside this file, running; its errors go to ours."""
    command = [sys.executable, str(HERE / script)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def world():
    with started("world.py") as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


@pytest.fixture(scope="module")
def nursery():
    with started("killed_agent.py") as process:
        yield process
        process.stdin.close()


def lives(number, directory, world):
    """The lives of one run, drawn from its number: some end at a point in a tool, some at any instant, the last not."""
    draw = random.Random(number)
    how = {
        "directory": str(directory),
        "world": f"{world}/{number}",
        "restored": draw.random() < 0.5,
        "asynchronous": draw.random() < 0.3,
        "middleware": draw.random() < 0.5,
    }
    for _ in range(draw.randint(1, MOST_KILLS)):
        if draw.random() < 0.6:
            yield Life(**how, call=draw.randint(1, 6), where=draw.choice(POINTS))
        else:
            yield Life(**how, seconds=draw.uniform(0.01, 0.3))
    yield Life(**how)


def live(nursery, life):
    print(json.dumps(vars(life)), file=nursery.stdin, flush=True)
    return nursery.stdout.readline().strip()


@pytest.mark.parametrize("number", range(RUNS))
def test_a_killed_run_finishes_and_does_nothing_twice(number, tmp_path, world, nursery):
    ends = Counter()
    for life in lives(number, tmp_path, world):
        end = live(nursery, life)
        ends[end] += 1
        if end != "killed":
            break
    assert end == "finished", ends

    with urllib.request.urlopen(f"{world}/{number}") as answer:
        done = json.load(answer)
    mails = [json.loads(mail.read_text()) for mail in (tmp_path / "mails").glob("[!.]*")]
    # Where a resolver can tell, and where repeating is safe: all of it was done, and once.
    assert sorted(n for n, _ in mails) == list(STEPS)
    assert sorted(n for n, _ in done["orders"]) == list(STEPS)
    # Where nobody can tell: never twice, and what was not done is known to be in doubt.
    charged = Counter(n for n, _ in done["charges"])
    assert set(charged.values()) <= {1}
    with Client(local_dir=tmp_path / "records") as client, client.resume("agent") as agent:
        doubtful = [action for action in agent.pending_actions() if action.tool == "charge"]
        assert agent.pending_actions() == doubtful
        assert set(STEPS) - set(charged) <= {action.args["n"] for action in doubtful}
