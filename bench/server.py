"""Agents behind a polign-server: turns at once, requests, memory: `python bench/server.py`. Linux only.

The server is a process of its own on a directory; all agents are in this process, each with a client, a connection and
threads of its own.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from measuring import TURN_TEXT, Bar, Report, Series, main, scratch, table
from polign_recall import Client, ResumedAgent
from polign_recall.chain import Chain, agent_prefix, drive, this_host
from polign_recall.chain.drivers import perform
from polign_recall.stores import open_store
from polign_recall.testing.proxy import FaultProxy

AT_ONCE = (1, 8, 64)
"""Agents that write at once."""
ROUNDS, SECONDS = 5, 1.5
"""Every case writes for so many seconds in each round."""
PAUSE = 0.5
"""Seconds after it, for what goes on behind the turns (folding) to end before the next case."""
OPEN = 1_000
LEASE_TTL = 300.0
"""Seconds. So long that no renewal, due after a third of it, falls into what is measured."""
TURNS = 40
"""Turns on record, for a resume to read: too few for folding to begin."""
APPENDS = 10
"""Turns whose requests are counted."""
PATIENCE = 30.0
"""Seconds after which a server that does not listen, or does not end, is a failure."""

SERVER, DIRECTORY = "polign-server", "the directory itself"
DYING = """
import os, signal
from polign_recall import Client
agent = Client(url={url!r}).resume("bench")
agent.record_turn("user", "hello")
os.kill(os.getpid(), signal.SIGKILL)
"""


class Server:
    """A polign-server process on a directory, on a free port of 127.0.0.1. A context manager."""

    def __init__(self, directory: Path) -> None:
        self._log = directory.with_suffix(".log")  # a file: to read a pipe would take processor time of ours
        command = [str(Path(sys.executable).with_name("polign-server")), "-store", str(directory)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "-http", "127.0.0.1:0"], stderr=log)
        try:
            self.url = self._listening()
        except BaseException:
            self._end()
            raise
        self._http = httpx.Client(trust_env=False)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    def _listening(self) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            for line in self._log.read_text().splitlines(keepends=True):
                if line.endswith("\n") and json.loads(line)["event"] == "listening":
                    return str(json.loads(line)["url"])
            time.sleep(0.02)
        raise RuntimeError(f"the server does not listen: {self._log.read_text()}")

    def metrics(self) -> dict[str, float]:
        """What /metrics tells, by name and labels."""
        lines = self._http.get(f"{self.url}/metrics").text.splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def store_requests(self) -> Counter[str]:
        """How many requests its store has had, by operation."""
        found = Counter[str]()
        for name, value in self.metrics().items():
            if match := re.match(r'polign_store_requests_total{operation="(\w+)"', name):
                found[match[1]] += int(value)
        return found

    def resident(self) -> float:
        """Resident memory in MB of 1024 * 1024 bytes."""
        return self.metrics()["process_resident_memory_bytes"] / 2**20

    def sockets(self) -> int:
        """How many sockets it has open, all but a few of them its clients'."""
        files = Path(f"/proc/{self._process.pid}/fd").iterdir()
        return sum(os.readlink(file).startswith("socket:") for file in files)

    def processor(self) -> float:
        """Processor time in ms, in steps of 10."""
        return self.metrics()["process_cpu_seconds_total"] * 1e3


@contextmanager
def opened(count: int, client: Callable[[], Client]) -> Iterator[list[ResumedAgent]]:
    """So many agents, each opened by a client of its own."""
    with ExitStack() as stack:
        clients = [stack.enter_context(client()) for _ in range(count)]
        yield [one.resume(f"bench-{number}", lease_ttl=LEASE_TTL) for number, one in enumerate(clients)]


# ---- turns at once ---------------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """What came of one case in one round: turns per second, and milliseconds."""

    rate: float
    p50: float
    p99: float
    client: float
    """Processor time per turn of the process that the agents are in."""
    server: float


