"""What messages take of a model's window, and messages in short. Pure functions, no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from polign_recall.text import shorten
from polign_recall.tokens import TokenCounter, at_most, truncate

M = TypeVar("M", bound=BaseMessage)

FRAME: Final = 4
"""Tokens that a message, and each call in it, takes beside its text: 3 or 4 in OpenAI's own accounts of its formats."""
_COUNTS: Final = 20_000
_MARK: Final = 60
"""Tokens that the mark of a shortened text takes at most."""
_ITEMS: Final = 50
"""So many parts of a list or an object among the arguments of a call are kept where these are too long."""


class Meter:
    """Counts the tokens of messages: their text, the names and arguments of their calls, and FRAME for each of these.

    Not counted are pictures, sound, files and sealed reasoning. Counts are kept by the message's id and text.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._counts: dict[Any, int] = {}

    def fits(self, messages: Sequence[BaseMessage], limit: int) -> bool:
        """Whether the messages take at most `limit` tokens together; counts only where their bytes leave it open."""
        return _adds_up(map(self._at_most, messages), limit) or _adds_up(map(self.one, messages), limit)

    def count(self, messages: Iterable[BaseMessage]) -> int:
        """Tokens of the messages together."""
        return sum(map(self.one, messages))

    def one(self, message: BaseMessage) -> int:
        """Tokens of a message."""
        return self._known("count", message, self._counter.count)

    def in_short(self, message: BaseMessage, tokens: int, whole: str | None) -> BaseMessage:
        """The message with at most so many tokens; pictures stay. `whole` is the reference of its whole text."""
        if not isinstance(message, AIMessage):
            return self._with_short_text(message, tokens, whole)
        text = self._counter.count(_text(message))
        calls = self.one(message) - text
        if text > tokens // 2 and isinstance(message.content, str):
            message = self._with_short_text(message, max(tokens - calls, tokens // 2), None)
            text = self._counter.count(_text(message))
        return message if text + calls <= tokens else self._with_short_calls(message, tokens - text)

    def _with_short_text(self, message: M, tokens: int, whole: str | None) -> M:
        text = _text(message)
        head = truncate(text, max(0, tokens - FRAME - _MARK), self._counter)
        where = f"; fetch_output(ref={whole!r}) has all of it" if whole else ""
        short = f"{head}\n[... cut: {len(head):,} of {len(text):,} characters are shown{where}]"
        if isinstance(message.content, str):
            return message.model_copy(update={"content": short})
        others = [block for block in message.content if isinstance(block, dict) and block.get("type") != "text"]
        return message.model_copy(update={"content": [{"type": "text", "text": short}, *others]})

    def _with_short_calls(self, message: AIMessage, tokens: int) -> AIMessage:
        chars = tokens * 4
        while True:
            calls = [ToolCall(**{**call, "args": shorten(call["args"], chars, _ITEMS)}) for call in message.tool_calls]
            short = message.model_copy(update={"tool_calls": calls, "content": _repeating(message.content, calls)})
            chars //= 2
            if chars < FRAME or self.one(short) - self._counter.count(_text(short)) <= tokens:
                return short

    def _at_most(self, message: BaseMessage) -> int:
        return self._known("most", message, lambda text: at_most(text, self._counter))

    def _known(self, what: str, message: BaseMessage, count: Callable[[str], int]) -> int:
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        key = (what, message.id, message.type, hash(_text(message)), *(id(call["args"]) for call in calls))
        if key not in self._counts:
            if len(self._counts) >= _COUNTS:
                self._counts.clear()
            texts = [json.dumps(call["args"], ensure_ascii=False, default=str) for call in calls]
            counted = [_text(message), *texts, *(call["name"] for call in calls)]
            self._counts[key] = FRAME * (1 + len(calls)) + sum(map(count, counted))
        return self._counts[key]


def share(costs: Iterable[int], room: int) -> int:
    """The largest cost to allow each, so that all go into `room`: those below it leave the others more."""
    left = sorted(costs, reverse=True)
    while left and left[-1] * len(left) <= room:
        room -= left.pop()
    return room // max(1, len(left))


def _adds_up(counts: Iterable[int], limit: int) -> bool:
    """Whether the counts are at most `limit` together; takes no more of them than that needs."""
    total = 0
    for count in counts:
        total += count
        if total > limit:
            return False
    return True


def _repeating(content: Any, calls: Sequence[ToolCall]) -> Any:
    """The content, where its blocks repeat the calls, with these calls' arguments."""
    if isinstance(content, str):
        return content
    args: Mapping[str | None, Any] = {call["id"]: call["args"] for call in calls}
    return [_with_args(block, args) if isinstance(block, dict) else block for block in content]


def _with_args(block: dict[str, Any], args: Mapping[str | None, Any]) -> dict[str, Any]:
    call_id = block.get("call_id") or block.get("id")
    if call_id not in args:
        return block
    if "arguments" in block:
        return {**block, "arguments": json.dumps(args[call_id], ensure_ascii=False, default=str)}
    return {**block, "input": args[call_id]} if "input" in block else block


def _text(message: BaseMessage) -> str:
    return message.content if isinstance(message.content, str) else str(message.text)
