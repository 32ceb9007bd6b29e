"""Whether a holder on this machine is certainly dead: yes for one that is gone, no for anything less certain."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from polign_recall import LeaseHeld
from polign_recall.chain import Chain, Host, agent_prefix, run, this_host

from .conftest import Launch, Place, Program, await_true
from .holding import EXIT


def new_namespace(*more: str) -> list[str]:
    """A command that runs another one as the first process of a new pid namespace. Skips where that is not allowed."""
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *root, "--pid", "--fork", "--mount"]
    trial = [*command, "--mount-proc", "true"]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True).returncode:
        pytest.skip("this user may not make a pid namespace here")
    return [*command, *more]


def claimed_by(place: Place, host: Host) -> None:
    """Leave the agent as a holder on `host` left it that was not heard of since."""
    with place.client() as client:
        chain = Chain(agent_prefix(place.agent_id), place.agent_id)
        run(chain.acquire(ttl=60.0, holder="another", host=host), client.backend.store)


def is_held(place: Place) -> bool:
    """Whether the agent is held for one who wants it now, and for one who looks at it: both say the same."""
    with place.client() as client:
        holder = client.status(place.agent_id).holder
        try:
            client.resume(place.agent_id).close()
        except LeaseHeld as held:
            if held.holder != holder:
                raise
            return True
    assert not holder
    return False


def test_gone_is_dead(place: Place) -> None:
    claimed_by(place, this_host_as(pid=gone()))
    assert not is_held(place)


def test_a_pid_that_was_given_to_another_process_is_dead(place: Place) -> None:
    """We have the pid of the holder, and were started at another time."""
    host = this_host()
    claimed_by(place, this_host_as(started=host.started - 1))
    assert not is_held(place)


def test_this_process_is_alive(place: Place) -> None:
    claimed_by(place, this_host())
    assert is_held(place)


@pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"pid_ns": "pid:[1]"}, {"boot": ""}, {"pid_ns": ""}])
def test_of_a_process_elsewhere_nothing_is_known(place: Place, elsewhere: dict[str, str]) -> None:
    claimed_by(place, this_host_as(pid=gone(), **elsewhere))
    assert is_held(place)


def test_a_zombie_is_dead(place: Place, launch: Launch) -> None:
    holder = launch(place.job("hold"))
    place.await_event("open", by=holder)
    assert is_held(place)
    holder.signal(signal.SIGKILL)
    holder.await_death()
    assert status_of(holder) == "Z"
    assert not is_held(place)


@pytest.mark.skipif(os.uname().machine not in EXIT, reason="the number of exit(2) is not known here")
def test_a_zombie_with_living_threads_is_alive(place: Place, launch: Launch) -> None:
    """Its main thread has ended, and the one that writes and renews has not."""
    holder = launch(place.job("hold", how="headless"))
    await_true(lambda: status_of(holder) == "Z")
    assert is_held(place)
    holder.signal(signal.SIGKILL)
    holder.await_death()
    assert not is_held(place)


def test_dead_in_another_pid_namespace_is_not_certain(place: Place, launch: Launch) -> None:
    """Its pid means nothing here, whether there is such a process or not."""
    job = place.job("end", how="left os._exit", count=1)
    assert launch(job, prefix=new_namespace("--mount-proc")).ended() == 4
    assert is_held(place)
    with place.client() as client, client.resume(place.agent_id, takeover=True) as agent:
        assert [turn.content for turn in agent.turns()] == ["1/0"]


def test_dead_in_the_same_pid_namespace_is_seen_there(place: Place, launch: Launch) -> None:
    kills = 6
    program = launch(
        place.job("killed_at_each_step", lives=kills, at_step=30, count=100), prefix=new_namespace("--mount-proc")
    )
    assert program.ended() == 0
    assert [event["code"] for event in place.journal.read("end")] == [-signal.SIGKILL] * kills
    assert [event["epoch"] for event in place.journal.read("open")] == list(range(1, kills + 1))


def test_a_proc_of_another_pid_namespace_tells_nothing(place: Place, launch: Launch) -> None:
    """There `/proc/<pid>` is some other process, so nobody may conclude anything from it, nor leave it in a claim."""
    assert launch(place.job("hold_without_proc"), prefix=new_namespace()).ended() == 0
    assert [event["code"] for event in place.journal.read("end")] == [0]
    assert len(place.journal.read("refused")) == 1


def this_host_as(**changes: int | str) -> Host:
    """This host, with something changed."""
    return msgspec.structs.replace(this_host(), **changes)


def gone() -> int:
    """The pid of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def status_of(program: Program) -> str:
    """The state of a process as the system shows it: R, S, T, Z..."""
    fields = Path(f"/proc/{program.process.pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0]
