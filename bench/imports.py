"""What the imports cost, in interpreters of their own: `python bench/imports.py`."""

from __future__ import annotations

from measuring import Bar, Report, fresh_interpreter, in_fresh_interpreters, main, table

ROUNDS = 21
SHOWN = 6


def timed(statement: str, before: str = "") -> str:
    """A program that prints how many milliseconds `statement` takes after `before`."""
    return (
        f"{before}\nimport time\nstart = time.perf_counter()\n{statement}\nprint((time.perf_counter() - start) * 1e3)"
    )


def heaviest(statement: str, before: str) -> list[tuple[float, str]]:
    """The modules that `statement` imports after `before`, with the milliseconds of each by itself, the most first."""
    loaded = [set(_import_times(program)) for program in (before, f"{before}\n{statement}")]
    times = _import_times(f"{before}\n{statement}")
    return sorted(((times[name], name) for name in loaded[1] - loaded[0] if name in times), reverse=True)[:SHOWN]


def _import_times(program: str) -> dict[str, float]:
    log = fresh_interpreter(program, "-X", "importtime").stderr
    lines = [
        line.removeprefix("import time:").split("|") for line in log.splitlines() if line.startswith("import time:")
    ]
    return {name.strip(): int(own) / 1e3 for own, _, name in lines[1:]}


def measure() -> Report:
    """Measure each import, and name what it spends the time on."""
    langgraph = "import langgraph.prebuilt"
    cases = {
        "`import polign_recall`": ("import polign_recall", ""),
        "`import langgraph.prebuilt`": (langgraph, ""),
        "`import recall_langgraph`, after that": ("import recall_langgraph", langgraph),
        "`from recall_langgraph import RecallResume, recall_tools`, after that": (
            "from recall_langgraph import RecallResume, recall_tools",
            langgraph,
        ),
    }
    programs = {case: timed(*program) for case, program in cases.items()}
    [series] = in_fresh_interpreters(programs, ROUNDS, "ms")
    rows = [
        [
            one.case,
            f"{one.median:.1f} ms",
            f"{one.quantile(0.1):.1f} to {one.quantile(0.9):.1f} ms",
            ", ".join(f"{name} {took:.1f}" for took, name in heaviest(*cases[one.case])),
        ]
        for one in series
    ]
    heading = ["in a fresh interpreter", "median", "10% to 90%", "most of it, each module by itself (ms)"]
    bars = [
        Bar("`import polign_recall`", series[0].median, 100, "ms"),
        Bar("`import recall_langgraph`, over `import langgraph.prebuilt`", series[2].median, 10, "ms"),
        Bar("the same with the names that an agent uses", series[3].median, 10, "ms"),
    ]
    return Report("imports", table(heading, rows), bars, series)


if __name__ == "__main__":
    main(measure)
