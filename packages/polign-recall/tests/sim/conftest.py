"""After the simulation, say how much of everything happened in it."""

from __future__ import annotations

import json
from collections import Counter

import pytest

PROPERTY = "simulated"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add up what the shards reported; with pytest-xdist they ran in other processes."""
    total: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == PROPERTY:
                total.update(json.loads(value))
    if total:
        terminalreporter.section("simulated")
        terminalreporter.line(", ".join(f"{name}: {count:,}" for name, count in sorted(total.items())))
