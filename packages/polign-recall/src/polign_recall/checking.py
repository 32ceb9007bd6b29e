"""Checking pointers: what is there now, where they point, as far as somebody gave a way to find out.

A checker is the user's code, and what it asks may hang: it runs in a thread that nobody waits for longer than
`SECONDS`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock, Thread
from typing import Literal

from .records import Pointer

Checker = Callable[[str], str | None]
"""Finds out what is at a pointer's target now: gives its id (a commit, a version, when a process began), None when
nothing is there, and raises what it likes when it cannot tell."""
CheckStatus = Literal["same", "changed", "gone", "there", "not checked"]

SECONDS = 5.0
"""Time for all checks of a resume together: long for git and a bucket that answer, short for somebody who waits."""
PARALLEL = 8
"""Threads of one agent that check; those whose checker hangs count, until it comes back."""
LONGEST_ID = 64
"""Characters of an id that is recorded and shown as it is: a SHA-256 in hexadecimal."""
_log = logging.getLogger("polign_recall")


@dataclass(frozen=True, slots=True)
class PointerCheck:
    """What a check of a pointer found.

    `status` is "same" or "changed" since the pointer was recorded, "there" when nobody looked then, "gone" when nothing
    is there, or "not checked". `found` is the id of what is there; `error` is the type of what the checker raised.
    """

    status: CheckStatus
    found: str | None = None
    error: str | None = None


class Checks:
    """The checkers of an agent, by the kind of pointer they are for. May be used from any thread.

    `redactor` is what takes secrets out of a text before it is saved.
    """

    def __init__(self, agent_id: str, checkers: Mapping[str, Checker], redactor: Callable[[str], str]) -> None:
        self._agent_id = agent_id
        self._checkers = dict(checkers)
        self._redactor = redactor
        self._threads = _Threads()

    def see(self, pointer: Pointer) -> str | None:
        """The id of what is there now; None when nothing is, when it cannot be told, and without a checker."""
        return next((check.found for check in self._look([pointer]).values()), None)

    def check(self, pointers: Iterable[Pointer]) -> dict[str, PointerCheck]:
        """What is there now, by the pointers' names, for those that there is a checker for.

        They are checked side by side. After `SECONDS` those without an answer are "not checked".
        """
        pointers = list(pointers)
        seen = {pointer.name: pointer.seen for pointer in pointers}
        return {name: _compare(check, seen[name]) for name, check in self._look(pointers).items()}

    def _look(self, pointers: Iterable[Pointer]) -> dict[str, PointerCheck]:
        """As `check`, with "there" for whatever is there."""
        asked = {
            pointer.name: self._threads.submit(self._checkers[pointer.kind], pointer.target)
            for pointer in pointers
            if pointer.kind in self._checkers
        }
        wait(asked.values(), SECONDS)
        checks = {name: self._answer(future) for name, future in asked.items()}
        self._threads.forget_cancelled()
        if failed := [f"{name[:40]!r} ({check.error})" for name, check in checks.items() if check.error]:
            _log.warning("agent %r: pointers that were not checked: %s", self._agent_id, ", ".join(failed))
        return checks

    def _answer(self, future: Future[str | None]) -> PointerCheck:
        if not future.done():
            future.cancel()
            return PointerCheck("not checked", error=TimeoutError.__name__)
        if (error := future.exception()) is not None:
            _log.debug("agent %r: a checker raised", self._agent_id, exc_info=error)
            return PointerCheck("not checked", error=type(error).__name__)
        found = future.result()
        if found is None:
            return PointerCheck("gone")
        if not isinstance(found, str):
            return PointerCheck("not checked", error=TypeError.__name__)
        return PointerCheck("there", self._id(found))

    def _id(self, found: str) -> str:
        """An id as it may be recorded and shown: a digest in place of one that is long, no plain text or a secret."""
        plain = 0 < len(found) <= LONGEST_ID and found.isascii() and found.isprintable()
        if plain and self._redactor(found) == found:
            return found
        return f"blake2b-{blake2b(found.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


class _Threads:
    """At most `PARALLEL` daemon threads, which end when there is nothing to do: none keeps the process from ending."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._alive = 0
        self._waiting: deque[tuple[Future[str | None], Checker, str]] = deque()

    def submit(self, checker: Checker, target: str) -> Future[str | None]:
        future: Future[str | None] = Future()
        with self._lock:
            self._waiting.append((future, checker, target))
            start = self._alive < PARALLEL
            self._alive += start
        if start:
            Thread(target=self._work, name="polign-recall-check", daemon=True).start()
        return future

    def forget_cancelled(self) -> None:
        with self._lock:
            self._waiting = deque(item for item in self._waiting if not item[0].cancelled())

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._alive -= 1
                    return
                future, checker, target = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                _carry_out(future, checker, target)


def _carry_out(future: Future[str | None], checker: Checker, target: str) -> None:
    try:
        future.set_result(checker(target))
    except BaseException as error:  # noqa: BLE001 - the caller's code; whoever asked is told, and this thread goes on
        future.set_exception(error)


def _compare(check: PointerCheck, seen: str | None) -> PointerCheck:
    if check.status != "there" or seen is None:
        return check
    return PointerCheck("same" if check.found == seen else "changed", check.found)
