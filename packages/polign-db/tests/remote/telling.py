"""What holders were told, thread by thread, and whether the chain that they wrote bears it out."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from polign_recall import Client, LeaseLost, ResumedAgent, StoreUnavailable, WriteUnknown
from polign_recall.errors import LeaseError
from polign_recall.testing.proxy import Answer, Fault, Request


@dataclass(frozen=True)
class Told:
    """One acknowledged turn: what it said, by which epoch, and when it was begun (seconds, monotonic)."""

    text: str
    epoch: int
    begun: float


@dataclass
class Tale:
    """All that holders of one agent were told.

    `opened` says when each epoch was known to have begun; `lost` what a holder that was replaced was told of its last
    turn: whether it had been saved, None where nobody can tell.
    """

    agent_id: str
    told: list[Told] = field(default_factory=list)
    opened: dict[int, float] = field(default_factory=dict)
    lost: dict[str, bool | None] = field(default_factory=dict)
    unanswered: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, agent: ResumedAgent) -> None:
        """A holder was told that the agent is its own."""
        with self._lock:
            assert agent.epoch not in self.opened, "two holders have the same epoch"
            self.opened[agent.epoch] = time.monotonic()

    def record(self, agent: ResumedAgent, text: str) -> None:
        """Record a turn, and note it if that is acknowledged."""
        epoch, begun = agent.epoch, time.monotonic()
        try:
            agent.record_turn("user", text)
        except (WriteUnknown, StoreUnavailable):
            with self._lock:
                self.unanswered += 1  # nobody was told that it is saved
            return
        except LeaseLost as lost:
            with self._lock:
                self.lost[text] = lost.landed
            raise
        with self._lock:
            self.told.append(Told(text, epoch, begun))

    def of_the_last(self) -> list[Told]:
        """What the last holder was told."""
        return [told for told in self.told if told.epoch == max(self.opened)]

    def check(self, client: Client) -> None:
        """Assert that it is all there exactly once and in order, and that no two epochs held the agent at once."""
        entries = list(client.backend.entries(self.agent_id))
        turns = list(client.resume(self.agent_id, defer_lease=True).turns())
        assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
        found = [str(turn.content) for turn in turns]
        assert len(set(found)) == len(found), "something is there twice"
        where = {text: place for place, text in enumerate(found)}
        assert {told.text for told in self.told} <= where.keys(), "something acknowledged is lost"
        assert not [text for text, landed in self.lost.items() if landed is False and text in where], "landed after all"
        self._check_order(where)
        claims = [entry.epoch for entry in entries if entry.kind == "claim"]
        assert claims == list(range(1, len(claims) + 1))
        assert self.opened.keys() <= set(claims)
        assert all(one.epoch <= other.epoch for one, other in pairwise(entries)), "an old epoch wrote after a newer one"
        self._check_one_at_a_time()

    def _check_order(self, where: dict[str, int]) -> None:
        for epoch in self.opened:
            places = [where[told.text] for told in self.told if told.epoch == epoch]
            assert places == sorted(places), "turns of one holder change places"

    def _check_one_at_a_time(self) -> None:
        for told in self.told:
            replaced = min((at for epoch, at in self.opened.items() if epoch > told.epoch), default=told.begun)
            assert told.begun <= replaced, f"epoch {told.epoch} was acknowledged a write that it began when replaced"


def take_turns_over(tale: Tale, connect: Callable[[], Client], *, holders: int, turns: int) -> None:
    """Let holders, each a client of its own, take the agent from one another while they record so many turns each."""
    threads = []
    for number in range(holders):
        taken = threading.Event()
        threads.append(threading.Thread(target=_hold, args=(connect(), number, turns, tale, taken)))
        threads[-1].start()
        assert taken.wait(60), "no holder could take the agent over"
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def _hold(client: Client, number: int, turns: int, tale: Tale, taken: threading.Event) -> None:
    """Take the agent over and record turns until another takes it."""
    with client:
        agent = client.resume(tale.agent_id, takeover=True)
        tale.begin(agent)
        taken.set()
        try:
            for turn in range(turns):
                tale.record(agent, f"holder {number} turn {turn}")
        except LeaseError:
            pass
        finally:
            agent.close()


def mishaps(share: float, faults: Sequence[Fault | Answer]) -> Callable[[Request], Fault | Answer | None]:
    """A plan in which so many requests meet with a fault, and as many are late a little."""
    rng = random.Random(11)

    def plan(request: Request) -> Fault | Answer | None:
        if rng.random() < share:
            time.sleep(rng.uniform(0.0, 0.1))
        fault = rng.choice(faults) if rng.random() < share else None
        return None if is_deletion_repeated(request, fault) else fault

    return plan


def is_deletion_repeated(request: Request, fault: Fault | Answer | None) -> bool:
    """A deletion whose second answer alone arrives finds nothing: no client could tell that from nothing to delete."""
    return request.method == "DELETE" and fault is Fault.TWICE


def run_all(works: list[Callable[[], None]], seconds: float) -> None:
    """Run these at once, each in a thread; raises what one of them raised."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), "it does not end"
    assert failures == []
