"""Processes that hold an agent, want it, hand it over, or fork. Each role is a function of a `Job` (see `program`)."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import msgspec
from polign_recall import Client, LeaseHeld, LeaseLost, LeaseNotHeld, ResumedAgent, Turn
from polign_recall.stores import DirectoryStore, Outcome

from .jobs import Job, fork, join
from .journal import Journal
from .recording import expect_lost, opened, record_one

EXIT = {"x86_64": 60, "aarch64": 93}
"""The number of exit(2), which ends one thread, by machine."""
PATIENCE = 30
"""Seconds that a forked child has: a lock that a thread of the parent held at the fork might stay locked for ever."""

# ---- one holder at a time ------------------------------------------------------------------------------------------


def guard(job: Job) -> None:
    """Hold the agent for `count` critical sections, or until it is lost, and write down from when to when it was ours.

    A check that succeeds shows that we held it at some time during the check, and two in a row all the time between.
    """
    journal = Journal(job.journal)
    with opened(job, journal) as agent:
        epoch = agent.epoch
        try:
            agent.check_lease()
            for number in range(job.count):
                since = time.monotonic()
                if number % 6 == 0:
                    record_one(agent, number, journal)
                time.sleep(0.02)
                until = time.monotonic()
                agent.check_lease()
                journal.write("held", epoch=epoch, since=since, until=until)
        except LeaseLost as lost:
            expect_lost(agent, epoch, lost, journal)


def race(job: Job) -> None:
    """Let two children open one agent at the same time, `lives` times. The winner keeps it until the other is told."""
    barrier = multiprocessing.get_context("fork").Barrier(2, timeout=30)
    journal = Journal(job.journal)

    def racer() -> None:
        for number in range(job.lives):
            # Every other time a new agent, and else the same one again: both kinds of start are raced for.
            agent_id = job.agent_id if number % 2 else f"{job.agent_id}-{number}"
            barrier.wait()
            try:
                with opened(msgspec.structs.replace(job, agent_id=agent_id), journal) as agent:
                    journal.write("won", race=number, holder=agent.holder, epoch=agent.epoch, agent_id=agent_id)
                    barrier.wait()
            except LeaseHeld as held:
                journal.write("refused", race=number, holder=held.holder, since=held.since, expires_in=held.expires_in)
                barrier.wait()
            barrier.wait()

    children = [fork(racer) for _ in range(2)]
    sys.exit(max(abs(join(child)) for child in children))


# ---- ends ----------------------------------------------------------------------------------------------------------


def end(job: Job) -> None:
    """Record, and end the process in the way that `how` names: "<left or unclosed> <way>"."""
    journal = Journal(job.journal)
    if job.how.startswith("unclosed"):
        agent = Client(local_dir=job.directory).resume(job.agent_id, lease_ttl=job.ttl)
        journal.write("open", epoch=agent.epoch, holder=agent.holder)
        _record_and_end(agent, job, journal)
    else:
        with opened(job, journal) as agent:
            _record_and_end(agent, job, journal)


def _record_and_end(agent: ResumedAgent, job: Job, journal: Journal) -> None:
    for number in range(job.count):
        record_one(agent, number, journal)
    match job.how.split()[1]:
        case "sys.exit":
            sys.exit(3)
        case "raise":
            raise RuntimeError("on purpose")
        case "os._exit":
            os._exit(4)
        case "signal":
            journal.write("ready")
            for number in range(job.count, 10_000):
                record_one(agent, number, journal)


# ---- identities ----------------------------------------------------------------------------------------------------


def hold(job: Job) -> None:
    """Open the agent, record, and keep it until killed. With `how` "headless" the main thread is gone meanwhile."""
    journal = Journal(job.journal)
    with opened(job, journal) as agent:
        record_one(agent, 0, journal)
        if job.how == "headless":
            exit_main_thread()
        time.sleep(600)


def exit_main_thread() -> None:
    """End the main thread alone, past the interpreter: the process is shown as a zombie and goes on running."""
    ctypes.CDLL(None).syscall(EXIT[os.uname().machine], 0)


def hold_without_proc(job: Job) -> None:
    """As the first process of a pid namespace that sees the outer one's /proc: open the agent, mount a /proc of its
    own, and let a child, which sees the holder as it is, try to open the agent too.
    """
    journal = Journal(job.journal)
    with opened(job, journal) as agent:
        subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
        journal.write("end", code=join(fork(lambda: expect_held(job, journal))))
        agent.check_lease()


def expect_held(job: Job, journal: Journal) -> None:
    """Want the agent, and be refused."""
    try:
        with opened(job, journal):
            raise AssertionError("a live holder was taken for dead")
    except LeaseHeld as held:
        journal.write("refused", holder=held.holder)


# ---- forks ---------------------------------------------------------------------------------------------------------


def forking(job: Job) -> None:
    """Hold an agent and fork children, `lives` in all, while a thread of ours is busy recording."""
    journal = Journal(job.journal)
    context = multiprocessing.get_context("fork")
    with Client(local_dir=job.directory) as client, client.resume(job.agent_id) as agent:
        journal.write("open", epoch=agent.epoch, holder=agent.holder)
        done = threading.Event()
        busy = threading.Thread(target=_record_until, args=(done, agent, journal))
        busy.start()
        try:
            for number in range(job.lives):
                child = context.Process(target=_forked, args=(client, agent, number))
                child.start()
                child.join()
                journal.write("end", code=child.exitcode)
        finally:
            done.set()
            busy.join()
        agent.check_lease()
        record_one(agent, 10_000, journal)
        journal.write("kept", epoch=agent.epoch)


def forking_midway(job: Job) -> None:
    """Fork while another thread is in the middle of making a directory in the store."""
    store = DirectoryStore(job.directory)
    inside, resume = threading.Event(), threading.Event()
    mkdir = os.mkdir

    def slow_mkdir(path: str) -> None:
        mkdir(path)
        inside.set()
        resume.wait()

    def create_in_child() -> None:
        signal.alarm(PATIENCE)
        assert store.create("second/key", b"") is Outcome.CREATED

    os.mkdir = slow_mkdir
    busy = threading.Thread(target=store.create, args=("first/key", b""))
    busy.start()
    inside.wait()
    os.mkdir = mkdir
    Journal(job.journal).write("end", code=join(fork(create_in_child)))
    resume.set()
    busy.join()


def _record_until(done: threading.Event, agent: ResumedAgent, journal: Journal) -> None:
    for number in range(10_000):
        if done.is_set():
            return
        record_one(agent, number, journal)


def _forked(client: Client, agent: ResumedAgent, number: int) -> None:
    """In a child: nothing can be done with the parent's agent, and everything with one of our own."""
    signal.alarm(PATIENCE)
    assert not agent.lease_held
    for attempt in (
        agent.check_lease, agent.acquire, agent.release, agent.flush, lambda: agent.record_turn("user", "from a child"),
        lambda: agent.submit(Turn(role="user")), lambda: agent.update_working_state(goal="another"),
        lambda: agent.store_output("from a child"),
    ):  # fmt: skip
        try:
            attempt()
        except LeaseNotHeld as error:
            assert "fork" in str(error)  # noqa: PT017 - not a test
            continue
        raise AssertionError("a child worked with the lease of its parent")
    try:
        client.resume(agent.agent_id)
    except LeaseHeld as held:
        assert held.holder == agent.holder  # noqa: PT017 - not a test
    with client.resume(f"{agent.agent_id}-child-{number}") as own:
        own.record_turn("user", "of our own")
    agent.close()
    atexit._run_exitfuncs()  # what a child does that ends like any program
