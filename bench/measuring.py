"""What the benchmarks share: cases timed side by side, medians, bars, and where results go.

All times are milliseconds. Machines are noisy, so the cases of a benchmark run in turn, one after the other within each
round, and are compared round by round: a slow moment hits all of them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

BENCH = Path(__file__).parent
CACHE = BENCH / ".cache"
"""Stores that are costly to build, kept for the next run; not in git. Also the place of everything written while
measuring, so that all cases write to one disk, the one that the checkout is on."""
RESULTS = BENCH / "results"
PACKAGES = (
    "polign-recall", "polign-db", "recall-langgraph", "langgraph", "langgraph-checkpoint-sqlite", "msgspec", "tiktoken"
)  # fmt: skip

TURN_TEXT = (
    "The invoices of March are migrated and their totals agree with the old ledger to the cent. Next come the credit "
    "notes: 214 of them, of which 9 name a customer that the new system does not know."
).ljust(200, ".")
"""The text of a turn: 200 characters, as an agent would write them."""


@dataclass(frozen=True)
class Series:
    """The samples of one case, one a round."""

    case: str
    unit: str
    samples: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one: half of the samples are above it."""
        return median(self.samples)

    def quantile(self, share: float) -> float:
        """The sample that this share (0 to 1) of all lies below."""
        return sorted(self.samples)[min(int(len(self.samples) * share), len(self.samples) - 1)]

    def ratio(self, other: Series) -> float:
        """How many times `other` this case is: the median of the rounds' ratios."""
        return median(mine / its for mine, its in zip(self.samples, other.samples, strict=True))

    def above(self, other: Series) -> float:
        """How much more than `other` this case is: the median of the rounds' differences."""
        return median(mine - its for mine, its in zip(self.samples, other.samples, strict=True))


@dataclass(frozen=True)
class Bar:
    """A limit that the project sets itself, and what was measured."""

    what: str
    measured: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the measured value is within the limit."""
        return self.measured <= self.limit

    def row(self) -> list[str]:
        """The bar as a row of the summary."""
        unit = f" {self.unit}".replace(" x", "x")
        return [self.what, f"{self.measured:,.3g}{unit}", f"{self.limit:,g}{unit}", "yes" if self.met else "**no**"]


@dataclass(frozen=True)
class Report:
    """What a benchmark found: its tables as Markdown, its bars, and the samples behind them."""

    name: str
    tables: str
    bars: Sequence[Bar]
    series: Sequence[Series]

    def save(self, measured_on: Mapping[str, str]) -> None:
        """Write the samples to results/NAME.jsonl: a line about the machine, then one for each case."""
        RESULTS.mkdir(exist_ok=True)
        lines: list[Mapping[str, object]] = [measured_on]
        for one in self.series:
            samples = [float(f"{sample:.4g}") for sample in one.samples]
            lines.append({"case": one.case, "unit": one.unit, "median": float(f"{one.median:.4g}"), "samples": samples})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (RESULTS / f"{self.name}.jsonl").write_text(text)


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Case:
    """Something to time, and what puts things back after it, untimed."""

    timed: Callable[[], object]
    after: Callable[[], object] = nothing


def interleaved(cases: Mapping[str, Case], rounds: int, warm_up: int = 1) -> list[Series]:
    """Time the cases in turn, for so many rounds after so many that do not count. Each round begins with another."""
    samples: dict[str, list[float]] = {case: [] for case in cases}
    order = list(cases)
    for number in range(warm_up + rounds):
        for case in order:
            start = time.perf_counter()
            cases[case].timed()
            took = (time.perf_counter() - start) * 1e3
            cases[case].after()
            if number >= warm_up:
                samples[case].append(took)
        order.append(order.pop(0))
    return [Series(case, "ms", values) for case, values in samples.items()]


def fresh_interpreter(program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in an interpreter of its own, which keeps what it compiles, even where told not to."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *flags, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    if answer.returncode != 0:
        raise RuntimeError(f"{program}\nended with {answer.returncode}:\n{answer.stderr}")
    return answer


def in_fresh_interpreters(programs: Mapping[str, str], rounds: int, *quantities: str) -> list[list[Series]]:
    """Run Python programs in interpreters of their own, in turn; each prints a number for each quantity.

    Gives a list of cases for each quantity, which is a unit, or a name and a unit. The first round, in which modules
    are compiled and files get into the system's cache, does not count.
    """
    samples: dict[str, list[list[float]]] = {case: [[] for _ in quantities] for case in programs}
    for number in range(1 + rounds):
        for case, program in programs.items():
            answer = fresh_interpreter(program)
            if number > 0:
                for values, value in zip(samples[case], answer.stdout.split(), strict=True):
                    values.append(float(value))
    return [[Series(case, unit, samples[case][index]) for case in programs] for index, unit in enumerate(quantities)]


@contextmanager
def scratch() -> Iterator[Path]:
    """A new directory on the checkout's disk, gone afterwards."""
    CACHE.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=CACHE, prefix="scratch-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> dict[str, str]:
    """What the numbers are measured on, without naming the machine. To be asked before measuring: see `load`."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": str(os.cpu_count()),
        "file_system": _file_system(),
        "load": f"{os.getloadavg()[0]:.1f}",  # what others kept the machine busy with: processes, over the last minute
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def _file_system() -> str:
    """The kind of file system that the checkout is on: the mount whose path leads furthest towards it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    here = f"{BENCH.resolve()}/"
    found = [mount for mount in mounts if here.startswith(mount[1].rstrip("/") + "/")]
    return max(found, key=lambda mount: len(mount[1]))[2] if found else "unknown"


def main(measure: Callable[[], Report]) -> None:
    """Run one benchmark by itself: save its samples, print its tables."""
    measured_on = machine()
    report = measure()
    report.save(measured_on)
    print(report.tables)
    print(table(["bar", "measured", "limit", "met"], [bar.row() for bar in report.bars]))
