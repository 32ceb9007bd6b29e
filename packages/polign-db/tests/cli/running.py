"""The polign command, run as a user runs it: with pipes, or on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner, Result
from polign_db.cli import main

LONG = 60.0
"""Seconds after which something that should have happened is a failure."""
POLIGN = str(Path(sys.executable).with_name("polign"))


def in_process(*args: object, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
    """Run it in this process, which is quicker. Of POLIGN_ variables, its environment has just those in `env`."""
    others = {name: None for name in os.environ if name.startswith("POLIGN_")}
    return CliRunner().invoke(main, [*map(str, args)], input=stdin, env={**others, **(env or {})})


class OnTerminal(NamedTuple):
    """What a terminal showed, and the exit code."""

    shown: str
    returncode: int


def polign(
    *args: object, env: dict[str, str] | None = None, stdin: bytes | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with pipes. `env` is all of its environment."""
    done = subprocess.run(
        [POLIGN, *map(str, args)], capture_output=True, env=env or {}, timeout=LONG, input=stdin or b"", check=False
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def on_terminal(*args: object, typed: str = "") -> OnTerminal:
    """Run it on a terminal where somebody types."""
    terminal, end = pty.openpty()
    process = subprocess.Popen([POLIGN, *map(str, args)], stdin=end, stdout=end, stderr=end, env={"TERM": "xterm"})
    os.close(end)
    os.write(terminal, typed.encode())
    shown = b""
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(terminal)
    return OnTerminal(shown.decode(), process.wait(LONG))