def write(agents: Sequence[ResumedAgent], server: Server | None) -> tuple[int, Written]:
    """Have all agents record one turn after the other at once; gives also how many turns these were."""
    own, its = time.process_time(), server.processor() if server else 0.0
    began = time.perf_counter()

    def work(agent: ResumedAgent) -> list[float]:
        times = []
        while (start := time.perf_counter()) < began + SECONDS:
            agent.record_turn("assistant", TURN_TEXT)
            times.append((time.perf_counter() - start) * 1e3)
        return times

    with ThreadPoolExecutor(len(agents)) as pool:
        found = [took for times in pool.map(work, agents) for took in times]
    elapsed, turns, times = time.perf_counter() - began, len(found), Series("", "ms", found)
    client = (time.process_time() - own) * 1e3 / turns
    its = (server.processor() - its) / turns if server else 0.0
    return turns, Written(turns / elapsed, times.quantile(0.5), times.quantile(0.99), client, its)


def throughput(path: Path) -> tuple[list[list[str]], list[Series], dict[str, float]]:
    """The table's rows and the samples; and store requests per turn behind the server, folding and all."""
    most, local = max(AT_ONCE), str(path / "local")
    with (
        Server(path / "behind") as server,
        opened(most, lambda: Client(url=server.url)) as remote,
        opened(most, lambda: Client(local_dir=local)) as direct,
    ):
        places = {SERVER: (remote, server), DIRECTORY: (direct, None)}
        order = [(count, place) for count in AT_ONCE for place in places]
        found: dict[tuple[int, str], list[Written]] = {case: [] for case in order}
        before, turns = server.store_requests(), 0
        for _ in range(ROUNDS):
            for count, place in order:
                agents, behind = places[place]
                written, result = write(agents[:count], behind)
                found[count, place].append(result)
                turns += written if behind else 0
                time.sleep(PAUSE)
            order.append(order.pop(0))
        spent = server.store_requests() - before
    series = {case: _series(case, rounds) for case, rounds in found.items()}
    rows = [_row(case, *quantities) for case, quantities in series.items()]
    per_turn = {operation: count / turns for operation, count in spent.items()}
    return rows, [one for quantities in series.values() for one in quantities], per_turn


def _series(case: tuple[int, str], rounds: Sequence[Written]) -> list[Series]:
    count, place = case
    names = {"rate": "turns/s", "p50": "ms", "p99": "ms", "client": "ms processor", "server": "ms processor"}
    return [
        Series(f"{count} at once, {place}: {name}", unit, [getattr(one, name) for one in rounds])
        for name, unit in names.items()
    ]


def _row(case: tuple[int, str], rate: Series, p50: Series, p99: Series, client: Series, server: Series) -> list[str]:
    count, place = case
    its = f"{server.median:.2f} ms" if place == SERVER else "none"
    times = [f"{one.median:.2f} ms" for one in (p50, p99, client)]
    return [str(count), place, f"{rate.median:,.0f}", *times, its]


# ---- requests --------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Requests of one operation."""

    what: str
    http: list[str]
    """In the order in which they were sent, one after the other."""
    store: Mapping[str, float]


def requests(path: Path) -> tuple[list[Asked], list[str]]:
    """What opening an agent and recording a turn ask of the server, and of the server's store; see also `steps`."""
    with Server(path / "counted") as server, FaultProxy(httpx.URL(server.url).port or 0) as proxy:
        asked: list[Asked] = []

        def client() -> Client:
            return Client(url=f"http://127.0.0.1:{proxy.port}")

        def count(what: str, call: Callable[[], Any]) -> None:
            proxy.seen.clear()
            before = server.store_requests()
            call()
            http = [f"{one.method} {one.target}" for one in proxy.seen]
            asked.append(Asked(what, http, server.store_requests() - before))

        with client() as first:
            count("`resume()` of a new agent", lambda: first.resume("bench"))
        with client() as second:
            agent = second.resume("bench")
            for _ in range(TURNS):
                agent.record_turn("assistant", TURN_TEXT)
        with client() as third:
            count("`resume()` after a clean end", lambda: third.resume("bench"))
        if subprocess.run([sys.executable, "-c", DYING.format(url=server.url)]).returncode != -signal.SIGKILL:
            raise AssertionError("the holder that was to be killed ended otherwise")
        with client() as fourth:
            holder: list[ResumedAgent] = []
            count("`resume()` after `kill -9` on the server's host", lambda: holder.append(fourth.resume("bench")))
            count(f"{APPENDS} `record_turn`", lambda: [holder[0].record_turn("user", "x") for _ in range(APPENDS)])
    return asked, steps(path / "counted")


