"""The state of an agent: the fold of its records. A snapshot stores it; a briefing is built from it.

Its size is bounded: the newest turns, milestones and outputs are kept here, all of them in history.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import msgspec

from .chain import Entry, Replay
from .chain.keys import entry_key, snapshot_key
from .errors import Corrupt
from .records import (
    ActionEnded,
    ActionStarted,
    Milestone,
    OutputStored,
    Pin,
    Pointer,
    PointerRemoved,
    Record,
    Turn,
    Unknown,
    Unpin,
    WorkingState,
    decode,
    decode_as,
    encode,
)

RECENT_TURNS = 40
RECENT_BYTES = 64_000
"""The newest turns kept in the state: at most so many, of at most so many bytes together, but never fewer than two."""
RECENT_RESULTS = 160
"""So many turns are kept where they are one reply and the results of its calls, so that the calls can be paired."""
RECENT_MILESTONES = 20
RECENT_OUTPUTS = 40
RECENT_ACTIONS = 20
"""The newest actions that have ended: so many whose call has no result among the turns yet, and so many that have."""


class _Stored(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a state lies in a snapshot."""

    starts: int = 0
    started_at: str = ""
    last_at: str = ""
    turn_count: int = 0
    milestone_count: int = 0
    output_count: int = 0
    action_count: int = 0
    deleted: bool = False
    working: msgspec.Raw = msgspec.Raw(b'{"type":"working_state"}')
    pins: list[msgspec.Raw] = []
    pointers: list[msgspec.Raw] = []
    milestones: list[msgspec.Raw] = []
    outputs: list[msgspec.Raw] = []
    turns: list[msgspec.Raw] = []
    open_actions: list[msgspec.Raw] = []
    ended_actions: list[tuple[msgspec.Raw, msgspec.Raw]] = []
    answered_actions: list[tuple[msgspec.Raw, msgspec.Raw]] = []
    unknown: list[msgspec.Raw] = []


_Fields = dict[str, msgspec.Raw]
_COUNTS = (
    "starts",
    "started_at",
    "last_at",
    "turn_count",
    "milestone_count",
    "output_count",
    "action_count",
    "deleted",
)


