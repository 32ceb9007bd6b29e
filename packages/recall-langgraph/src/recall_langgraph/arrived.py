"""Results of tool calls that are recorded though a thread may not have them, or may have them again. No I/O.

A run that breaks off between a tool and the next checkpoint leaves a thread without the result; it is shown to the
model from the records. Continued, such a thread runs the tool again: the same result of the same call is recorded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from polign_recall.briefing.parts import plain_text
from polign_recall.records import Turn


class Arrived:
    """The results among the newest turns of earlier processes, and those that a run of this process left over."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._results: dict[tuple[str | None, str | None], Turn] = {}
        self.outcomes: dict[tuple[str | None, str], str] = {}
        """As `pairing.Outcomes`. Not where an id was used again: there it does not tell which call was answered."""
        times = Counter(call.id for turn in turns for call in turn.calls)
        made: dict[str | None, tuple[str | None, str]] = {}
        for turn in turns:
            made |= {call.id: (turn.message_id, call.name) for call in turn.calls}
            if turn.role != "tool" or turn.call_id not in made:
                continue
            reply_id, name = made[turn.call_id]
            self._results[reply_id, turn.call_id] = turn
            if turn.call_id is not None and times[turn.call_id] == 1:
                self.outcomes[turn.call_id, name] = _text(turn)

    def left_over(self, messages: Sequence[BaseMessage]) -> None:
        """A run ended, and no step of it brings these messages any more."""
        self.outcomes |= {(m.tool_call_id, m.name or ""): m.text for m in messages if isinstance(m, ToolMessage)}

    def repeats(self, turns: Sequence[Turn], messages: Sequence[BaseMessage]) -> set[str | None]:
        """Ids of those of the turns, made of some of these messages, that an earlier process has recorded already."""
        results = {turn.message_id: turn for turn in turns if turn.role == "tool"}
        if not (results and self._results):
            return set()
        found: set[str | None] = set()
        made: dict[str | None, str | None] = {}
        for message in messages:
            if isinstance(message, AIMessage):
                made |= {call["id"]: message.id for call in message.tool_calls}
            elif message.id in results and isinstance(message, ToolMessage):
                recorded = self._results.get((made.get(message.tool_call_id), message.tool_call_id))
                if recorded is not None and _said(recorded) == _said(results[message.id]):
                    found.add(message.id)
        return found


def _said(turn: Turn) -> tuple[object, ...]:
    return turn.content, turn.output_ref, turn.status


def _text(turn: Turn) -> str:
    whole = f" [whole: {turn.output_ref}]" if turn.output_ref else ""
    return f"{plain_text(turn.content)}{whole}"
