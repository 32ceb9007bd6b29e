"""The journal of an agent's actions: written before an effect, and after it."""

from __future__ import annotations

import logging
import secrets
import threading
from typing import Any, get_args

from . import actions
from .actions import Action, ActionEnd, ReconcileReport, Resolver
from .chain.protocol import rfc3339
from .errors import Invalid, NotFound
from .preparing import Preparer, required
from .records import ActionClass, ActionEnded, ActionStarted, EndStatus
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

    @property
    def own(self) -> frozenset[str]:
        """The keys of the actions that this process has begun, and not ended."""
        return self._own

    def begin(self, tool: str, class_: ActionClass, args: Any, call_id: str | None) -> Action:
        """See `ResumedAgent.begin_action`."""
        started, exact = self._start(tool, class_, args, call_id)
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
        begun = self._writer.state.open_actions.get(seq)
        if begun is None:
            raise NotFound(f"no action {seq} is open", agent_id=self._agent_id, hint="see pending_actions()")
        self._writer.write([self._ended(seq, end)])
        with self._lock:
            self._own -= {begun.key}

    def pending(self) -> list[Action]:
        """See `ResumedAgent.pending_actions`."""
        return actions.pending(self._writer.state, self._own)

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
            _log.warning("action %d (%s) stays open: its resolver raised %r", action.seq, action.tool, error)
            return None
        if end is not None and not isinstance(end, ActionEnd):
            raise Invalid(f"a resolver returns an ActionEnd or None, not {end!r}", agent_id=self._agent_id)
        return end
