"""Memory of a process that holds an agent and is idle: `python bench/memory.py`. Linux only."""

from __future__ import annotations

from measuring import TURN_TEXT, Bar, Report, in_fresh_interpreters, main, scratch, table
from polign_recall import Client

ROUNDS = 3
FEW, MANY = 10, 40
"""Turns on record: few make a briefing whose length alone shows that it fits, many one whose tokens must be counted."""

IMPORTS = "import langgraph.prebuilt"
HOLDER = """
from recall_langgraph import RecallResume
resume = RecallResume("bench", local_dir={directory!r}).__enter__()
resume.agent.record_turn("user", "hello")
"""
PAUSE = 45.0
"""Seconds until a holder with the default lease has renewed for the second time, and unloaded the tokenizer."""
REPORT = """
import gc, time
gc.collect()
time.sleep({pause})
lines = [line.split() for line in open("/proc/self/smaps_rollup")][1:]
sizes = {{name: int(kilobytes) / 1024 for name, kilobytes, _ in lines}}
print(sizes["Rss:"], sizes["Private_Clean:"] + sizes["Private_Dirty:"])
"""


def record(directory: str, turns: int) -> None:
    """Make an agent with so many turns, for the holders to open."""
    with Client(local_dir=directory) as client, client.resume("bench") as agent:
        for _ in range(turns):
            agent.record_turn("assistant", TURN_TEXT)


def measure() -> Report:
    """Measure each kind of process, and how far it is above one that has only imported LangGraph."""
    with scratch() as path:
        few, many = str(path / "few"), str(path / "many")
        record(few, FEW)
        record(many, MANY)
        holder = IMPORTS + HOLDER.format(directory=many)
        programs = {
            "interpreter and `langgraph.prebuilt`": IMPORTS + REPORT.format(pause=0.2),
            f"a holder, {FEW} turns on record: no tokenizer": IMPORTS
            + HOLDER.format(directory=few)
            + REPORT.format(pause=0.2),
            f"a holder, {MANY} turns on record, that has just counted tokens": holder + REPORT.format(pause=0.2),
            f"the same, idle for {PAUSE:.0f} s": holder + REPORT.format(pause=PAUSE),
        }
        resident, private = in_fresh_interpreters(programs, ROUNDS, "MB resident", "MB private")
    rows = [
        [
            rss.case,
            f"{rss.median:.1f} MB",
            f"{rss.above(resident[0]):.1f} MB",
            f"{own.median:.1f} MB",
            f"{own.above(private[0]):.1f} MB",
        ]
        for rss, own in zip(resident, private, strict=True)
    ]
    heading = ["idle process", "resident", "above the first", "private", "above the first"]
    what = "resident memory of an idle holder, above interpreter and LangGraph"
    bars = [
        Bar(f"{what}: no tokenizer", resident[1].above(resident[0]), 15, "MB"),
        Bar(f"{what}: idle for {PAUSE:.0f} s", resident[3].above(resident[0]), 15, "MB"),
    ]
    return Report("memory", table(heading, rows), bars, resident + private)


if __name__ == "__main__":
    main(measure)
