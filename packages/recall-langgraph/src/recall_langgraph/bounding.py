"""Keeps what a model is sent below a limit, however long its thread grows.

When a thread has outgrown the limit, its older messages leave the model's input, and a briefing made at that moment
stands for them. Calls and their results go or stay together, and the user's latest request stays visible. About half
of what is free is kept free, so that this happens seldom: in between the input only grows at its end, and a provider's
prompt cache holds.

The choice depends on the messages, the limit and the records alone. Where it fell is remembered by the id of the first
message that was kept; a process that does not remember (after a restart) chooses again. A last step that is too long by
itself is shown in short.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from polign_recall import Invalid
from polign_recall.tokens import TokenCounter

from .measuring import Meter, share
from .messages import model_input, without_briefing

THREADS: Final = 100
"""So many cuts are remembered, one a thread; a thread that was forgotten is cut anew at its next step."""
_RESERVE: Final = 100
"""Tokens left for what is put between messages to make them well formed, where these are shortened to fit exactly."""

Outcomes = Mapping[tuple[str | None, str], str]


@dataclass(frozen=True)
class Cut:
    """Where older messages were left out: the briefing for them, what the user asked in them, messages in short."""

    briefing: str
    request: list[BaseMessage] = field(default_factory=list)
    short: dict[str, BaseMessage] = field(default_factory=dict)


class Window:
    """Makes model inputs of at most `limit` tokens. May be used from any thread.

    `brief` gives a briefing of at most `budget` tokens, without the messages of the ids it is given, and may wait for
    what is recorded to be durable; `stored` gives the references of results that are stored whole, by message id.
    """

    def __init__(
        self,
        limit: int,
        budget: int,
        counter: TokenCounter,
        brief: Callable[[Collection[str]], str],
        stored: Callable[[], Mapping[str, str]],
    ) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2 * budget:
            hint = "give a larger one, or a smaller token_budget"
            raise Invalid(
                f"max_context_tokens is at least twice the briefing's {budget:,} tokens, not {limit!r}", hint=hint
            )
        self._limit = limit
        self._budget = budget
        self._meter = Meter(counter)
        self._brief = brief
        self._stored = stored
        self._lock = threading.Lock()
        self._cuts: dict[str, Cut] = {}

    def model_input(self, messages: Sequence[BaseMessage], briefing: str, outcomes: Outcomes) -> list[BaseMessage]:
        """The model's input for a thread; `briefing` opens it until something was cut from it."""
        start, cut = self._latest(messages)
        shown = _shown(messages, start, cut or Cut(briefing), outcomes)
        if self._meter.fits(shown, self._limit):
            return shown
        start, cut = self._cut(messages)
        return _shown(messages, start, cut, outcomes)

    def without_briefings(self, messages: Iterable[BaseMessage]) -> list[BaseMessage]:
        """The messages without the briefings that were put in front of some: they are never recorded."""
        kept = list(messages)
        for cut in list(self._cuts.values()):
            kept = [without_briefing(message, cut.briefing) for message in kept]
        return kept

    def forget(self) -> None:
        """Choose anew in every thread, with a briefing as it would be now."""
        with self._lock:
            self._cuts.clear()

    def _latest(self, messages: Sequence[BaseMessage]) -> tuple[int, Cut | None]:
        for index in reversed(range(len(messages))):
            if cut := self._cuts.get(messages[index].id or ""):
                return index, cut
        return 0, None

    def _cut(self, messages: Sequence[BaseMessage]) -> tuple[int, Cut]:
        before, _ = self._latest(messages)
        system = self._meter.count(message for message in messages if isinstance(message, SystemMessage))
        # What is kept depends on the briefing's size, and the briefing on what is kept: so first as if it were full.
        start = choose(messages, (self._limit - system - self._budget) // 2, self._meter)
        request = lost_request(messages, start)
        kept = [m for m in (*request, *messages[start:]) if not isinstance(m, SystemMessage)]
        briefing = self._brief({message.id for message in kept if message.id})
        free = self._limit - system - self._meter.count([HumanMessage(briefing)])
        cut = Cut(briefing, request, self._shortened(kept, free))
        with self._lock:
            self._cuts.pop(messages[before].id or "", None)
            if first := messages[start].id:
                self._cuts[first] = cut
            while len(self._cuts) > THREADS:
                del self._cuts[next(iter(self._cuts))]
        return start, cut

    def _shortened(self, messages: Sequence[BaseMessage], room: int) -> dict[str, BaseMessage]:
        """Those of the messages that are too long for all of them to go into `room` tokens, in short, by their id."""
        if self._meter.fits(messages, room):
            return {}
        most, stored = share(map(self._meter.one, messages), room - _RESERVE), self._stored()
        return {
            message.id: self._meter.in_short(message, most, stored.get(message.id))
            for message in messages
            if message.id and self._meter.one(message) > most
        }


def choose(messages: Sequence[BaseMessage], room: int, meter: Meter) -> int:
    """Where to begin, so that what follows, and the user's latest request, take at most `room` tokens.

    Never between a call and its results. The last step is kept, whatever it takes.
    """
    calls = {call_id for message in messages for call_id in _call_ids(message)}
    asked, request = _latest_request(messages)
    waiting: set[str] = set()
    start, total = len(messages), 0
    for index in reversed(range(len(messages))):
        message = messages[index]
        if isinstance(message, SystemMessage):
            continue
        total += meter.one(message)
        waiting -= _call_ids(message)
        if isinstance(message, ToolMessage):
            waiting |= {message.tool_call_id} & calls
        elif not waiting:
            lost = meter.count(request) if index > asked else 0
            if start < len(messages) and total + lost > room:
                break
            start = index
    return start if start < len(messages) else 0


def lost_request(messages: Sequence[BaseMessage], start: int) -> list[BaseMessage]:
    """The user's latest request, where it lies before `start`."""
    asked, request = _latest_request(messages)
    return request if asked < start else []


def _latest_request(messages: Sequence[BaseMessage]) -> tuple[int, list[BaseMessage]]:
    """What the user said last, maybe in several messages in a row, and where the last of them is; -1 for nothing."""
    last = next((i for i in reversed(range(len(messages))) if isinstance(messages[i], HumanMessage)), -1)
    said = takewhile(lambda message: isinstance(message, HumanMessage), reversed(messages[: last + 1]))
    return last, list(said)[::-1]


def _call_ids(message: BaseMessage) -> set[str]:
    if not isinstance(message, AIMessage):
        return set()
    hosted = (block.get("call_id") for block in message.content if isinstance(block, dict))
    given = (call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls))
    return {call_id for call_id in (*hosted, *given) if call_id}


def _shown(messages: Sequence[BaseMessage], start: int, cut: Cut, outcomes: Outcomes) -> list[BaseMessage]:
    system = [message for message in messages[:start] if isinstance(message, SystemMessage)]
    kept = [cut.short.get(message.id or "", message) for message in (*cut.request, *messages[start:])]
    return model_input([*system, *kept], cut.briefing, outcomes)
