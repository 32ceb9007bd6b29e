"""Fixtures: a place for an agent with a journal, and programs that are gone when the test is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from polign_recall import Client

from .jobs import Job
from .journal import Journal

pytest.register_assert_rewrite(f"{__package__}.facts")

LONG = 90.0
"""Seconds after which a process that should have done its part is a failure; never reached on a slow machine."""
Launch = Callable[..., "Program"]

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]  # the processes are watched through /proc, and so are they by each other


@dataclass
class Place:
    """A directory that processes share, with one agent in it and a journal of what they did."""

    directory: Path
    agent_id: str
    journal: Journal

    def job(self, role: str, **options: Any) -> Job:
        """A job on this agent."""
        return Job(role, str(self.directory), self.agent_id, self.journal.path, **options)

    def client(self) -> Client:
        """A client of this process."""
        return Client(local_dir=self.directory)

    def await_event(self, event: str, by: Program, number: int = 1) -> dict[str, Any]:
        """Wait until the process has written down `number` events of this kind; gives the last of them."""

        def found() -> list[dict[str, Any]]:
            return [entry for entry in self.journal.read(event) if entry["pid"] == by.process.pid]

        await_true(lambda: len(found()) >= number)
        return found()[number - 1]


@dataclass
class Program:
    """A process that runs a job. It stays a zombie until `ended` is called."""

    process: subprocess.Popen[bytes]

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def await_death(self) -> None:
        """Wait until it is dead, without the parent's wait that would take the zombie away."""
        self._await(os.WEXITED)

    def await_stop(self) -> None:
        """Wait until it is stopped."""
        self._await(os.WSTOPPED)

    def ended(self) -> int:
        """Wait for its end: the exit code, or the negative number of the signal that ended it."""
        return self.process.wait(LONG)

    def _await(self, what: int) -> None:
        def happened() -> bool:
            return os.waitid(os.P_PID, self.process.pid, what | os.WNOWAIT | os.WNOHANG) is not None

        await_true(happened)


def await_true(happened: Callable[[], bool]) -> None:
    """Wait until something has happened; fails when it does not."""
    deadline = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return new_place(tmp_path, "agent")


def new_place(tmp_path: Path, agent_id: str) -> Place:
    """Another agent, in the test's one directory."""
    return Place(tmp_path / "data", agent_id, Journal(str(tmp_path / f"{agent_id}.journal")))


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Start a program in a new interpreter. `prefix` is a command that runs the one after it."""
    programs: list[Program] = []

    def start(job: Job, prefix: Sequence[str] = ()) -> Program:
        command = [*prefix, sys.executable, "-m", f"{Path(__file__).parent.name}.program", msgspec.json.encode(job)]
        path = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        process = subprocess.Popen(command, env=env, start_new_session=True)
        programs.append(Program(process))
        return programs[-1]

    yield start
    for program in programs:
        try:
            os.killpg(program.process.pid, signal.SIGKILL)  # with the children it may have left
        except ProcessLookupError:
            pass
        program.process.wait(LONG)
