"""What processes did, for others to read: lines of JSON in a file that any number of processes append to."""

from __future__ import annotations

import json
import os
import time
from typing import Any

LINE = 512
"""Bytes of a line. Lines of one size, a part of a page, never straddle two pages; so a kill cannot cut one in two."""

_write = os.write  # bound here: a breakpoint counts the calls of the product, not these


class Journal:
    """A file of events, in the order in which they happened. It survives whoever writes it, and fsync is not needed for
    that: a killed process loses nothing that it has handed to the system.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def write(self, event: str, **facts: Any) -> None:
        """Add an event, stamped with a clock that all processes of the machine share."""
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.monotonic(), **facts})
        assert len(line) < LINE, line
        _write(self._fd, f"{line:<{LINE - 1}}\n".encode())

    def read(self, *events: str) -> list[dict[str, Any]]:
        """All events of these kinds (of every kind, if none is named), oldest first."""
        with open(self.path) as file:
            entries = [json.loads(line) for line in file]
        return [entry for entry in entries if not events or entry["event"] in events]
