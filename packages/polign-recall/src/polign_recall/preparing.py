"""Making records of what an agent is given: text made safe to save, labels checked, large and binary values stored.

What comes out may be submitted as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec

from .briefing import plain_text
from .chain.protocol import rfc3339
from .cleaning import Cleaner
from .errors import Invalid, TooLarge
from .outputs import StoredValue, externalise
from .records import Call, Role, Turn
from .text import clean, shorten
from .tokens import TokenCounter, fits, truncate

_HEAD_SHARE = 8
"""A content stored as an output keeps a head of one eighth of the threshold."""
_LONGEST_LABEL = 1_000
"""Characters of a turn's name, ids and the like: they are in every snapshot, and in no briefing as a whole."""
_MOST_ITEMS = 50
"""Values that are too long keep so many items of a list or object."""
_LONG_TOKEN = 16
"""Characters; few texts have tokens that long on average."""


class Value(NamedTuple):
    """A JSON value to record; when it was too long, in short, with the output and size (bytes) of the whole."""

    short: Any
    ref: str | None = None
    size: int | None = None


class Preparer:
    """Prepares records for one agent; `keep` stores an output. Values above `threshold` tokens become outputs."""

    def __init__(
        self, agent_id: str, cleaner: Cleaner, threshold: int, counter: TokenCounter,
        keep: Callable[[str | bytes | BinaryIO], StoredValue],
    ) -> None:  # fmt: skip
        self._agent_id = agent_id
        self._cleaner = cleaner
        self._threshold = threshold
        self._counter = counter
        self._keep = keep

    def turn(
        self, role: Role, content: str | list[Any], *, name: str | None, message_id: str | None, calls: Sequence[Call],
        call_id: str | None, status: str | None, brief: str | None, at: str | None,
    ) -> Turn:  # fmt: skip
        """See `ResumedAgent.prepare_turn`."""
        if role not in ("user", "assistant", "tool", "system"):
            raise Invalid(f"role is user, assistant, tool or system, not {role!r}", agent_id=self._agent_id)
        if not isinstance(content, str | list):
            raise Invalid("content is text or a list of content parts", agent_id=self._agent_id)
        turn = Turn(
            role=role, name=self.label(name, "name"), brief=given(brief, "brief"),
            message_id=self.label(message_id, "message_id"), call_id=self.label(call_id, "call_id"),
            status=self.label(status, "status"), at=self.label(at, "at") or rfc3339(),
        )  # fmt: skip
        turn = self._cleaner.record(turn)
        turn.content, turn.calls = content, [self._call(call) for call in calls]
        if turn.brief and not self._inline(turn.brief):
            raise TooLarge(f"a brief of more than {self._threshold} tokens", agent_id=self._agent_id)
        self._place_content(turn)
        return turn

    def value(self, value: Any) -> Value:
        """Any value as JSON, with binary data in it stored as outputs, and the whole of it when it is long."""
        cleaned = self._cleaner.value(externalise(value, self._keep))
        text = cleaned if isinstance(cleaned, str) else msgspec.json.encode(cleaned).decode()
        if self._inline(text):
            return Value(cleaned)
        stored = self._keep(text)
        return Value(self._shortened(cleaned, text), stored.ref, stored.size)

    def head(self, text: str | None, what: str) -> str | None:
        """A text of which the head is enough, when it is long. Raises Invalid."""
        cleaned = None if text is None else self._cleaner.text(given(text, what) or "")
        return cleaned if cleaned is None or self._inline(cleaned) else f"{self._head(cleaned)}..."

    def label(self, text: str | None, what: str) -> str | None:
        """A short text that goes with a record. Raises TooLarge."""
        label = None if text is None else clean(str(text))
        if label is not None and len(label) > _LONGEST_LABEL:
            raise TooLarge(
                f"{what} of {len(label):,} characters; at most {_LONGEST_LABEL:,} are allowed", agent_id=self._agent_id
            )
        return label

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _call(self, call: Call) -> Call:
        if not (isinstance(call, Call) and isinstance(call.id, str) and isinstance(call.name, str)):
            raise Invalid("calls are Call objects whose id and name are texts", agent_id=self._agent_id)
        args = self.value(call.args)
        call_id, name = self.label(call.id, "a call's id"), self.label(self._cleaner.text(call.name), "a call's name")
        return msgspec.structs.replace(call, id=call_id, name=name, args=args.short, args_ref=args.ref or call.args_ref)

    def _shortened(self, value: Any, text: str) -> Any:
        """A value that is stored whole elsewhere, in short; as the head of its JSON when nothing less helps."""
        short = shorten(value, self._threshold // _HEAD_SHARE, _MOST_ITEMS)
        if self._inline(short if isinstance(short, str) else msgspec.json.encode(short).decode()):
            return short
        return f"{self._head(text)}..."

    def _place_content(self, turn: Turn) -> None:
        """Store as outputs what must not lie in the chain: binary parts, and the whole content when it is long."""
        if isinstance(turn.content, str):
            turn.content = whole = self._cleaner.text(turn.content)
        else:
            turn.content = self._cleaner.value(externalise(turn.content, self._keep))
            whole = msgspec.json.encode(turn.content).decode()
        if self._inline(whole):
            return
        stored = self._keep(whole)
        turn.content = self._head(plain_text(turn.content))
        turn.output_ref, turn.size = stored.ref, stored.size

    def _head(self, text: str) -> str:
        most = self._threshold // _HEAD_SHARE
        return truncate(text[: most * _LONG_TOKEN], most, self._counter)

    def _inline(self, text: str) -> bool:
        """Whether a text is short enough to lie in the chain; a very long one is not counted to its end."""
        head = text[: self._threshold * _LONG_TOKEN]
        whole = len(head) == len(text)
        return fits(head, self._threshold, self._counter) and (whole or fits(text, self._threshold, self._counter))


def given(text: str | None, what: str) -> str | None:
    """A text that may be left out, safe to save. Raises Invalid."""
    if text is not None and not isinstance(text, str):
        raise Invalid(f"{what} is a text, not {type(text).__name__}")
    return None if text is None else clean(text)


def required(text: str, what: str) -> str:
    """A text that is not empty, safe to save. Raises Invalid."""
    if not isinstance(text, str) or not text.strip():
        given = "an empty one" if isinstance(text, str) else type(text).__name__
        raise Invalid(f"{what} is a text that is not empty, not {given}")
    return clean(text)
