"""What processes were told is saved, and whether an agent has it: all of it, once, in order.

Everything recorded in these tests begins with a label `<epoch>/<number>`, the number rising within an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from polign_recall import Client, ResumedAgent, Turn, counter_for
from polign_recall.chain import Chain, Entry, agent_prefix
from polign_recall.history import entries
from polign_recall.tokens import fits

Events = Iterable[dict[str, Any]]
BUDGET = 8_000
GOAL = "survive"


@dataclass
class Acknowledged:
    """What a journal says was acknowledged: turns by seq, and the last of what replaces its like."""

    turns: dict[int, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    progress: str = ""

    @classmethod
    def of(cls, events: Events) -> Acknowledged:
        """What these events acknowledge."""
        known = cls()
        for event in events:
            match event["event"]:
                case "turns":
                    fresh = dict(zip(event["seqs"], event["labels"], strict=True))
                    assert not fresh.keys() & known.turns.keys(), f"a seq was given out twice: {event}"
                    known.turns |= fresh
                case "pin":
                    known.pins[event["id"]] = newest(known.pins.get(event["id"], ""), event["label"])
                case "output":
                    known.outputs[event["ref"]] = event["label"]
                case "progress":
                    known.progress = newest(known.progress, event["label"])
        return known

    def check_opened(self, agent: ResumedAgent) -> None:
        """Assert that a process that has just opened the agent starts from all that was acknowledged before."""
        recent = {turn.seq: label_of(turn) for turn in agent.context.recent_turns}
        assert max(self.turns, default=0) <= max(recent, default=0), "the newest turns are missing"
        expected = {seq: label for seq, label in self.turns.items() if seq >= min(recent, default=0)}
        assert expected.items() <= recent.items()
        assert place(agent.context.working_state.progress or "") >= place(self.progress)
        pins = {pin.id: pin.text for pin in agent.context.pins}
        for key, label in self.pins.items():
            assert place(pins[key]) >= place(label), f"the pin {key} is older than the one acknowledged"
        for ref, label in list(self.outputs.items())[-2:]:
            assert agent.fetch_output(ref).decode().split()[0] == label

    def check_saved(self, client: Client, agent_id: str) -> None:
        """Assert that all of it is in the agent's history exactly once and in order, read without its lease."""
        with client.resume(agent_id, defer_lease=True) as agent:
            turns = list(agent.turns())
            self.check_opened(agent)
        assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
        labels = {turn.seq: label_of(turn) for turn in turns}
        assert self.turns.items() <= labels.items()
        places = [place(label) for label in labels.values()]
        assert all(one < other for one, other in pairwise(places)), "a turn is there twice, or out of order"


def check_claims(client: Client, agent_id: str, events: Events) -> list[Entry]:
    """Assert that epochs rise by one with each claim, and that each is of the process that was told so."""
    chain = Chain(agent_prefix(agent_id), agent_id)
    claims = [entry for entry in entries(chain, client.backend.store) if entry.kind == "claim"]
    assert [claim.epoch for claim in claims] == list(range(1, len(claims) + 1))
    told = {event["epoch"]: event["holder"] for event in events if event["event"] == "open"}
    assert told.items() <= {claim.epoch: claim.holder for claim in claims}.items()
    return claims


def check_one_after_another(client: Client, agent_id: str, events: Events) -> None:
    """Assert that no two epochs held the agent at the same time, and that a replaced holder wrote nothing later."""
    events = list(events)
    check_claims(client, agent_id, events)
    Acknowledged.of(events).check_saved(client, agent_id)  # in the order of the epochs, among others
    held = [(event["since"], event["until"], event["epoch"]) for event in events if event["event"] == "held"]
    for (_, until, epoch), (since, _, next_epoch) in pairwise(sorted(held)):
        assert epoch <= next_epoch
        assert until <= since, f"epochs {epoch} and {next_epoch} held the agent at the same time"


def check_outside(client: Client, agent_id: str, *, starts: int, turns: int) -> None:
    """Assert that the agent is free and looks well from outside: its status, its briefing."""
    status = client.status(agent_id)
    assert not status.held
    assert (status.restarts, status.epoch, status.goal) == (starts - 1, starts, GOAL)
    assert status.turns >= turns
    briefing = client.briefing(agent_id, token_budget=BUDGET)
    assert GOAL in briefing
    assert fits(briefing, BUDGET, counter_for())


def check_disk(agent: Path, *, claims: int, entries: int, kills: int) -> None:
    """Assert that kills left next to nothing lying about below `agent`, and that folding has swept all the same."""
    files = [path for path in agent.rglob("*") if path.is_file()]
    temporary = [path for path in files if path.name.startswith(".tmp-")]
    assert len(temporary) <= kills
    assert {path.parent.name for path in files} <= {"log", "history", "outputs"}
    log = [path for path in (agent / "log").iterdir() if path not in temporary]
    snapshots = [path for path in log if path.suffix == ".snap"]
    assert len(snapshots) <= 3  # two are kept, and one may be new
    assert len(log) - len(snapshots) <= claims + 12  # the process that was last recorded no more than that
    assert sum(path.stat().st_size for path in files) <= 3_000 * entries  # about 1,000, and as much for two snapshots


def newest(one: str, other: str) -> str:
    """The later one of two labels."""
    return max(one, other, key=place)


def label_of(turn: Turn) -> str:
    """The label that a turn begins with."""
    assert isinstance(turn.content, str)
    return turn.content.split()[0]


def place(text: str) -> tuple[int, ...]:
    """A label as something to compare; that of an empty text comes first."""
    return tuple(int(part) for part in text.split()[0].split("/")) if text else ()
