"""Runs agent.py as a process of its own, kills it, and keeps what was seen of each run."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from migration_project import Project
from scripted_openai import Exchange, ScriptedOpenAI, ToolCall

AGENT = Path(__file__).resolve().parent / "agent.py"
RUN_LIMIT = 180.0
"""Seconds after which a run of the agent counts as stuck, and is ended."""
LOOK_EVERY = 0.002
"""Seconds between two looks at the disk: so short that a kill may land before a write is recorded."""


@dataclass(frozen=True)
class Run:
    """One process of the agent, and what was seen of it."""

    pid: int
    returncode: int
    output: str
    before: dict[str, tuple[int, int]]
    """The stamps of the modules that were moved already when it started."""
    moved: list[str]
    """The modules that moved in this run."""
    exchanges: list[Exchange]
    """Its requests to the model, and the replies."""

    def calls(self, name: str) -> list[ToolCall]:
        """The model's calls of one tool."""
        return [call for exchange in self.exchanges for call in exchange.reply.calls if call.name == name]

    def paths(self, name: str) -> Counter[str]:
        """How often the model called a file tool, by path."""
        return Counter(call.args["path"] for call in self.calls(name))

    def read_again(self) -> list[str]:
        """The modules it read although they had been moved before it started."""
        return [path for path in self.paths("read_file") if path in self.before]


@dataclass
class Workplace:
    """A folder with the project, the agent's records next to it, and the runs so far."""

    folder: Path
    project: Project
    server: ScriptedOpenAI
    runs: list[Run] = field(default_factory=list)

    @property
    def records(self) -> Path:
        """Where agent.py keeps its records."""
        return self.folder / "recall-data"

    def run(self, kill_after: int | None = None, delay: float = 0.0) -> Run:
        """One run; if `kill_after` is given, killed `delay` seconds after it moved that many modules."""
        before, first = self.project.stamps(), len(self.server.exchanges)
        log = self.folder / f"agent-{len(self.runs) + 1}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(AGENT), "project"],
                cwd=self.folder,
                env=_environment(self.server.url),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                self._watch(process, None if kill_after is None else len(before) + kill_after, delay)
            finally:
                process.kill()  # SIGKILL; nothing happens when it has ended by itself
                returncode = process.wait()
        self.runs.append(
            Run(
                process.pid,
                returncode,
                log.read_text(encoding="utf-8", errors="replace"),
                before,
                sorted(self.project.moved() - set(before)),
                self.server.exchanges[first:],
            )
        )
        return self.runs[-1]

    def _watch(self, process: "subprocess.Popen[bytes]", target: int | None, delay: float) -> None:
        """Returns when the process has ended, or when it is time to kill it."""
        deadline = time.monotonic() + RUN_LIMIT
        while process.poll() is None and time.monotonic() < deadline:
            if target is not None and len(self.project.moved()) >= target:
                time.sleep(delay)
                return
            time.sleep(LOOK_EVERY)


def _environment(url: str) -> dict[str, str]:
    """This process's environment, with the model at `url` and without settings that lead anywhere else."""
    elsewhere = ("OPENAI_", "LANGCHAIN_", "LANGSMITH_", "POLIGN_")
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(elsewhere)}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return {**kept, "OPENAI_API_KEY": "none-needed", "OPENAI_BASE_URL": url}
