"""Run all benchmarks and write what they found: `python bench/run.py`, or `python bench/run.py resume size` for some.

Rewrites the tables in README.md between their markers, and results/*.jsonl.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from measuring import BENCH, Report, machine, table

BENCHMARKS = ("model_calls", "record_turn", "resume", "size", "imports", "memory", "server")
README = BENCH / "README.md"


def main(names: list[str]) -> None:
    """Run the benchmarks of these names, or all."""
    if unknown := set(names) - set(BENCHMARKS):
        raise SystemExit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    measured_on = machine()
    for name in names or BENCHMARKS:
        print(f"{name} ...", flush=True)
        report: Report = import_module(name).measure()
        report.save(measured_on)
        write(name, f"{report.tables}\n\n{summary(report)}\n\n{footnote(measured_on)}")
        print(report.tables, summary(report), sep="\n\n", end="\n\n", flush=True)


def summary(report: Report) -> str:
    """The report's bars as a table."""
    return table(["bar", "measured", "at most", "met"], [bar.row() for bar in report.bars])


def footnote(measured_on: Mapping[str, str]) -> str:
    """When and on what the numbers above were measured."""
    return (
        "Measured {date}: Python {python}, {system}, {cpus} CPUs with a load of {load} from elsewhere, {file_system}; "
        "{packages}.".format_map(measured_on)
    )


def write(name: str, text: str, readme: Path = README) -> None:
    """Put the text between the markers of this name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->\n)", re.DOTALL)
    old = readme.read_text()
    if not pattern.search(old):
        raise SystemExit(f"{readme.name} has no markers for {name}")
    readme.write_text(pattern.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", old))


if __name__ == "__main__":
    main(sys.argv[1:])
