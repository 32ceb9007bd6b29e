"""A durable `record_turn` against what the disk itself asks for the same bytes: `python bench/record_turn.py`."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from measuring import TURN_TEXT, Bar, Case, Report, interleaved, main, scratch, table
from polign_recall import Client
from polign_recall.stores import open_store

ROUNDS = 1_000


class RawFiles:
    """Files made with nothing but system calls, numbered on, in a directory of their own."""

    def __init__(self, directory: Path, data: bytes, *, sync_directory: bool) -> None:
        directory.mkdir()
        self._path = f"{directory}/%020d"
        self._numbers = count(1)
        self._data = data
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY) if sync_directory else None

    def create(self) -> None:
        """Create, write, fsync, close; and fsync the directory when asked to."""
        fd = os.open(self._path % next(self._numbers), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        os.write(fd, self._data)
        os.fsync(fd)
        os.close(fd)
        if self._directory is not None:
            os.fsync(self._directory)


def newest_entry(directory: Path) -> bytes:
    """The bytes of the newest entry below a directory store."""
    return max(directory.glob("agents/*/log/*[0-9]"), key=lambda path: path.name).read_bytes()


def measure() -> Report:
    """Measure, and compare with creating a file."""
    with scratch() as path, Client(local_dir=str(path / "ours")) as client, client.resume("bench") as agent:
        agent.record_turn("assistant", TURN_TEXT)
        data = newest_entry(path / "ours")
        file = RawFiles(path / "file", data, sync_directory=False)
        both = RawFiles(path / "both", data, sync_directory=True)
        store, numbers = open_store(str(path / "store")), count(1)
        cases = {
            "create, write, fsync, close": Case(file.create),
            "the same, and fsync of the directory": Case(both.create),
            "`create` of the directory store": Case(lambda: store.create(f"a/{next(numbers):020d}", data)),
            "`record_turn`": Case(lambda: agent.record_turn("assistant", TURN_TEXT)),
        }
        series = interleaved(cases, ROUNDS, warm_up=50)
        store.close()
    raw, with_directory, _, ours = series
    rows = [
        [
            one.case,
            f"{one.median:.3f} ms",
            f"{one.quantile(0.1):.3f} to {one.quantile(0.9):.3f} ms",
            f"{one.ratio(raw):.2f}",
            f"{one.ratio(with_directory):.2f}",
        ]
        for one in series
    ]
    heading = [f"{len(data)} bytes, durable", "median", "10% to 90%", "times the first", "times the second"]
    bar = Bar("durable `record_turn`, times one create + fsync of the same bytes", ours.ratio(raw), 1.5, "x")
    return Report("record_turn", table(heading, rows), [bar], series)


if __name__ == "__main__":
    main(measure)
