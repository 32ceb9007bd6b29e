"""Choosing what goes into a briefing, and how much of it, so that it fits its budget."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from ..checking import PointerCheck
from ..state import State
from ..tokens import TokenCounter, fits
from .parts import LEAST_WORTH, Field, Group, fields, groups, output_lines
from .quoting import fence, many

_FIELD_SHARE = 0.4
"""At most this share of the room goes to one field while others are still waiting for theirs."""
_SHARES = 5
"""Where fields have to be cut, the newest turns keep up to a fifth of the room; where turns have to be left out,
outputs keep up to a fifth of what the fields leave."""
_TURN_SHARE = 8
"""A single turn's content is cut at one eighth of the budget, taken as four characters a token."""
_TIGHTER = (4, 16)
"""Where not even the newest turns fit, contents are cut at a fourth or a sixteenth of that."""
_LEAST_CHARS = 40
_LIKELY_CHARS = 6
"""A text with more characters to a token of the budget hardly fits: it is not counted as a whole to find that out."""


class Draft:
    """What a briefing consists of, in the order in which it is shown; `fit` chooses it."""

    def __init__(
        self, state: State, intro: str, budget: int, counter: TokenCounter, own: Container[str],
        checks: Mapping[str, PointerCheck],
    ) -> None:  # fmt: skip
        self.intro = intro
        self._state = state
        self._budget = budget
        self._counter = counter
        self._limit = budget // _TURN_SHARE * 4
        self._fields = list(fields(state, own, checks))
        self._cuts: dict[str, Field | None] = {}  # of the fields that are not whole: what is kept of them
        self._groups = self._turns(1)
        self._outputs = output_lines(state)

    def fit(self) -> bool:
        """Make it fit, if it does not: give room to the fields by priority, then to the newest turns and to outputs.

        False when there is not even room for the frame.
        """
        if len(self.render()) <= self._budget * _LIKELY_CHARS and self._fits():
            return True
        whole, self._groups = self._groups, []
        outputs, self._outputs = self._outputs, []
        self._cuts = {item.name: None for item in self._fields}
        room = self._budget - self._count(self.render())
        needs = [self._count(item.text) for item in self._fields]
        if sum(needs) <= room:
            self._cuts = {}
            room -= sum(needs)
        else:
            newest = sum(self._count(group.text) for group in self._turns(_TIGHTER[-1])[-1:])
            room -= self._cut_fields(needs, room - min(newest, room // _SHARES))
        reserved = min(self._count("".join(outputs)), room // _SHARES)
        room = reserved + self._take_turns(whole, room - reserved)
        while outputs and self._count("".join(outputs)) > room:
            outputs = outputs[(len(outputs) + 1) // 2 :]
        self._outputs = outputs
        while not self._fits():  # counted in parts it may have been a few tokens less
            if not self._shrink():
                return False
        self._grow()
        return True

    def omitted(self) -> list[str]:
        """Everything that is in the records and not, or not whole, in here."""
        names = (item.name for item in self._fields if item.name in self._cuts)
        return [*self._missing(), *(f"{name}: {'cut to fit' if self._cuts[name] else 'left out'}" for name in names)]

    def render(self) -> str:
        """The whole text."""
        kept = [self._cuts.get(item.name, item) for item in self._fields]
        body = "".join(item.text for item in kept if item)
        if self._groups:
            shown = sum(group.turns for group in self._groups)
            body += f"Last turns ({shown} of {self._state.turn_count}, oldest first):\n"
            body += "".join(group.text for group in self._groups)
        if self._outputs:
            body += "Stored outputs (fetch_output reads them):\n" + "".join(self._outputs)
        notes = [f"- {note}\n" for note in (*self._missing(), *self._cut_line())]
        return self.intro + fence(body) + "".join(["Not shown here:\n", *notes] if notes else [])

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _missing(self) -> Iterator[str]:
        state = self._state
        if turns := state.turn_count - sum(group.turns for group in self._groups):
            yield f"{many(turns, 'earlier turn')}: agent.turns()"
        if cut := sum(group.cut for group in self._groups):
            yield f"the rest of {many(cut, 'long turn')}: agent.turns()"
        if (outputs := state.output_count - len(self._outputs)) > 0:
            yield f"{many(outputs, 'more stored output')}: agent.context.outputs"
        if (milestones := state.milestone_count - len(state.milestones)) > 0:
            yield many(milestones, "earlier milestone")

    def _cut_line(self) -> Iterator[str]:
        """All cuts of fields in one line: many of them must not take the room of what could be shown."""
        names = [item.name for item in self._fields if item.name in self._cuts]
        cut = ", ".join(name for name in names if self._cuts[name])
        gone = ", ".join(name for name in names if not self._cuts[name])
        if names:
            told = [f"cut to fit: {cut}"] * bool(cut) + [f"left out: {gone}"] * bool(gone)
            yield f"{'; '.join(told)} (whole in agent.context)"

    def _cut_fields(self, needs: list[int], room: int) -> int:
        """Give the room to the fields, the first ones first; gives the tokens they take."""
        cap = int(room * _FIELD_SHARE)
        grants: list[int] = []
        for need in needs:
            grants.append(max(0, min(need, cap, room - sum(grants))))
        for index, need in enumerate(needs):
            grants[index] += max(0, min(need - grants[index], room - sum(grants)))
        for item, grant in zip(self._fields, grants, strict=True):
            self._cut(item, grant)
        return sum(grants)

    def _cut(self, item: Field, tokens: int) -> None:
        if fits(item.text, tokens, self._counter):
            self._cuts.pop(item.name, None)
        else:
            self._cuts[item.name] = item.cut(tokens, self._counter)

    def _take_turns(self, whole: list[Group], room: int) -> int:
        """Take the newest turns; gives the room that is left.

        Where not even those of the last reply fit, their contents are cut shorter.
        """
        found = whole
        for share in _TIGHTER:
            if found and self._count(found[-1].text) > room:
                found = self._turns(share)
        for group in reversed(found):
            need = self._count(group.text)
            if need > room:
                break
            self._groups.insert(0, group)
            room -= need
        return room

    def _shrink(self) -> bool:
        """Give up the least important thing that is left; False when there is nothing."""
        if self._groups:
            del self._groups[0]
        elif self._outputs:
            del self._outputs[0]
        else:
            shown = [(item, kept) for item in self._fields if (kept := self._cuts.get(item.name, item))]
            if not shown:
                return False
            item, kept = shown[-1]
            self._cut(item, self._count(kept.text) - LEAST_WORTH)
        return True

    def _grow(self) -> None:
        """Give what is left of the room to the fields that were cut, the first ones first."""
        for item in self._fields:
            if item.name in self._cuts:
                before = self._cuts[item.name]
                spare = self._budget - self._count(self.render())
                self._cut(item, spare + (self._count(before.text) if before else 0))
                if not self._fits():
                    self._cuts[item.name] = before

    def _turns(self, share: int) -> list[Group]:
        return groups(self._state.turns, max(_LEAST_CHARS, self._limit // share))

    def _fits(self) -> bool:
        return fits(self.render(), self._budget, self._counter)

    def _count(self, text: str) -> int:
        return self._counter.count(text)
