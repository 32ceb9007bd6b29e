"""Records: the things an agent writes down. Plain versioned JSON with a `type` tag.

Unknown fields and unknown types, written by a newer version, survive a round trip through this one. A new value of a
field that this version reads (another role, another status of a step) needs a new format number; no field is ever
called `extra`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from .errors import Corrupt, Invalid

Role = Literal["user", "assistant", "tool", "system"]
StepStatus = Literal["todo", "doing", "done"]
ActionClass = Literal["pure", "idempotent", "external"]
"""A `pure` action only reads; an `idempotent` one may be repeated with the same key; an `external` one may not."""
EndStatus = Literal["done", "failed", "abandoned"]


class Part(msgspec.Struct, kw_only=True):
    """Base of what records are made of. `extra` holds fields that this version does not know."""

    extra: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Call(Part, omit_defaults=True):
    """A tool call in an assistant's turn. `args_ref` names the whole arguments when they are too long to keep here."""

    id: str
    name: str
    args: Any = None
    args_ref: str | None = None


class PlanStep(Part):
    """One step of the plan."""

    step: str
    status: StepStatus = "todo"


class Record(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all records. `extra` holds fields that this version does not know."""

    extra: dict[str, Any] = {}


class Turn(Record, tag="turn"):
    """A message, word for word.

    `content` is text or a list of content parts. A content too large to keep here is stored whole as an output:
    `content` is then its head, `output_ref` names the whole and `size` is its length in bytes. `call_id` tells which
    call a tool's turn answers. `brief` is what a briefing shows instead of the content. `seq` counts turns from 1.
    """

    role: Role
    content: str | list[Any] = ""
    seq: int = 0
    name: str | None = None
    message_id: str | None = None
    calls: list[Call] = []
    call_id: str | None = None
    status: str | None = None
    brief: str | None = None
    output_ref: str | None = None
    size: int | None = None
    at: str = ""


class WorkingState(Record, tag="working_state"):
    """What the agent is doing. As a record it has only the fields that were given; the fold merges them.

    None means not given; an empty text or list clears a field.
    """

    goal: str | None = None
    plan: list[PlanStep] | None = None
    progress: str | None = None
    focus: str | None = None
    decisions: list[str] | None = None
    open_questions: list[str] | None = None
    notes: str | None = None
    at: str = ""

    TEXTS: ClassVar[tuple[str, ...]] = ("goal", "progress", "focus", "notes")
    LISTS: ClassVar[tuple[str, ...]] = ("plan", "decisions", "open_questions")

    def merged(self, newer: WorkingState) -> WorkingState:
        """This state with the fields that `newer` gives."""
        given = {name: getattr(newer, name) for name in (*self.TEXTS, *self.LISTS)}
        changes = {name: value for name, value in given.items() if value is not None}
        return msgspec.structs.replace(self, **changes, at=newer.at, extra={**self.extra, **newer.extra})


class Milestone(Record, tag="milestone"):
    """Something that was finished."""

    text: str
    at: str = ""


class Pin(Record, tag="pin"):
    """A rule that must survive word for word."""

    id: str
    text: str
    at: str = ""


class Unpin(Record, tag="unpin"):
    """The pin `id` holds no more."""

    id: str
    at: str = ""


class Pointer(Record, tag="pointer"):
    """Where work lives: `kind` is git_ref, object, environment, external, process or one of your own.

    `seen` is the id of what was there when this was recorded, if a checker found something.
    """

    name: str
    kind: str
    target: str
    note: str = ""
    seen: str | None = None
    at: str = ""


class PointerRemoved(Record, tag="pointer_removed"):
    """The pointer `name` holds no more."""

    name: str
    at: str = ""


class OutputStored(Record, tag="output"):
    """A large value was stored whole: `ref` fetches it, `size` is in bytes, `preview` is its first characters."""

    ref: str
    size: int
    media_type: str = "text/plain"
    name: str | None = None
    preview: str = ""
    at: str = ""


class ActionStarted(Record, tag="action_started"):
    """A tool call that touches the world is about to be carried out. `seq` counts actions from 1.

    `key` is the same at every try of this action, and of no other. A later one with the same `seq` is another try.
    `args_ref` names the whole arguments when they are too long to keep here. `call_id` is that of the turn's call.
    """

    tool: str
    class_: ActionClass = msgspec.field(name="class")
    key: str
    epoch: int
    seq: int = 0
    args: Any = None
    args_ref: str | None = None
    call_id: str | None = None
    at: str = ""


class ActionEnded(Record, tag="action_ended"):
    """The action `seq` is over. `resolution` tells how that is known when it was not seen to end.

    `result_ref` names the whole result, of `size` bytes, when it is too long to keep here.
    """

    seq: int
    status: EndStatus
    result: Any = None
    result_ref: str | None = None
    size: int | None = None
    error: str | None = None
    resolution: str | None = None
    at: str = ""


class Unknown(Record, tag="unknown"):
    """A record of a type that this version does not know, kept as it was."""

    data: dict[str, Any]


TYPES: dict[str, type[Record]] = {
    str(cls.__struct_config__.tag): cls
    for cls in (
        Turn, WorkingState, Milestone, Pin, Unpin, Pointer, PointerRemoved, OutputStored, ActionStarted, ActionEnded
    )
}  # fmt: skip
_OPEN: tuple[type[Record | Part], ...] = (*TYPES.values(), Call, PlanStep)
_KNOWN = {cls: frozenset(cls.__struct_encode_fields__) | {"type"} for cls in _OPEN}
_PARTS: dict[type[Record], str] = {Turn: "calls", WorkingState: "plan"}
_encoder = msgspec.json.Encoder()
R = TypeVar("R", bound=Record)


def encode(record: Record) -> msgspec.Raw:
    """A record as JSON, unknown fields included. Raises Invalid for values that JSON cannot hold."""
    try:
        if isinstance(record, Unknown):
            return msgspec.Raw(_encoder.encode(record.data))
        if not record.extra and not any(part.extra for part in _parts(record)):
            return msgspec.Raw(_encoder.encode(record))
        fields = msgspec.to_builtins(record)
        if _parts(record):
            name = _PARTS[type(record)]
            fields[name] = [_flat(part) for part in fields[name]]
        return msgspec.Raw(_encoder.encode(_flat(fields)))
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        raise Invalid(f"a {type(record).__name__} cannot be saved as JSON: {error}") from error


def decode(raw: bytes | msgspec.Raw) -> Record:
    """The record that `encode` made these bytes from. Raises Corrupt."""
    try:
        data: dict[str, Any] = msgspec.json.decode(raw)
        cls = TYPES.get(data["type"])
        if cls is None:
            return Unknown(data=data)
        record = msgspec.convert(data, cls)
        _keep_unknown(record, data)
        if parts := _parts(record):
            for part, fields in zip(parts, data[_PARTS[cls]], strict=True):
                _keep_unknown(part, fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(f"a record cannot be read: {error}") from error
    return record


def decode_as(raw: bytes | msgspec.Raw, cls: type[R]) -> R:
    """`decode`, for a place where only one type can be. Raises Corrupt."""
    record = decode(raw)
    if not isinstance(record, cls):
        raise Corrupt(f"a {type(record).__name__} stands where a {cls.__name__} should")
    return record


def _parts(record: Record) -> list[Call | PlanStep]:
    """What a record is made of that can have unknown fields of its own."""
    name = _PARTS.get(type(record))
    return (getattr(record, name) or []) if name else []


def _keep_unknown(part: Record | Part, fields: dict[str, Any]) -> None:
    known = _KNOWN[type(part)]
    if not fields.keys() <= known:
        part.extra = {name: value for name, value in fields.items() if name not in known}


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields.pop("extra", {}), **fields}
