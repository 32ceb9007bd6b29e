"""What a process is to do, and the ways to start one: a new interpreter, or a child forked from a warm one."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import msgspec


class Job(msgspec.Struct, frozen=True):
    """Names a role (see `roles`) and what it needs.

    `ttl` and `wait` are seconds; `count` says how often to record, `fold_after` how many entries start a fold. At step
    `at_step` of the threads whose names begin with `threads` the process gets a signal (see `breakpoints`); below 0 it
    gets none. `lives` says how many children to run one after the other, `stride` how many steps later each gets its
    signal. `named_files` is for a file system that has no nameless ones; `how` is for each role to say.
    """

    role: str
    directory: str
    agent_id: str
    journal: str
    ttl: float = 60.0
    wait: float = 0.0
    takeover: bool = False
    count: int = 12
    fold_after: int = 4
    at_step: int = -1
    threads: str = ""
    lives: int = 0
    stride: int = 1
    named_files: bool = False
    how: str = ""


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked child, which then exits with 0, or with 1 and a traceback. Gives its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not return into its parent's frames
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def join(pid: int) -> int:
    """Wait for a child's end: its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