def steps(directory: Path) -> list[str]:
    """What a claim asks of its store, one after the other: GETs of several keys at once are one step.

    The server answers a `resume()` with this code; here it runs without the server, which does not tell the order.
    """
    store, chain, found = open_store(str(directory)), Chain(agent_prefix("bench"), "bench"), []

    def carry_out(step: Any) -> Any:
        found.append(type(step).__name__)
        return perform(step, store)

    drive(chain.acquire(ttl=LEASE_TTL, holder="bench", host=this_host()), carry_out)
    store.close()
    return found


def _requests_row(asked: Asked) -> list[str]:
    return [asked.what, str(len(asked.http)), _listed(Counter(asked.http)), _listed(asked.store)]


def _listed(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{what}: {f'{count:.2f}'.removesuffix('.00')}" for what, count in counts.items())


# ---- memory ----------------------------------------------------------------------------------------------------------


def memory(path: Path) -> list[Series]:
    """Resident memory of a server: idle, with open agents, and after all of them have written."""
    with Server(path / "open") as server:
        idle = server.resident()
        with opened(OPEN, lambda: Client(url=server.url)) as agents:
            if server.sockets() < OPEN:
                raise AssertionError("the agents' connections are not open any more")
            waiting = server.resident()
            with ThreadPoolExecutor(max(AT_ONCE)) as pool:
                for _ in pool.map(lambda agent: agent.record_turn("assistant", TURN_TEXT), agents):
                    pass
            written = server.resident()
    found = {
        "idle": idle,
        f"{OPEN:,} open agents": waiting,
        f"the same, each has recorded a turn, {max(AT_ONCE)} at once": written,
    }
    return [Series(case, "MB resident", [value]) for case, value in found.items()]


def _memory_row(one: Series, idle: Series) -> list[str]:
    above = one.above(idle)
    return [one.case, f"{one.median:.1f} MB", f"{above:.1f} MB", f"{above * 1024 / OPEN:.1f} kB" if above else ""]


def measure() -> Report:
    """Measure all three."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # 1,000 connections: the usual limit is 1,024 files
    with scratch() as path:
        rows, series, per_turn = throughput(path)
        asked, sequence = requests(path)
        resident = memory(path)
    folding = Asked("a `record_turn` of the table above, on average", [], per_turn)
    heading = ["agents at once", "through", "turns/s", "p50", "p99", "processor, client", "processor, server"]
    tables = [
        table(heading, rows),
        table(
            ["requests", "HTTP", "which", "store, behind the server"],
            [*map(_requests_row, asked), [folding.what, "", "", _listed(folding.store)]],
        ),
        f"What a `resume()` after a clean end asks of the store, one after the other: {', '.join(sequence)}.",
        table(
            ["memory of the server", "resident", "above idle", "for each agent"],
            [_memory_row(one, resident[0]) for one in resident],
        ),
    ]
    *resumes, appends = asked
    most = max(len(one.http) for one in resumes)
    bars = [
        Bar("HTTP requests of a `record_turn`", len(appends.http) / APPENDS, 1, "a turn"),
        Bar("store requests of a `record_turn`, without folding", sum(appends.store.values()) / APPENDS, 1, "a turn"),
        Bar("HTTP requests of a `resume()`, the most of the three", most, 4, "in a row"),
        Bar("requests of a `resume()` to the store, one after the other", len(sequence), 4, "in a row"),
    ]
    return Report("server", "\n\n".join(tables), bars, series + resident)


if __name__ == "__main__":
    main(measure)
