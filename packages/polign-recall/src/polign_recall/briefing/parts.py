"""What a briefing is made of, as quoted text: fields of the working state and the like, turns, outputs."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ..actions import Action, ended, pending
from ..checking import PointerCheck
from ..records import Call, PlanStep, Pointer, Turn
from ..state import State
from ..text import shorten
from ..tokens import TokenCounter, fits, truncate
from .quoting import many, quote, when

LEAST_WORTH = 24
"""Tokens: a field that could only keep fewer is left out whole."""
_CUT_MARK = 8
"""Tokens that the mark of a cut takes at most."""
_OUTPUT_LINES = 10
_ARGUMENT_CHARS = 120
_ARGUMENT_ITEMS = 20
_RESULT_CHARS = 400
_BARE_ITEM = re.compile(r"\n {1,2}(-|\[.?\]?)? ?\Z")
_MARKS = {"done": "[x]", "doing": "[>]", "todo": "[ ]"}
_STATUSES = {"error": "failed", "cut_off": "cut off"}


class Field(NamedTuple):
    """A part of the working state, or the like: what it is called, what it begins with, and all of its text.

    `short` is what is cut instead of the text: what matters most comes first in it.
    """

    name: str
    heading: str
    text: str
    short: str = ""

    def cut(self, tokens: int, counter: TokenCounter) -> Field | None:
        """As much of it as goes into so many tokens; None when that is hardly more than the heading."""
        whole = self.short or self.text
        if fits(whole, tokens, counter):
            return self._replace(text=whole)
        kept = _BARE_ITEM.sub("", truncate(whole, tokens - _CUT_MARK, counter))
        if tokens < LEAST_WORTH or len(kept) <= len(self.heading):
            return None
        return self._replace(text=f"{kept.rstrip()} [... cut]\n")


class Group(NamedTuple):
    """Turns that come or go together: a call and its results, with whatever lies between."""

    text: str
    turns: int
    cut: int
    """How many of them are not whole."""

    @classmethod
    def joined(cls, groups: list[Group]) -> Group:
        """All of these as one."""
        return cls("".join(g.text for g in groups), sum(g.turns for g in groups), sum(g.cut for g in groups))


def fields(state: State, own: Container[str], checks: Mapping[str, PointerCheck]) -> Iterator[Field]:
    """The fields in order of priority, which is the order they are shown in."""
    working = state.working
    yield from _outcome_fields(state, own)
    pins = [quote(pin.text) for pin in state.pins.values()]
    yield from _list_field("pins", "Rules that hold (pinned):", pins)
    yield from _text_field("goal", working.goal)
    if working.plan:
        yield _plan_field(working.plan)
    yield from _text_field("progress", working.progress)
    yield from _text_field("focus", working.focus)
    yield from _list_field("decisions", "Decisions:", map(quote, working.decisions or ()))
    yield from _list_field("open questions", "Open questions:", map(quote, working.open_questions or ()))
    yield from _text_field("notes", working.notes)
    pointers = [_pointer(pointer, checks) for pointer in state.pointers.values()]
    found = ", each with what was found there just now" if checks else ""
    yield from _list_field("pointers", f"Pointers to where the work lives{found}:", pointers)
    stones = [f"{when(stone.at)} {quote(stone.text)}" for stone in reversed(state.milestones)]
    heading = f"Milestones ({len(stones)} of {state.milestone_count}, newest first):"
    yield from _list_field("milestones", heading, stones)


def _outcome_fields(state: State, own: Container[str]) -> Iterator[Field]:
    """What must not simply be done again: actions and calls with no known outcome, then outcomes without a turn."""
    unknown = [action for action in pending(state, own) if action.status == "unknown"]
    over = [action for action in ended(state) if action.class_ != "pure" or action.status == "done"]
    journalled = {action.call_id for action in (*pending(state, own), *ended(state))}
    journalled |= {action.call_id for action in state.open_actions.values()}  # reads that were not finished
    calls = [(turn, call) for turn, call in unanswered(state.turns) if call.id not in journalled]
    external = [_action(action) for action in unknown if action.class_ == "external"]
    heading = "Actions that were begun; nobody knows what came of them, so find out before repeating one:"
    yield from _list_field("actions to check", heading, external)
    lines = [_call(call, f"called {when(turn.at, 'seconds')}", f"id {call.id}") for turn, call in calls]
    yield from _list_field("calls to check", "Calls with no recorded outcome; check before repeating them:", lines)
    heading = "Actions that were begun, and may be repeated with the same arguments:"
    yield from _list_field("actions to repeat", heading, [_action(a) for a in unknown if a.class_ == "idempotent"])
    yield from _list_field("outcomes", "Outcomes of calls that no turn answers:", [_outcome(action) for action in over])


def _pointer(pointer: Pointer, checks: Mapping[str, PointerCheck]) -> str:
    """A pointer, after what its check found: nothing recorded can pass for that there."""
    text = f"{pointer.name} ({pointer.kind}): {pointer.target}" + (f" - {pointer.note}" if pointer.note else "")
    return quote(f"[{_check(checks.get(pointer.name))}] {text}" if checks else text)


def _check(check: PointerCheck | None) -> str:
    if check is None:
        return "not checked"
    details = {"changed": f", now {check.found}", "there": f", {check.found}", "not checked": f": {check.error}"}
    return check.status + details.get(check.status, "")


def _text_field(name: str, text: str | None) -> Iterator[Field]:
    if text:
        heading = f"{name.capitalize()}: "
        yield Field(name, heading, f"{heading}{quote(text)}\n")


def _list_field(name: str, heading: str, lines: Iterable[str]) -> Iterator[Field]:
    text = "".join(f"  - {line}\n" for line in lines)
    if text:
        yield Field(name, f"{heading}\n", f"{heading}\n{text}")


def _plan_field(plan: list[PlanStep]) -> Field:
    """The plan; where it must be cut, the steps that are done are only counted, and what is left to do comes first."""
    heading = "Plan ([x] done, [>] doing, [ ] to do):\n"
    lines = [f"  {_MARKS[step.status]} {quote(step.step)}\n" for step in plan]
    left = [line for line, step in zip(lines, plan, strict=True) if step.status != "done"]
    done = len(plan) - len(left)
    short = "".join([heading, *([f"  [x] ({many(done, 'step')} done)\n"] if done else []), *left])
    return Field("plan", heading, heading + "".join(lines), short if done > 1 else "")


def unanswered(turns: Iterable[Turn]) -> list[tuple[Turn, Call]]:
    """The calls among these turns that no later turn answers, with the turn that made them.

    Some models number their calls anew in every turn, so a result answers the newest turn that made such a call.
    """
    lost: list[tuple[Turn, Call]] = []
    waiting: dict[str, list[tuple[Turn, Call]]] = {}
    for turn in turns:
        for call_id in {call.id: None for call in turn.calls}:
            lost += waiting.pop(call_id, [])
        for call in turn.calls:
            waiting.setdefault(call.id, []).append((turn, call))
        if turn.call_id is not None and waiting.get(turn.call_id):
            del waiting[turn.call_id][0]
    open_calls = [*lost, *(pair for pairs in waiting.values() for pair in pairs)]
    return sorted(open_calls, key=lambda pair: pair[0].seq)


def groups(turns: list[Turn], limit: int) -> list[Group]:
    """The turns as text, oldest first, contents cut at `limit` characters; calls are kept with their results.

    Results that come first are left out where other turns follow: their call is further back than the turns at hand.
    """
    found: list[Group] = []
    made: dict[str, tuple[int, str]] = {}  # by call id: the group, and what the call is called there
    others = (n for n, turn in enumerate(turns) if turn.role != "tool" or turn.call_id is None or turn.calls)
    for turn in turns[next(others, 0) :]:
        at, answers = made.get(turn.call_id or "", (-1, ""))
        group = _turn_group(turn, answers, limit)
        if turn.call_id is not None and at >= 0:
            at = min(at, len(found) - 1)  # those after it may have been joined with it
            found[at:] = [Group.joined([*found[at:], group])]
        else:
            found.append(group)
        for number, call in enumerate(turn.calls, 1):
            made[call.id] = len(found) - 1, f"call {number}" if len(turn.calls) > 1 else ""
    return found


def _turn_group(turn: Turn, answers: str, limit: int) -> Group:
    content = plain_text(turn.content) if turn.brief is None else turn.brief
    if cut := max(0, len(content) - limit):
        content = f"{content[:limit]} [... {cut} more characters]"
    if turn.output_ref is not None:
        content += f" [whole: {turn.output_ref}, {turn.size} bytes]"
    who = f"{turn.role} {turn.name}" if turn.name else turn.role
    if notes := [note for note in (answers, _STATUSES.get(turn.status or "", "")) if note]:
        who += f" ({', '.join(notes)})"
    text = f"  #{turn.seq} {quote(f'{who}: {content}').rstrip()}\n"
    numbers = [f"{number}. " if len(turn.calls) > 1 else "" for number in range(1, len(turn.calls) + 1)]
    calls = [f"  -> {number}{_call(call)}\n" for number, call in zip(numbers, turn.calls, strict=True)]
    return Group(text + "".join(calls), 1, int(cut > 0))


def plain_text(content: str | list[Any]) -> str:
    """The text of a turn's content; parts that are not text are named."""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        refs = re.findall(r"out-[0-9a-f]{32}", msgspec.json.encode(part).decode())
        return f"[{' '.join([str(part.get('type', 'part')), *refs])}]"
    return str(part)


