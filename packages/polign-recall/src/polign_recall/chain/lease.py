"""Who holds a chain: the identity of this process, whether another one is certainly dead, and the clock."""

from __future__ import annotations

import os
import secrets
import socket
import time
from functools import cache

from ..errors import Invalid
from .entries import Host

GRACE = 1.0
"""Seconds added to a ttl before a lease counts as expired: some stores' times have a grain of one second."""


def boot_clock() -> float:
    """Seconds on a clock that also runs while the machine is suspended, where there is one."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def new_holder() -> str:
    """A name for a holder, unique per start: the same host and pid may come back."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def this_host() -> Host:
    """The identity of this process; empty where the system does not tell (then nobody guesses that it is dead)."""
    pid = os.getpid()
    started = _start_time(pid)
    boot, pid_ns = _boot_id(), _pid_namespace()
    if not (boot and pid_ns and started):
        return Host()
    return Host(boot=boot, pid_ns=pid_ns, pid=pid, started=started)


def certainly_dead(host: Host | None) -> bool:
    """True only when `host` names a process of this very boot and pid namespace that does not exist any more."""
    if host is None or not host.boot or host.boot != _boot_id() or host.pid_ns != _pid_namespace():
        return False
    try:
        os.kill(host.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists and is another user's
    started = _start_time(host.pid)
    return started is not None and started != host.started


def process_start(pid: int) -> str | None:
    """What tells a process from a later one with its pid: its machine's boot, and when it began in clock ticks since.

    None when there is no such process. Raises Invalid where the system does not tell.
    """
    if not (_boot_id() and _pid_namespace()):
        raise Invalid("this system does not tell when a process began")
    started = _start_time(pid)
    if started is None:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass  # it exists and is another user's
        raise Invalid(f"this system does not tell when the process {pid} began")
    return f"{_boot_id()[:8]}-{started}" if started else None


def _start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; 0 for one that has exited; None where it cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # proc(5): state is field 3, num_threads 20, starttime 22. A zombie whose threads are all gone runs no more.
    if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1:
        return 0
    return int(fields[19])


@cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    """Empty also where /proc is another namespace's (a container that was given its host's): its pids are not ours."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
