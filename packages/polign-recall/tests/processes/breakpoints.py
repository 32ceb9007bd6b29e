"""A process that signals itself between two steps of the directory store."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from .journal import Journal

CALLS = ("mkdir", "open", "write", "fsync", "link", "unlink")
"""Every system call by which the store changes something. Opening for reading does not count: nothing differs then."""


def signal_after(step: int, signum: int, journal: Journal, threads: str = "") -> None:
    """From here on count the calls of `CALLS`, and get `signum` right after number `step` (0: now).

    Only threads whose names begin with `threads` are counted.
    """
    steps = count(1)

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            try:
                return call(*args, **options)
            finally:
                if changes(name, args) and next(steps) == step:
                    stop_here(_described(name, args))

        return wrapper

    def changes(name: str, args: tuple[Any, ...]) -> bool:
        reading = name == "open" and args[1] & os.O_ACCMODE == os.O_RDONLY
        return not reading and threading.current_thread().name.startswith(threads)

    def stop_here(what: str) -> None:
        journal.write("breakpoint", after=what)
        # To this very thread, which then gets no further than here. A signal to the process might reach another one.
        signal.pthread_kill(threading.get_ident(), signum)

    if step == 0:
        stop_here("nothing")
    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


def _described(name: str, args: tuple[Any, ...]) -> str:
    """The call, with the name of the file where it has one: `link(2)` and `unlink(2)` get it last."""
    paths = [os.path.basename(arg) for arg in args if isinstance(arg, str)]
    return " ".join([name, *paths[-1:]])