def _call(call: Call, *notes: str) -> str:
    return _request(call.name, call.args, call.args_ref, *notes)


def _action(action: Action) -> str:
    notes = [f"begun {when(action.started_at, 'seconds')}", f"key {action.key}"]
    notes += [f"id {action.call_id}"] if action.call_id is not None else []
    return _request(action.tool, action.args, action.args_ref, *notes)


def _outcome(action: Action) -> str:
    """An action that is over, and what came of it."""
    known = (action.status, action.resolution, action.error)
    text = ", ".join(part for part in known if part)
    if action.result is not None:
        result = shorten(action.result, _RESULT_CHARS, _ARGUMENT_ITEMS)
        text += f": {result if isinstance(result, str) else msgspec.json.encode(result).decode()}"
    if action.result_ref is not None:
        text += f" [whole: {action.result_ref}]"
    return f"{_request(action.tool, action.args, action.args_ref)}: {quote(text)}"


def _request(name: str, args: Any, args_ref: str | None, *notes: str) -> str:
    """A tool's name with its arguments in short."""
    args = shorten(args, _ARGUMENT_CHARS, _ARGUMENT_ITEMS)
    arguments = msgspec.json.encode(args).decode() if args not in (None, {}, "") else ""
    notes += (f"whole arguments: {args_ref}",) if args_ref else ()
    return quote(f"{name}({arguments})" + (f" [{', '.join(notes)}]" if notes else ""))


def output_lines(state: State) -> list[str]:
    """References to the newest outputs, a line each."""
    lines = []
    for output in state.outputs[-_OUTPUT_LINES:]:
        about = output.name or output.preview.split("\n")[0][:60] or output.media_type
        lines.append(f"  - {quote(f'{output.ref} ({output.size} bytes): {about}')}\n")
    return lines
