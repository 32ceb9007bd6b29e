"""`resume()` to a ready briefing, as the history grows: `python bench/resume.py`.

The stores are built once, turn by turn, and kept in .cache: the first run takes a minute longer.
"""

from __future__ import annotations

import threading
from pathlib import Path

from measuring import CACHE, TURN_TEXT, Bar, Case, Report, interleaved, main, scratch, table
from polign_recall import Client, ResumedAgent
from polign_recall.stores import MemoryStore, Store, open_store
from polign_recall.tokens import counter_for
from polign_recall.writer import FOLD_AFTER

COUNTS = (100, 1_000, 10_000, 100_000)
ROUNDS = 60
ABOVE_SNAPSHOT = 36
"""Entries above the newest snapshot when a store is built: between the least, 0, and the most, FOLD_AFTER."""


def built(turns: int) -> Path:
    """A directory store with so many turns, each recorded by itself; from the cache when it is there.

    It is made in memory and then copied key by key: a disk would take a sync for each turn.
    """
    path = CACHE / f"resume-{turns}"
    if not path.exists():
        source = MemoryStore()
        record(source, turns)
        with scratch() as unfinished:
            target = open_store(str(unfinished / "store"))
            for stat in source.list(""):
                if (blob := source.get(stat.key)) is not None:
                    target.create(stat.key, blob.data)
            target.close()
            (unfinished / "store").rename(path)
    return path


def record(store: Store, turns: int) -> None:
    """Record so many turns, so that afterwards only the length of the history depends on how many they were.

    A reader gets the entries above the newest snapshot, and where the last fold fell depends on the number of entries.
    So a pointer is set a few times first, and each fold is waited for.
    """
    with Client(store=store) as client, client.resume("bench") as agent:
        agent.update_working_state(goal="Migrate the billing system", plan=["export", "convert", "check"])
        for _ in range((ABOVE_SNAPSHOT - 2 - turns) % FOLD_AFTER):  # 2: the claim and the working state
            agent.set_pointer("ledger", "git_ref", "refs/heads/migration")
        for number in range(turns):
            agent.record_turn("assistant" if number % 2 else "user", TURN_TEXT)
            _wait_for_fold(agent)


def _wait_for_fold(agent: ResumedAgent) -> None:
    agent.flush()  # the writer is done with the turn: a fold that is due has begun
    for thread in threading.enumerate():
        if thread.name.startswith("recall-fold-"):
            thread.join()


class Opener:
    """Opens the agent of one store, again and again, each time from the state that it was built in."""

    def __init__(self, turns: int) -> None:
        self.path = built(turns)
        self._log = self.path / "agents/bench/log"
        self.files = set(self._log.iterdir())
        self._client = Client(local_dir=str(self.path))
        self._agent: ResumedAgent

    def resume(self) -> None:
        """What is timed: open the agent, and have its briefing."""
        self._agent = self._client.resume("bench")
        if not self._agent.context.briefing:
            raise AssertionError("no briefing")

    def put_back(self) -> None:
        """Close the agent, and take away what opening and closing it wrote: the next one finds the same files."""
        self._agent.close()
        for path in set(self._log.iterdir()) - self.files:
            path.unlink()


def measure() -> Report:
    """Measure all sizes side by side."""
    counter_for().count("the tokenizer is loaded before anything is timed")
    openers = {f"{turns:,} turns": Opener(turns) for turns in COUNTS}
    files = {len(opener.files) for opener in openers.values()}
    if len(files) != 1:
        raise AssertionError(f"the stores differ in more than the length of their history: {files} files in log/")
    series = interleaved({case: Case(opener.resume, opener.put_back) for case, opener in openers.items()}, ROUNDS)
    medians = [one.median for one in series]
    rows = [
        [
            one.case,
            f"{one.median:.2f} ms",
            f"{one.quantile(0.1):.2f} to {one.quantile(0.9):.2f} ms",
            f"{one.ratio(series[0]):.2f}",
        ]
        for one in series
    ]
    heading = [f"`resume()` to a briefing, {files.pop()} files in `log/`", "median", "10% to 90%", "times the first"]
    bars = [
        Bar("`resume()` to a ready briefing, the slowest of the four", max(medians), 15, "ms"),
        Bar("the slowest of the four, times the fastest", max(medians) / min(medians), 1.2, "x"),
    ]
    return Report("resume", table(heading, rows), bars, series)


if __name__ == "__main__":
    main(measure)
