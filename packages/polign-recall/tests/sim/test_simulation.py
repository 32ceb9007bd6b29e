"""The product's chain code in a deterministic simulation: many seeds, and after each event the invariants I1 to I11.

    RECALL_SIM_SEEDS   how many seeds (default 2000)
    RECALL_SIM_FIRST   the first one (default 0)

A failure prints its seed, what happened in it, and the command that runs exactly it again.
"""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from .world import World

SEEDS = int(os.environ.get("RECALL_SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("RECALL_SIM_FIRST", "0"))
SHARDS = min(20, SEEDS)
"""So that pytest-xdist can spread them over processors."""
TRACE = 150
"""Lines of the trace that a failure prints."""
REPLAY = "RECALL_SIM_FIRST={seed} RECALL_SIM_SEEDS=1 python -m pytest {path} -k test_invariants -n 0"

MUST_HAPPEN = (
    "acks", "acts", "reads", "claims of a new agent", "claims after a release", "claims by force",
    "claims of an expired lease", "claims of a dead process's agent", "403", "503", "lost", "delayed",
    "answer lost", "late answers", "duplicated", "late create applied", "junk in a folded slot",
    "LIST in pages", "delete refused", "delete delayed", "deleted", "erased", "folds", "fold failed",
    "folds after a takeover", "frozen past the ttl", "killed", "cancelled", "ended in a create",
    "write cancelled", "write refused", "write unknown", "unknown that landed", "lease lost (landed=True)",
    "lease lost (landed=False)", "lease lost (landed=None)", "weather down", "weather silent",
)  # fmt: skip
"""What every hundred seeds must have seen: a simulation without it would prove less than it says."""


def run_seed(seed: int) -> Counter[str]:
    """Run one seed. When it fails, run it again with a trace and fail with that."""
    try:
        return World(seed).run()
    except Exception:
        world = World(seed, tracing=True)
        try:
            world.run()
        except Exception as error:
            trace = "\n".join(world.trace[-TRACE:])
            path = os.path.relpath(__file__)
            command = REPLAY.format(seed=seed, path=path)
            raise AssertionError(f"seed {seed}: {error}\n{world.plan}\n{trace}\nRun it again: {command}") from error
        raise


@pytest.mark.parametrize("shard", range(SHARDS))
def test_invariants(shard: int, record_property):
    seeds = range(FIRST + shard, FIRST + SEEDS, SHARDS)
    total: Counter[str] = Counter()
    for seed in seeds:
        total.update(run_seed(seed))
    record_property("simulated", json.dumps({"seeds": len(seeds), **total}))
    if len(seeds) >= 100:
        missing = [name for name in MUST_HAPPEN if not total[name]]
        assert not missing, f"never happened in {len(seeds)} seeds: {missing}"


def test_a_seed_decides_everything():
    runs = [World(7, tracing=True) for _ in range(2)]
    for world in runs:
        world.run()
    assert runs[0].trace == runs[1].trace
    assert runs[0].stats == runs[1].stats
    assert runs[0].objects.stored == runs[1].objects.stored
