"""What the client's tests say of memory holds wherever the agents are: they run again over every other place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE_TESTS = ROOT / "packages/polign-recall/tests"
MODULES = ("actions", "agent", "bad_input", "checking", "client", "leases", "outputs")
ABOUT_A_PLACE = 200
"""Fewer tests than this would mean that most of them look at memory only."""
LONG = 600.0
"""Seconds; alone on a machine with two cores a place takes 10 to 25."""


@pytest.mark.parametrize("place", ["directory", "server", "s3", "postgres"])
def test_the_client_works_the_same_everywhere(place: str) -> None:
    modules = [str(CORE_TESTS / f"test_{name}.py") for name in MODULES]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "--tb=short", *modules], cwd=ROOT, capture_output=True, text=True,
        timeout=LONG, env={**os.environ, "RECALL_TEST_PLACE": place},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    if missing := re.search(r"SKIPPED .*?: (.* is not installed: .*)", run.stdout):
        pytest.skip(missing[1])
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout
    assert int(passed[1]) >= ABOUT_A_PLACE
