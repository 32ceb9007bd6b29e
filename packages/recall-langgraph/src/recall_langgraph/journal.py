"""One tool call with its action in the agent's journal: begun before the effect, ended after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from polign_recall import Action, ActionEnd, NotFound, RecallError

from .outcomes import end_of, end_of_error, output_of, results_among

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from polign_recall import ResumedAgent
    from polign_recall.records import ActionClass


class Request(NamedTuple):
    """What a tool is asked to do: `args` are those that the model chose, `call_id` is the model's id of the call."""

    tool: str
    class_: ActionClass
    args: Any
    call_id: str | None


def run(agent: ResumedAgent, request: Request, execute: Callable[[str], Any]) -> Any:
    """Carry a tool call out with `execute(key)`; the key is the same at every try of this call.

    One whose outcome is on record, or unknown and not to be tried again, is not carried out: this gives what is known
    of it. An error of the tool closes its action as failed, an interrupt as abandoned, and is raised as it is; a
    cancelled task, KeyboardInterrupt and death leave it open. Raises LeaseLost once another process has taken over.
    """
    action = _begin(agent, request)
    if action.status != "open":
        return _known(agent, action)
    try:
        output = execute(action.key)
    except Exception as error:
        _end_badly(agent, action, error)
        raise
    _end(agent, action, end_of(output), wait=False)
    return output


async def arun(agent: ResumedAgent, request: Request, execute: Callable[[str], Awaitable[Any]]) -> Any:
    """`run` without blocking the event loop."""
    action = await _abegin(agent, request)
    if action.status != "open":
        return await asyncio.to_thread(_known, agent, action)
    try:
        output = await execute(action.key)
    except Exception as error:
        await asyncio.to_thread(_end_badly, agent, action, error)
        raise
    await asyncio.to_thread(_end, agent, action, end_of(output), wait=False)
    return output


def learn(agent: ResumedAgent, messages: Sequence[BaseMessage]) -> None:
    """End actions of unknown outcome whose results are among the messages of a restored thread."""
    unknown = [action for action in agent.pending_actions() if action.status == "unknown"]
    for action, message in results_among(messages, unknown):
        _end(agent, action, replace(end_of(message), resolution="its result was in the thread"), wait=False)


def _begin(agent: ResumedAgent, request: Request) -> Action:
    return agent.begin_action(request.tool, request.class_, request.args, call_id=request.call_id)


async def _abegin(agent: ResumedAgent, request: Request) -> Action:
    cancelled = threading.Event()

    def begin() -> Action:
        action = _begin(agent, request)
        if cancelled.is_set() and action.status == "open":
            _end(agent, action, ActionEnd("abandoned", resolution="cancelled before it ran"))
        return action

    try:
        return await asyncio.to_thread(begin)
    except asyncio.CancelledError:
        cancelled.set()
        raise


def _known(agent: ResumedAgent, action: Action) -> Any:
    whole = None if action.result_ref is None else agent.fetch_output(action.result_ref).decode()
    return output_of(action, whole)


def _end(agent: ResumedAgent, action: Action, end: ActionEnd, *, wait: bool = True) -> None:
    """Without `wait` nothing is lost: the turn with the result, which is recorded next, cannot be durable earlier."""
    known: dict[str, Any] = {"result": end.result, "error": end.error, "resolution": end.resolution}
    try:
        agent.end_action(action.seq, end.status, **known, wait=wait)
    except NotFound:
        pass  # the same call ran twice at once, and the other has ended it


def _end_badly(agent: ResumedAgent, action: Action, error: Exception) -> None:
    """The tool's own error is what its caller has to see. Waits: it may be tried again at once."""
    try:
        _end(agent, action, end_of_error(error))
    except RecallError as problem:
        error.add_note(f"while recording how {action.tool} ended: {problem}")
