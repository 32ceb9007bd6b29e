"""Pairing repair: every tool call of a history followed by exactly one result. Pure functions, no I/O.

One unanswered call makes every later request fail for good, so this holds anywhere in a history, not only at
its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)

M = TypeVar("M", bound=BaseMessage)
Outcomes = Mapping[tuple[str | None, str], str]
"""What is known to have come of a call, by its id and its tool's name."""

UNKNOWN: Final = "outcome unknown: the result of this call was not recorded; check before repeating it"
UNREADABLE: Final = "not run: the arguments of this call could not be read"
# Marks a message that was made up for the model, in `additional_kwargs`, which no provider is sent. Such a
# message takes the id of the one it stands next to: LangGraph's "messages" stream skips ids that a node was
# given, so users do not see what was meant for the model.
_MADE_UP: Final = "recall_made_up"
CALL_BLOCKS: Final = frozenset(
    {
        *("tool_use", "input_json_delta"),
        *("tool_call", "tool_call_chunk", "invalid_tool_call"),
        *("function_call", "custom_tool_call"),
    }
)
"""Content blocks in which providers repeat what `tool_calls` says: Anthropic's, LangChain's own, OpenAI's."""
RAW_CALLS: Final = frozenset({"tool_calls", "function_call"})
"""Keys of `additional_kwargs` that converters fall back on when a reply has no calls."""


def paired(messages: list[BaseMessage], outcomes: Outcomes | None = None) -> list[BaseMessage]:
    """Every call followed by exactly one result, in the order of the calls, under an id of its own.

    A result is taken from wherever it arrived after its call. A second one for the same call is dropped: the
    model has seen the first. One whose call is not there (an older part of the history was cut away) is kept
    as quoted user text: no provider takes it as a result, and dropping it would lose what it says. A call
    whose arguments could not be read is shown without them: some servers refuse a history with broken JSON.
    `outcomes` stand for results that are not there.
    """
    ids = _CallIds(messages)
    results: dict[str, ToolMessage] = {}
    spine: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage):
            spine.append(ids.claim(message))
        elif isinstance(message, ToolMessage) and (call_id := ids.answered_by(message)) is not None:
            results.setdefault(call_id, _under(call_id, message))
        else:
            spine.append(_quoted(message) if isinstance(message, ToolMessage | FunctionMessage) else message)
    for call_id, reply, name in ids.unread:
        results.setdefault(call_id, _missing(UNREADABLE, reply, call_id, name))
    return [message for kept in spine for message in (kept, *_results_of(kept, results, outcomes or {}))]


def made_up(kind: type[M], text: str, beside: BaseMessage | None, **fields: Any) -> M:
    """A message for the model alone, which stands next to `beside` and is never recorded."""
    message_id = beside.id if beside is not None else None
    return kind(content=text, id=message_id, additional_kwargs={_MADE_UP: True}, **fields)


def is_made_up(message: BaseMessage) -> bool:
    """Whether `made_up` made it."""
    return _MADE_UP in message.additional_kwargs


def _results_of(message: BaseMessage, results: dict[str, ToolMessage], outcomes: Outcomes) -> Iterator[ToolMessage]:
    if not isinstance(message, AIMessage):
        return
    for call in message.tool_calls:
        call_id = str(call["id"])
        text = outcomes.get((call_id, call["name"]), UNKNOWN)
        yield results.get(call_id) or _missing(text, message, call_id, call["name"])
    yield from (results[call_id] for call_id in _hosted_calls(message) if call_id in results)


def _missing(text: str, reply: AIMessage, call_id: str, name: str) -> ToolMessage:
    return made_up(ToolMessage, text, reply, tool_call_id=call_id, name=name)


def _quoted(result: BaseMessage) -> HumanMessage:
    """The result as text from the user, quoted as JSON so that it cannot pose as anything but data."""
    data = json.dumps({"tool": result.name, "result": result.text}, ensure_ascii=False)
    text = f"(recorded data: the result of a tool call that is no longer part of this conversation: {data})"
    return made_up(HumanMessage, text, result)


