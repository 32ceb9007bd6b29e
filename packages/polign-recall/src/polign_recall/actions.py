"""Actions: tool calls that touch the world, as the state knows them. Pure functions, no I/O.

A process that dies between an effect and its record leaves an action without an outcome. What may be done then depends
on its class: a `pure` one is forgotten, an `idempotent` one may be tried again under the same key, and of an `external`
one a resolver has to find out; where it cannot, nobody but the model (or its user) decides, and knows that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any, Literal

from .records import ActionClass, ActionEnded, ActionStarted, EndStatus
from .state import State

ActionStatus = Literal["open", "unknown", "done", "failed", "abandoned"]


@dataclass(frozen=True, slots=True)
class Action:
    """A tool call that touches the world.

    `status` is "open" while this holder may carry it out, "unknown" when it was begun before and nobody knows what
    came of it, else how it ended. `key` is the same at every try of this action, and of no other. `args` and `result`
    are as they were recorded: secrets taken out, in short when they are long (`args_ref` and `result_ref` fetch the
    whole). `started_at` is the time of the latest try, RFC 3339.
    """

    seq: int
    tool: str
    class_: ActionClass
    key: str
    args: Any
    args_ref: str | None
    call_id: str | None
    epoch: int
    started_at: str
    status: ActionStatus
    result: Any = None
    result_ref: str | None = None
    error: str | None = None
    resolution: str | None = None


@dataclass(frozen=True, slots=True)
class ActionEnd:
    """How an action ended, as a resolver found out: "done", "failed" (nothing was done) or "abandoned"."""

    status: EndStatus
    result: Any = None
    error: str | None = None
    resolution: str | None = None


Resolver = Callable[[Action], ActionEnd | None]
"""Asks the outside world what came of an action; None when that cannot be told."""


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """`closed` have an outcome now; of those in `open` it is still unknown."""

    closed: list[Action]
    open: list[Action]


def pending(state: State, own: Container[str]) -> list[Action]:
    """The actions without a recorded outcome, oldest first; `own` are the keys of those that this holder has begun.

    What an earlier holder only wanted to read is not among them.
    """
    begun = state.open_actions.values()
    return [view(each, own) for each in begun if each.key in own or each.class_ != "pure"]


def ended(state: State) -> list[Action]:
    """The actions that are over while no turn answers their call yet, oldest first."""
    return [view(started, (), end) for started, end in state.ended_actions]


def view(started: ActionStarted, own: Container[str], end: ActionEnded | None = None) -> Action:
    """An action as the holder sees it that has begun `own` itself."""
    action = Action(
        seq=started.seq, tool=started.tool, class_=started.class_, key=started.key, args=started.args,
        args_ref=started.args_ref, call_id=started.call_id, epoch=started.epoch, started_at=started.at,
        status="open" if started.key in own else "unknown",
    )  # fmt: skip
    return action if end is None else closed(action, end)


def closed(action: Action, end: ActionEnded) -> Action:
    """An action with its outcome."""
    return replace(
        action, status=end.status, result=end.result, result_ref=end.result_ref, error=end.error,
        resolution=end.resolution,
    )  # fmt: skip


def earlier(state: State, now: ActionStarted, own: Container[str], *, exact: bool) -> Action | None:
    """The action that `now` is another try of: one for the same call, or else an idempotent one with the same arguments
    that an earlier holder left without an outcome.

    It is "open" when it may be carried out again. `exact` tells whether the arguments of `now` are recorded as they
    are: else equal records need not mean equal arguments.
    """
    for before, end in (*state.ended_actions, *state.answered_actions):
        if _same_call(before, now) and now.class_ != "pure":
            return view(before, own, end)
    for before in state.open_actions.values():
        if _same_call(before, now):
            unsafe = "external" in (before.class_, now.class_)
            return replace(view(before, own), status="unknown" if unsafe else "open")
    for before in state.open_actions.values():
        left_behind = before.class_ == now.class_ == "idempotent" and before.key not in own
        if exact and left_behind and _same_request(before, now):
            return replace(view(before, own), status="open")
    return None


def _same_call(before: ActionStarted, now: ActionStarted) -> bool:
    """Whether both stand for one call of the model. Some models number their calls anew: the id alone is not enough."""
    return now.call_id is not None and before.call_id == now.call_id and _same_request(before, now)


def _same_request(before: ActionStarted, now: ActionStarted) -> bool:
    return (before.tool, before.args, before.args_ref) == (now.tool, now.args, now.args_ref)
