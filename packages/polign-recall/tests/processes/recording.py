"""Processes that record until they are killed or stopped. Each role is a function of a `Job` (see `program`)."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from polign_recall import Client, LeaseLost, ResumedAgent, writer
from polign_recall.stores import DirectoryStore, Outcome, _files

from .breakpoints import signal_after
from .facts import GOAL, Acknowledged
from .jobs import Job, fork, join
from .journal import Journal

FILLER = " and so on" * 60
"""Makes a turn longer than the output threshold, so that it is stored as an output too."""


class Words:
    """Counts tokens roughly: the real vocabulary takes longer to load than most of these processes live."""

    def count(self, text: str) -> int:
        return len(text.split())


# ---- recording -----------------------------------------------------------------------------------------------------


@contextmanager
def opened(job: Job, journal: Journal, store: DirectoryStore | None = None) -> Iterator[ResumedAgent]:
    """The job's agent, held; its epoch is in the journal."""
    writer.FOLD_AFTER = job.fold_after
    if job.named_files:
        _files._TMPFILE = 0
    with (
        Client(store=store or DirectoryStore(job.directory)) as client,
        client.resume(
            job.agent_id, lease_ttl=job.ttl, wait=job.wait, takeover=job.takeover, output_threshold=100, counter=Words()
        ) as agent,
    ):
        journal.write("open", epoch=agent.epoch, holder=agent.holder, agent_id=job.agent_id)
        yield agent


def record(job: Job) -> None:
    """Open the agent, check that it has all that was acknowledged before, and record `count` times."""
    journal = Journal(job.journal)
    known = Acknowledged.of(journal.read())
    if job.at_step >= 0:
        signal_after(job.at_step, signal.SIGKILL, journal, job.threads)
    with opened(job, journal) as agent:
        known.check_opened(agent)
        for number in range(job.count):
            record_one(agent, number, journal)


def record_one(agent: ResumedAgent, number: int, journal: Journal) -> None:
    """Record something, of another kind each time, and write down that it was acknowledged."""
    label = f"{agent.epoch}/{number}"
    match number % 6:
        case 0:
            journal.write("turns", seqs=[agent.record_turn("user", label)], labels=[label])
        case 1:
            agent.update_working_state(goal=GOAL, progress=label)
            journal.write("progress", label=label)
        case 2:
            labels = [f"{label}/{part}" for part in range(3)]
            seqs = agent.submit(*(agent.prepare_turn("assistant", label) for label in labels)).result()
            journal.write("turns", seqs=seqs, labels=labels)
        case 3:
            journal.write("pin", id=agent.pin(label, id=f"rule-{agent.epoch % 3}"), label=label)
        case 4:
            journal.write("turns", seqs=[agent.record_turn("tool", label + FILLER)], labels=[label])
        case 5:
            journal.write("output", ref=agent.store_output(label + FILLER), label=label)


# ---- killed --------------------------------------------------------------------------------------------------------


def killed_at_each_step(job: Job) -> None:
    """Let `lives` children record one after the other, each killed some steps later in its life than the one before."""
    _lives(job, lambda life: fork(lambda: record(at_step_of(job, life))))


def at_step_of(job: Job, life: int) -> Job:
    """The job of child number `life`."""
    return msgspec.structs.replace(job, at_step=job.at_step + life * job.stride)


def killed_at_random(job: Job) -> None:
    """Let `lives` children record one after the other, each killed from outside a moment after it got some way."""
    journal = Journal(job.journal)

    def killed(life: int) -> int:
        child = fork(lambda: record(job))
        deadline = time.monotonic() + 60
        while sum(event["pid"] == child for event in journal.read()) < life % 8 and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        return child

    _lives(job, killed)


def _lives(job: Job, start: Callable[[int], int]) -> None:
    """Every child stays a zombie, whom nobody has waited for, until the next one is dead too."""
    journal = Journal(job.journal)
    zombies = []
    for life in range(job.lives):
        zombies.append(start(life))
        os.waitid(os.P_PID, zombies[-1], os.WEXITED | os.WNOWAIT)
        if life:
            journal.write("end", code=join(zombies.pop(0)))
    journal.write("end", code=join(zombies.pop()))


# ---- stopped -------------------------------------------------------------------------------------------------------


def stopped_at_each_step(job: Job) -> None:
    """Let `lives` holders be stopped, each some steps later than the one before; others take over; then they go on."""
    journal = Journal(job.journal)
    taking_over = msgspec.structs.replace(job, takeover=True, count=8, at_step=-1)
    for life in range(job.lives):
        holder = fork(lambda life=life: record_until_lost(at_step_of(job, life)))
        os.waitid(os.P_PID, holder, os.WSTOPPED | os.WEXITED)
        journal.write("end", code=join(fork(lambda: record(taking_over))))
        os.kill(holder, signal.SIGCONT)
        journal.write("end", code=join(holder))


def record_until_lost(job: Job) -> None:
    """Record, with steps counted from when the agent is held, until the lease turns out to be lost."""
    journal = Journal(job.journal)
    with opened(job, journal) as agent:
        epoch = agent.epoch
        signal_after(job.at_step, signal.SIGSTOP, journal, job.threads)
        try:
            for number in range(job.count):
                record_one(agent, number, journal)
        except LeaseLost as lost:
            expect_lost(agent, epoch, lost, journal)
        else:
            raise AssertionError("recorded everything, though another process took over")


def stopped_asleep(job: Job) -> None:
    """Be stopped while nothing of ours reaches the store, and look what is known on waking before anything does."""
    journal = Journal(job.journal)
    store = HeldBack(job.directory)
    with opened(job, journal, store) as agent:
        epoch = agent.epoch
        record_one(agent, 0, journal)
        store.gate.clear()
        assert agent.lease_held
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        journal.write("awake", held=agent.lease_held)
        store.gate.set()
        try:
            agent.check_lease()
        except LeaseLost as lost:
            expect_lost(agent, epoch, lost, journal)


class HeldBack(DirectoryStore):
    """Creates wait while the gate is closed: like a network that was down when the machine woke up."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.gate = threading.Event()
        self.gate.set()

    def create(self, key: str, data: bytes) -> Outcome:
        self.gate.wait()
        return super().create(key, data)


def expect_lost(agent: ResumedAgent, epoch: int, lost: LeaseLost, journal: Journal) -> None:
    """The lease is lost for good: nothing that needs it works, and everything says so by the same name."""
    assert not agent.lease_held
    assert agent.epoch == 0
    for attempt in (agent.check_lease, lambda: agent.record_turn("user", "late"), lambda: agent.pin("late")):
        try:
            attempt()
        except LeaseLost:
            continue
        raise AssertionError("a lost lease was used")
    journal.write("lost", epoch=epoch, by=lost.by, to=lost.epoch)