def _under(call_id: str, result: ToolMessage) -> ToolMessage:
    return result if call_id == result.tool_call_id else result.model_copy(update={"tool_call_id": call_id})


def _hosted_calls(message: AIMessage) -> list[str]:
    """Ids of the calls that stand in the content alone (OpenAI's computer_call): results may answer them."""
    if isinstance(message.content, str):
        return []
    blocks = [block for block in message.content if isinstance(block, dict) and "call_id" in block]
    return [block["call_id"] for block in blocks if block.get("type") not in CALL_BLOCKS]


class _CallIds:
    """Gives every call an id of its own in the whole history, and finds the call that a result answers.

    Some models count their calls from zero in every reply, and providers refuse an id that occurs twice.
    """

    def __init__(self, messages: Iterable[BaseMessage]) -> None:
        replies = [message for message in messages if isinstance(message, AIMessage)]
        self._given = {call["id"] for m in replies for call in (*m.tool_calls, *m.invalid_tool_calls)}
        self._used: set[str] = set()
        # From an id as given to ids of our own: those of the latest reply that are not answered yet; the one
        # answered last.
        self._waiting: dict[str, list[str]] = {}
        self._answered: dict[str, str] = {}
        self.unread: list[tuple[str, AIMessage, str]] = []

    def claim(self, message: AIMessage) -> AIMessage:
        """The reply with its calls under ids of their own, and with nothing else that reads as a call."""
        waiting: dict[str, list[str]] = {call_id: [call_id] for call_id in _hosted_calls(message)}
        calls = [self._own(call, waiting) for call in message.tool_calls]
        for unread in message.invalid_tool_calls:
            if name := unread["name"]:
                call = ToolCall(name=name, args={}, id=unread["id"], type="tool_call")
                calls.append(self._own(call, waiting))
                self.unread.append((str(calls[-1]["id"]), message, name))
        self._waiting.update(waiting)
        update = {
            "tool_calls": calls,
            "invalid_tool_calls": [],
            "content": _without_strays(message.content, {call["id"] for call in calls}),
            "additional_kwargs": message.additional_kwargs if calls else _without_raw_calls(message),
        }
        changed = any(getattr(message, key) != value for key, value in update.items())
        return message.model_copy(update=update) if changed else message

    def answered_by(self, result: ToolMessage) -> str | None:
        """The own id of the call that `result` answers, first or again; None when there is no such call."""
        if waiting := self._waiting.get(result.tool_call_id):
            self._answered[result.tool_call_id] = waiting.pop(0)
        return self._answered.get(result.tool_call_id)

    def _own(self, call: ToolCall, waiting: dict[str, list[str]]) -> ToolCall:
        given = own = call["id"] or ""
        count = 1
        while not own or own in self._used or (own != given and own in self._given):
            count += 1
            own = f"{given or 'call'}-{count}"
        self._used.add(own)
        waiting.setdefault(given, []).append(own)
        return call if own == call["id"] else {**call, "id": own}


def _without_strays(content: Any, call_ids: set[str | None]) -> Any:
    """The content without blocks that repeat a call which the reply does not have, or not under that id."""
    if isinstance(content, str):
        return content
    left = set(call_ids)
    kept = []
    for block in content:
        if isinstance(block, dict) and block.get("type") in CALL_BLOCKS:
            call_id = block.get("call_id") or block.get("id")
            if call_id not in left:
                continue
            left.remove(call_id)
        kept.append(block)
    return kept


def _without_raw_calls(message: AIMessage) -> dict[str, Any]:
    """`additional_kwargs` without raw calls, which converters fall back on and nothing would answer."""
    return {key: value for key, value in message.additional_kwargs.items() if key not in RAW_CALLS}
