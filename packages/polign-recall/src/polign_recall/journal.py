"""The journal of an agent's actions: written before an effect, and after it."""

from __future__ import annotations

import logging
import secrets
import threading
from concurrent.futures import Future, wait
from typing import Any, get_args

from . import actions
from .actions import Action, ActionEnd, ReconcileReport, Resolver
from .chain.protocol import rfc3339
from .errors import Invalid, NotFound
from .preparing import Preparer, required
from .records import ActionClass, ActionEnded, ActionStarted, EndStatus
from .redact import redact
from .text import clean_json
from .writer import Writer

_log = logging.getLogger("polign_recall")


class Journal:
    """The actions of one agent, over its writer. May be used from any thread."""

    def __init__(self, agent_id: str, writer: Writer, preparer: Preparer) -> None:
        self._agent_id = agent_id
        self._writer = writer
        self._preparer = preparer
        self._lock = threading.Lock()  # held while choosing what to go on with, never while waiting
        self._own: frozenset[str] = frozenset()
        self._ending: dict[int, tuple[ActionStarted, Future[list[int]]]] = {}  # by seq: ends that are on their way

    @property
    def own(self) -> frozenset[str]:
        """The keys of the actions that this process has begun, and whose end is not recorded yet."""
        return self._own | {begun.key for begun, _ in list(self._ending.values())}

    def begin(self, tool: str, class_: ActionClass, args: Any, call_id: str | None) -> Action:
        """See `ResumedAgent.begin_action`."""
        started, exact = self._start(tool, class_, args, call_id)
        self._let_end(started, exact=exact)
        with self._lock:
            earlier = actions.earlier(self._writer.state, started, self._own, exact=exact)
            if earlier is not None:
                if earlier.status in ("done", "unknown"):
                    return earlier
                started.key, started.seq = earlier.key, earlier.seq
            self._own |= {started.key}
        self._writer.write([started])
        return actions.view(started, (started.key,))

    def end(self, seq: int, end: ActionEnd) -> None:
        """See `ResumedAgent.end_action`."""
        begun = self._begun(seq)
        self._writer.write([self._ended(seq, end)])
        with self._lock:
            self._own -= {begun.key}

    def submit_end(self, seq: int, end: ActionEnd) -> Future[list[int]]:
        """`end` without waiting; it is on its way when this returns, before all that is recorded after it.

        Only where a lost end may leave a doubt is it not held back for what comes next.
        """
        begun, record = self._begun(seq), self._ended(seq, end)
        with self._lock:
            written = self._writer.submit([record], linger=begun.class_ != "external")
            self._ending[seq] = begun, written
            self._own -= {begun.key}
        written.add_done_callback(lambda _: self._let_go(seq))
        return written

    def pending(self) -> list[Action]:
        """See `ResumedAgent.pending_actions`."""
        return [each for each in actions.pending(self._writer.state, self._own) if each.seq not in self._ending]

    def ended(self) -> list[Action]:
        """See `ResumedAgent.ended_actions`."""
        return actions.ended(self._writer.state)

    def abandon_reads(self) -> None:
        """Close what earlier holders only wanted to read, without waiting for that: nothing depends on it."""
        begun = self._writer.state.open_actions.values()
        left = [each for each in begun if each.class_ == "pure" and each.key not in self._own]
        if left:
            end = ActionEnd("abandoned", resolution="its process was gone")
            self._writer.submit([self._ended(each.seq, end) for each in left])

    def reconcile(self, resolver: Resolver | None) -> ReconcileReport:
        """See `ResumedAgent.reconcile`."""
        report = ReconcileReport([], [])
        for action in self.pending():
            if action.status == "open":  # being carried out
                continue
            end = None if resolver is None else self._ask(resolver, action)
            if end is None:
                report.open.append(action)
                continue
            record = self._ended(action.seq, end)
            self._writer.write([record])
            report.closed.append(actions.closed(action, record))
        return report

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _begun(self, seq: int) -> ActionStarted:
        """The action that is to end. Raises NotFound."""
        begun = self._writer.state.open_actions.get(seq)
        if begun is None or seq in self._ending:
            raise NotFound(f"no action {seq} is open", agent_id=self._agent_id, hint="see pending_actions()")
        return begun

    def _let_go(self, seq: int) -> None:
        """See that an end has been written, or was not: nobody waits for it. Never waits itself."""
        begun, written = self._ending.pop(seq)
        if error := written.exception():
            _log.warning("action %d (%s) stays open: its end could not be recorded: %s", seq, begun.tool, error)

    def _let_end(self, started: ActionStarted, *, exact: bool) -> None:
        """Wait for the end of what `started` is another try of, where that is on its way."""
        earlier = actions.earlier(self._writer.state, started, self._own, exact=exact)
        if earlier is not None and (ending := self._ending.get(earlier.seq)) is not None:
            wait([ending[1]])

    def _start(self, tool: str, class_: ActionClass, args: Any, call_id: str | None) -> tuple[ActionStarted, bool]:
        """The record of a new action, and whether its arguments are in it as they are."""
        if class_ not in get_args(ActionClass):
            raise Invalid(f"an action is pure, idempotent or external, not {class_!r}", agent_id=self._agent_id)
        value, epoch = self._preparer.value(args), self._writer.chain.epoch
        started = ActionStarted(
            tool=required(tool, "a tool's name"), class_=class_, key=secrets.token_hex(16), epoch=epoch,
            args=value.short, args_ref=value.ref, call_id=self._preparer.label(call_id, "a call's id"), at=rfc3339(),
        )  # fmt: skip
        return started, value.ref is None and value.short == clean_json(args)

    def _ended(self, seq: int, end: ActionEnd) -> ActionEnded:
        if end.status not in get_args(EndStatus):
            raise Invalid(f"an action ends as done, failed or abandoned, not {end.status!r}", agent_id=self._agent_id)
        result, head = self._preparer.value(end.result), self._preparer.head
        return ActionEnded(
            seq=seq, status=end.status, result=result.short, result_ref=result.ref, size=result.size,
            error=head(end.error, "an error"), resolution=head(end.resolution, "a resolution"), at=rfc3339(),
        )  # fmt: skip

    def _ask(self, resolver: Resolver, action: Action) -> ActionEnd | None:
        """What the resolver says; one that fails does not know."""
        try:
            end = resolver(action)
        except Exception as error:  # noqa: BLE001 - the caller's code, and what it asks may be down
            raised = redact(repr(error))
            _log.warning("action %d (%s) stays open: its resolver raised %s", action.seq, action.tool, raised)
            return None
        if end is not None and not isinstance(end, ActionEnd):
            raise Invalid(f"a resolver returns an ActionEnd or None, not {type(end).__name__}", agent_id=self._agent_id)
        return end
