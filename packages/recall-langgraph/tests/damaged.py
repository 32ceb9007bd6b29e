"""Whole histories, and the same with damage anywhere in them: what crashes, trimming, edits and bugs leave behind."""

from collections.abc import Callable
from typing import Any

from histories import anthropic_reply, reply, responses_reply, result, user
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

History = list[BaseMessage]
Draw = Callable[[Any], Any]


@st.composite
def whole_histories(draw: Draw) -> History:
    """A history that needs no repair: rounds of a user message, replies with calls and their results, an answer.

    Every text occurs once, every message has an id, calls have ids of their own.
    """
    history: History = []
    for number in range(draw(st.integers(1, 4))):
        history.append(user(f"question {number}"))
        for step in range(draw(st.integers(0, 2))):
            calls = [f"c{number}-{step}-{index}" for index in range(draw(st.integers(1, 3)))]
            speak = draw(st.sampled_from([_plain_reply, anthropic_reply, responses_reply]))
            history.append(speak(*calls))
            history += [result(call_id, f"result of {call_id}") for call_id in calls]
        history.append(reply(f"answer {number}"))
    for index, message in enumerate(history):
        message.id = f"m{index}"
    return history


@st.composite
def damaged_histories(draw: Draw) -> History:
    """A whole history with up to six pieces of damage, each anywhere in it."""
    history = draw(whole_histories())
    for damage in draw(st.lists(st.sampled_from(DAMAGE), min_size=1, max_size=6)):
        if history:
            history = damage(draw, history)
    return history


def _plain_reply(*call_ids: str) -> AIMessage:
    return reply("", *call_ids)


def _drop(draw: Draw, history: History) -> History:
    """Any message: a result that was never saved, a reply that was removed."""
    at = draw(_place(history))
    return [*history[:at], *history[at + 1 :]]


def _drop_results(draw: Draw, history: History) -> History:
    """Some of the results, as after a crash in the middle of parallel tools."""
    kept = draw(st.lists(st.booleans(), min_size=len(history), max_size=len(history)))
    return [m for m, keep in zip(history, kept, strict=True) if keep or not isinstance(m, ToolMessage)]


def _double(draw: Draw, history: History) -> History:
    """A message that arrives again somewhere later, under another id."""
    at = draw(_place(history))
    later = draw(st.integers(at + 1, len(history)))
    again = history[at].model_copy(update={"id": f"{history[at].id}-again"})
    if isinstance(again, ToolMessage):
        again.content = f"{again.text}, the second time"
    return [*history[:later], again, *history[later:]]


def _move(draw: Draw, history: History) -> History:
    """A message somewhere else: a result before its call, or long after it."""
    moved = history[draw(_place(history))]
    rest = [message for message in history if message is not moved]
    at = draw(st.integers(0, len(rest)))
    return [*rest[:at], moved, *rest[at:]]


def _reorder(draw: Draw, history: History) -> History:
    """A few neighbours in another order, as parallel branches leave them."""
    at = draw(_place(history))
    return [*history[:at], *draw(st.permutations(history[at : at + 4])), *history[at + 4 :]]


def _spoil(draw: Draw, history: History) -> History:
    """A reply's calls cannot be read any more."""
    at = draw(_place(history))
    message = history[at]
    if not isinstance(message, AIMessage):
        return history
    spoiled = [
        {"type": "invalid_tool_call", "id": call["id"], "name": call["name"], "args": "{", "error": "no JSON"}
        for call in message.tool_calls
    ]
    changed = message.model_copy(update={"tool_calls": [], "invalid_tool_calls": spoiled})
    return [*history[:at], changed, *history[at + 1 :]]


def _empty(draw: Draw, history: History) -> History:
    """A message that says nothing."""
    at = draw(_place(history))
    nothing = draw(st.sampled_from(["", [], [{"type": "text", "text": ""}]]))
    return [*history[:at], history[at].model_copy(update={"content": nothing}), *history[at + 1 :]]


def _cut(draw: Draw, history: History) -> History:
    """The oldest part is gone, wherever the cut falls."""
    return history[draw(_place(history)) :]


def _interfere(draw: Draw, history: History) -> History:
    """Somebody speaks in between: the user amid a pair, or rules amid the talk."""
    at = draw(st.integers(0, len(history)))
    said = draw(st.sampled_from([user("and now?", id="u"), SystemMessage("be brief", id="s"), reply("hm", id="a")]))
    return [*history[:at], said, *history[at:]]


def _place(history: History) -> st.SearchStrategy[int]:
    return st.integers(0, len(history) - 1)


DAMAGE = (_drop, _drop_results, _double, _move, _reorder, _spoil, _empty, _cut, _interfere)