class State:
    """What is known of an agent. `starts` counts claims; `last_at` is the time of its newest record.

    `open_actions` have no recorded outcome; `ended_actions` are over, but the turn with the call's result is missing.
    `answered_actions` have that turn, and no later turn makes a call of that id: should it come again, it is the same.

    Lists are replaced, never changed in place, so another thread may read them at any time.
    """

    def __init__(self) -> None:
        self.starts = 0
        self.started_at = ""
        self.last_at = ""
        self.turn_count = 0
        self.milestone_count = 0
        self.output_count = 0
        self.action_count = 0
        self.deleted = False
        self.working = WorkingState()
        self.pins: dict[str, Pin] = {}
        self.pointers: dict[str, Pointer] = {}
        self.milestones: list[Milestone] = []
        self.outputs: list[OutputStored] = []
        self.turns: list[Turn] = []
        self.open_actions: dict[int, ActionStarted] = {}
        self.ended_actions: list[tuple[ActionStarted, ActionEnded]] = []
        self.answered_actions: list[tuple[ActionStarted, ActionEnded]] = []
        self.unknown: list[Unknown] = []
        self._raw_turns: list[bytes] = []
        self._extra: dict[str, msgspec.Raw] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing was ever recorded (or all of it was deleted)."""
        return not self.last_at

    def apply_entry(self, entry: Entry) -> None:
        """Fold one entry of the chain in."""
        if entry.kind == "erase":
            vars(self).update(vars(State()), deleted=True)
        if entry.kind == "claim":
            self.starts += 1
            self.started_at = self.started_at or entry.at
            self.deleted = False
        for raw in entry.records:
            self._apply(decode(raw), raw)
            self.last_at = entry.at

    def _apply(self, record: Record, raw: msgspec.Raw) -> None:
        match record:
            case Turn():
                self._add_turn(record, raw)
            case WorkingState():
                self.working = self.working.merged(record)
            case Milestone():
                self.milestone_count += 1
                self.milestones = [*self.milestones, record][-RECENT_MILESTONES:]
            case Pin():
                self.pins = {**self.pins, record.id: record}
            case Unpin():
                self.pins = {key: pin for key, pin in self.pins.items() if key != record.id}
            case Pointer():
                self.pointers = {**self.pointers, record.name: record}
            case PointerRemoved():
                self.pointers = {key: pointer for key, pointer in self.pointers.items() if key != record.name}
            case OutputStored():
                self._add_output(record)
            case ActionStarted():
                self._begin(record)
            case ActionEnded():
                self._end(record)
            case Unknown():
                self.unknown = [*self.unknown, record]

    def _add_turn(self, turn: Turn, raw: msgspec.Raw) -> None:
        self.turn_count += 1
        turns, raws = [*self.turns, turn], [*self._raw_turns, bytes(raw)]  # a copy does not keep the entry alive
        old = _surplus(turns, raws)
        self.turns, self._raw_turns = turns[old:], raws[old:]
        if turn.output_ref is not None:
            self._add_output(OutputStored(ref=turn.output_ref, size=turn.size or 0, name=turn.name, at=turn.at))
        if turn.calls and self.answered_actions:
            made = {call.id for call in turn.calls}
            self.answered_actions = [pair for pair in self.answered_actions if pair[0].call_id not in made]
        if turn.call_id is not None and self.ended_actions:
            answered = [pair for pair in self.ended_actions if pair[0].call_id == turn.call_id]
            self.ended_actions = [pair for pair in self.ended_actions if pair[0].call_id != turn.call_id]
            self.answered_actions = [*self.answered_actions, *answered][-RECENT_ACTIONS:]

    def _begin(self, action: ActionStarted) -> None:
        self.action_count = max(self.action_count, action.seq)
        self.open_actions = {**self.open_actions, action.seq: action}
        self.ended_actions = [pair for pair in self.ended_actions if pair[0].seq != action.seq]
        self.answered_actions = [pair for pair in self.answered_actions if pair[0].seq != action.seq]

    def _end(self, end: ActionEnded) -> None:
        started = self.open_actions.get(end.seq)
        if started is None:
            return
        self.open_actions = {seq: action for seq, action in self.open_actions.items() if seq != end.seq}
        if started.call_id is not None:
            self.ended_actions = [*self.ended_actions, (started, end)][-RECENT_ACTIONS:]

    def _add_output(self, output: OutputStored) -> None:
        others = [old for old in self.outputs if old.ref != output.ref]
        self.output_count += len(others) == len(self.outputs)
        self.outputs = [*others, output][-RECENT_OUTPUTS:]

    def showing(self, turns: list[Turn], before: int) -> State:
        """This state with these turns at hand, of `before` in all, for a briefing. Not for a snapshot."""
        state = copy(self)
        state.turns, state.turn_count = turns, before
        return state

    def to_json(self) -> bytes:
        """The state as a snapshot stores it; the same state gives the same bytes."""
        stored = _Stored(
            **{name: getattr(self, name) for name in _COUNTS},
            working=encode(self.working),
            pins=[encode(pin) for pin in self.pins.values()],
            pointers=[encode(pointer) for pointer in self.pointers.values()],
            milestones=[encode(milestone) for milestone in self.milestones],
            outputs=[encode(output) for output in self.outputs],
            turns=[msgspec.Raw(raw) for raw in self._raw_turns],
            open_actions=[encode(action) for action in self.open_actions.values()],
            ended_actions=_encoded(self.ended_actions),
            answered_actions=_encoded(self.answered_actions),
            unknown=[encode(record) for record in self.unknown],
        )
        if not self._extra:
            return msgspec.json.encode(stored)
        return msgspec.json.encode({**self._extra, **msgspec.json.decode(msgspec.json.encode(stored), type=_Fields)})

    @classmethod
    def from_json(cls, data: bytes | msgspec.Raw) -> State:
        """The state that a snapshot stores. Raises Corrupt."""
        try:
            stored = msgspec.json.decode(data, type=_Stored)
            fields = msgspec.json.decode(data, type=_Fields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Corrupt(f"its state cannot be read: {error}") from error
        state = cls()
        for name in _COUNTS:
            setattr(state, name, getattr(stored, name))
        state.working = decode_as(stored.working, WorkingState)
        state.pins = {pin.id: pin for pin in (decode_as(raw, Pin) for raw in stored.pins)}
        state.pointers = {pointer.name: pointer for pointer in (decode_as(raw, Pointer) for raw in stored.pointers)}
        state.milestones = [decode_as(raw, Milestone) for raw in stored.milestones]
        state.outputs = [decode_as(raw, OutputStored) for raw in stored.outputs]
        state.turns = [decode_as(raw, Turn) for raw in stored.turns]
        state._raw_turns = [bytes(raw) for raw in stored.turns]
        begun = [decode_as(raw, ActionStarted) for raw in stored.open_actions]
        state.open_actions = {action.seq: action for action in begun}
        state.ended_actions = _decoded(stored.ended_actions)
        state.answered_actions = _decoded(stored.answered_actions)
        for raw in stored.unknown:  # of a type that this version may know by now
            state._apply(decode(raw), raw)
        state._extra = {name: value for name, value in fields.items() if name not in _Stored.__struct_fields__}
        return state


def _encoded(ended: list[tuple[ActionStarted, ActionEnded]]) -> list[tuple[msgspec.Raw, msgspec.Raw]]:
    return [(encode(started), encode(end)) for started, end in ended]


def _decoded(stored: list[tuple[msgspec.Raw, msgspec.Raw]]) -> list[tuple[ActionStarted, ActionEnded]]:
    return [(decode_as(started, ActionStarted), decode_as(end, ActionEnded)) for started, end in stored]


def _surplus(turns: list[Turn], raws: list[bytes]) -> int:
    """How many of the oldest turns are not kept. The newest reply stays together with what answers its calls."""
    newest = next((index for index in reversed(range(len(turns))) if turns[index].role != "tool"), 0)
    if len(turns) - newest > RECENT_RESULTS:
        newest = len(turns) - RECENT_TURNS
    old, size = 0, sum(map(len, raws))
    while old < min(newest, len(turns) - 2) and (len(turns) - old > RECENT_TURNS or size > RECENT_BYTES):
        size -= len(raws[old])
        old += 1
    return old


def fold_state(prefix: str, replay: Replay) -> State:
    """The state of a chain: its snapshot's, with the entries above it folded in. Raises Corrupt, naming the key."""
    key = snapshot_key(prefix, replay.base)
    try:
        state = State.from_json(replay.snapshot.state) if replay.snapshot else State()
        for link in replay.links:
            key = entry_key(prefix, link.entry.seq)
            state.apply_entry(link.entry)
    except Corrupt as error:
        hint = "nothing was changed; restore that object from a copy"
        raise Corrupt(f"{key} cannot be read: {error.message}", hint=hint) from error
    return state


def describe(working: WorkingState) -> dict[str, Any]:
    """The fields of a working state that have something in them."""
    fields: dict[str, Any] = msgspec.to_builtins(working)
    return {name: value for name, value in fields.items() if name not in ("type", "at", "extra") and value}
