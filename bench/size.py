"""Bytes on disk per 200-character turn, as the number of turns grows: `python bench/size.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from measuring import TURN_TEXT, Bar, Report, Series, main, scratch, table
from polign_recall import Client

COUNTS = (100, 1_000, 10_000)
MOST_CHECKPOINTED = 1_000
"""A checkpoint holds all messages of its thread, so a thread's size grows with the square of its length: 10,000
messages would take about 30 GB."""


def record(directory: Path, turns: int) -> None:
    """Record so many turns, each by itself."""
    with Client(local_dir=str(directory)) as client, client.resume("bench") as agent:
        for number in range(turns):
            agent.record_turn("assistant" if number % 2 else "user", TURN_TEXT)


def checkpoint(directory: Path, turns: int) -> None:
    """Have the same talk in a LangGraph thread: a question, a reply, half as many runs as turns."""
    directory.mkdir()
    graph = StateGraph(MessagesState)
    graph.add_node("reply", lambda state: {"messages": [AIMessage(TURN_TEXT)]})
    graph.add_edge(START, "reply")
    graph.add_edge("reply", END)
    with SqliteSaver.from_conn_string(str(directory / "checkpoints.sqlite")) as saver:
        agent = graph.compile(checkpointer=saver)
        thread: Any = {"configurable": {"thread_id": "bench"}}
        for _ in range(turns // 2):
            agent.invoke({"messages": [HumanMessage(TURN_TEXT)]}, thread)


def sizes(write: Callable[[Path, int], None], turns: int) -> tuple[float, float]:
    """Bytes per turn of what `write` writes: the files' own lengths, and the blocks that files and directories take."""
    with scratch() as path:
        write(path / "store", turns)
        found = [(path / "store"), *(path / "store").rglob("*")]
        stats = [one.stat() for one in found]
        length = sum(stat.st_size for one, stat in zip(found, stats, strict=True) if one.is_file())
        blocks = sum(stat.st_blocks * 512 for stat in stats)  # stat(2): in units of 512 bytes, whatever the block size
    return length / turns, blocks / turns


def measure() -> Report:
    """Measure ours at every count, and SqliteSaver's at those that are feasible."""
    ours = [sizes(record, turns) for turns in COUNTS]
    saver = [sizes(checkpoint, turns) for turns in COUNTS if turns <= MOST_CHECKPOINTED]
    heading = ["bytes per 200-character turn", *(f"{turns:,} turns" for turns in COUNTS)]
    rows = [
        ["polign-recall, lengths of the files", *(f"{length:,.0f}" for length, _ in ours)],
        ["polign-recall, blocks on the disk (`du`)", *(f"{blocks:,.0f}" for _, blocks in ours)],
        ["SqliteSaver, lengths of the files", *(f"{length:,.0f}" for length, _ in saver), "not run"],
    ]
    lengths = [length for length, _ in ours]
    bars = [
        Bar("bytes on disk per turn, the largest of the three", max(lengths), 1_000, "B"),
        Bar("bytes per turn at 10,000 turns, times those at 100", lengths[-1] / lengths[0], 1.0, "x"),
    ]
    series = [
        Series(f"recall, {turns} turns: [lengths, blocks]", "B/turn", pair)
        for turns, pair in zip(COUNTS, ours, strict=True)
    ]
    series += [
        Series(f"SqliteSaver, {turns} turns: [lengths, blocks]", "B/turn", pair)
        for turns, pair in zip(COUNTS, saver, strict=False)
    ]
    return Report("size", table(heading, rows), bars, series)


if __name__ == "__main__":
    main(measure)
