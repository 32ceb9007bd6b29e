"""ResumedAgent: what a process has in hand while it works for an agent id."""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from . import actions, briefing, history, outputs
from .actions import Action, ActionEnd, ReconcileReport, Resolver
from .backend import Backend
from .chain import new_holder, this_host
from .chain.protocol import rfc3339
from .checking import Checker, Checks, PointerCheck
from .cleaning import Cleaner
from .errors import Invalid, LeaseHeld, RecallError, TooLarge
from .journal import Journal
from .preparing import Preparer, given, required
from .records import (
    ActionClass,
    Call,
    EndStatus,
    Milestone,
    OutputStored,
    Pin,
    PlanStep,
    Pointer,
    PointerRemoved,
    Record,
    Role,
    Turn,
    Unpin,
    WorkingState,
    encode,
)
from .redact import Redactor
from .state import RECENT_TURNS, State
from .text import clean_json
from .tokens import TokenCounter
from .writer import Writer, log

MAX_WORKING_STATE = 100_000
"""Largest update of the working state, pin or pointer, in bytes: they are in every snapshot and briefing."""
_PREVIEW_CHARS = 200


@dataclass(frozen=True, slots=True)
class Options:
    """How an agent is opened; see `Client.resume`."""

    token_budget: int
    lease_ttl: float
    holder: str | None
    output_threshold: int
    wait: float
    takeover: bool
    counter: TokenCounter
    redactor: Redactor | None
    checkers: Mapping[str, Checker]


@dataclass(frozen=True)
class Context:
    """What was known of the agent when it was opened. `briefing` is the text for the model; `omitted` names what is
    not in it, or not whole; `fresh` is true when nothing had been recorded before; `pointer_checks` has, by name, what
    was found where pointers point, as far as there is a checker.
    """

    briefing: str
    omitted: list[str]
    fresh: bool
    epoch: int
    restarts: int
    working_state: WorkingState
    pins: list[Pin]
    pointers: list[Pointer]
    milestones: list[Milestone]
    outputs: list[OutputStored]
    recent_turns: list[Turn]
    unanswered_calls: list[Call]
    pending_actions: list[Action]
    pointer_checks: dict[str, PointerCheck]
    counter: TokenCounter

    @cached_property
    def tokens(self) -> int:
        """Tokens of the briefing; counted when first asked for."""
        return self.counter.count(self.briefing)


class ResumedAgent:
    """An agent id, opened by this process. A context manager: leaving it hands the lease back.

    Every method that records is durable when it returns, and raises LeaseLost once another process has taken the agent
    over. `submit` does not wait. All methods may be called from any thread.
    """

    def __init__(self, agent_id: str, backend: Backend, options: Options) -> None:
        self.agent_id = agent_id
        self._backend = backend
        self._options = options
        self._holder = options.holder or new_holder()
        self._cleaner = Cleaner(options.redactor)
        self._checks = Checks(agent_id, options.checkers, self._cleaner.text)
        self._chain = backend.chain(agent_id)
        self._writer = Writer(self._chain, backend.run)
        self._preparer = Preparer(agent_id, self._cleaner, options.output_threshold, options.counter, self._keep)
        self._journal = Journal(agent_id, self._writer, self._preparer)
        self._failure: BaseException | None = None
        self.context: Context

    # ---- the lease -------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The fencing token: rises with every takeover. 0 while the lease is not held."""
        return self._chain.epoch if self._writer.owned else 0

    @property
    def holder(self) -> str:
        """This process's name as others see it while it holds the lease."""
        return self._holder

    @property
    def lease_held(self) -> bool:
        """Whether this process holds the lease by its own clock; asks nobody."""
        return self._writer.owned and self._chain.current

    def acquire(self, *, wait: float | None = None, takeover: bool | None = None) -> Context:
        """Take the lease, and build the context anew. Nothing happens when it is held already. Raises LeaseHeld."""
        options = self._options
        self._writer.check_usable()
        self._backend.prepare()
        claim = self._chain.acquire(
            ttl=options.lease_ttl,
            holder=self._holder,
            host=this_host(),
            wait=options.wait if wait is None else wait,
            takeover=options.takeover if takeover is None else takeover,
            on_wait=_Announcer(),
        )
        self._writer.acquire(claim)
        _open_agents.add(self)
        self._journal.abandon_reads()
        return self.refresh()

    def refresh(self) -> Context:
        """Build the context anew: from memory while the lease is held, else from the store."""
        self._writer.read()
        self.context = self._build_context(self._writer.state)
        return self.context

    def briefing_beside(self, message_ids: Collection[str]) -> str:
        """A briefing of what is recorded by now, for a model that is shown these messages anyway: its turns are the
        newest of the others, read from history where none are at hand. The context stays as it is, and pointers are not
        checked again.
        """
        self._writer.read()
        state = self._writer.state
        turns, shown = _others(reversed(state.turns), message_ids)
        if not turns and shown < state.turn_count:
            records = self._records(newest_first=True)
            turns, shown = _others((each for each in records if isinstance(each, Turn)), message_ids)
        beside = state.showing(turns, state.turn_count - shown)
        return self._build_briefing(beside, self.context.restarts, self.context.pointer_checks).text

    def check_lease(self) -> None:
        """Raise unless this process holds the lease now: LeaseLost, LeaseNotHeld, Closed.

        Costs nothing while the lease runs by our clock; past that a renewal is appended first.
        """
        self._writer.check()
        if not self._chain.current:
            self._writer.renew()

    def release(self) -> None:
        """Hand the lease back, after everything that was submitted; the next process need not wait."""
        self._writer.release()

    def close(self) -> None:
        """Finish what was submitted, hand the lease back, stop. A second call does nothing."""
        _open_agents.discard(self)
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- recording -------------------------------------------------------------------------------------------------

    def submit(self, *records: Record, linger: bool = False) -> Future[list[int]]:
        """Queue records, in order, as one group. Raises at once what is known already (LeaseLost, Closed, ...).

        The future resolves when they are durable, to the seqs of turns and actions (0 for others);
        `asyncio.wrap_future` makes it awaitable. With `linger` they are held back for 20 ms: what is recorded meanwhile
        is committed together with them.
        """
        for record in records:
            if not isinstance(record, Record):
                raise Invalid(f"a record is expected, not {type(record).__name__}", agent_id=self.agent_id)
        future = self._writer.submit([self._cleaner.record(record) for record in records], linger=linger)
        future.add_done_callback(self._note)
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was submitted is durable. Raises what failed first since the last call.

        Raises TimeoutError when that takes more than `timeout` seconds; nothing is lost by it.
        """
        self._writer.drain(timeout)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def record_turn(
        self, role: Role, content: str | list[Any] = "", *, name: str | None = None, message_id: str | None = None,
        calls: Sequence[Call] = (), call_id: str | None = None, status: str | None = None, brief: str | None = None,
        at: str | None = None,
    ) -> int:  # fmt: skip
        """Record a message, word for word; gives its seq. See `prepare_turn` for the arguments."""
        turn = self.prepare_turn(
            role, content, name=name, message_id=message_id, calls=calls, call_id=call_id, status=status, brief=brief,
            at=at,
        )  # fmt: skip
        return self._writer.write([turn])[0]

    def prepare_turn(
        self, role: Role, content: str | list[Any] = "", *, name: str | None = None, message_id: str | None = None,
        calls: Sequence[Call] = (), call_id: str | None = None, status: str | None = None, brief: str | None = None,
        at: str | None = None,
    ) -> Turn:  # fmt: skip
        """Make a Turn for `submit`: text made safe to save, binary parts and what is too long stored as outputs.

        `content` is text or a list of content parts; `calls` are an assistant's tool calls, `call_id` the call that a
        tool's turn answers, `status` "error" for a tool that failed, "cut_off" for what was not said to its end;
        `brief` stands for the content in briefings.
        Raises Invalid, and TooLarge for a label above 1,000 characters.
        """
        return self._preparer.turn(
            role, content, name=name, message_id=message_id, calls=calls, call_id=call_id, status=status, brief=brief,
            at=at,
        )  # fmt: skip

    def update_working_state(
        self, *, goal: str | None = None, plan: Sequence[PlanStep | dict[str, Any] | str] | None = None,
        progress: str | None = None, focus: str | None = None, decisions: Sequence[str] | None = None,
        open_questions: Sequence[str] | None = None, notes: str | None = None,
    ) -> WorkingState:  # fmt: skip
        """Record what the agent is doing; only the fields given change. Gives the whole working state.

        An empty text or list clears a field. A plan's steps are texts, or have `step` and `status` (todo, doing, done).
        """
        record = WorkingState(
            goal=given(goal, "goal"), plan=_plan(plan), progress=given(progress, "progress"),
            focus=given(focus, "focus"), decisions=_texts(decisions, "decisions"),
            open_questions=_texts(open_questions, "open_questions"), notes=given(notes, "notes"),
        )  # fmt: skip
        if record == WorkingState():
            raise Invalid("no field of the working state was given", agent_id=self.agent_id)
        self._record(record)
        return self._writer.state.working

    def milestone(self, text: str) -> None:
        """Record something that was finished."""
        self._record(Milestone(text=required(text, "a milestone")))

    def pin(self, text: str, *, id: str | None = None) -> str:
        """Record a rule that must survive word for word; gives its id. The same id replaces the rule."""
        key = required(id, "a pin's id") if id is not None else f"pin-{secrets.token_hex(4)}"
        self._record(Pin(id=key, text=required(text, "a pin")))
        return key

    def unpin(self, id: str) -> None:
        """Take a pin back. One that is not there is not an error."""
        self._record(Unpin(id=required(id, "a pin's id")))

    def set_pointer(self, name: str, kind: str, target: str, note: str = "") -> None:
        """Record where work lives. `kind` is git_ref, object, environment, external, process, or one of your own.

        Where there is a checker for the kind, what it finds now, within 5 seconds, is recorded with it.
        """
        pointer = self._cleaner.record(
            Pointer(
                name=required(name, "a pointer's name"), kind=required(kind, "a pointer's kind"),
                target=required(target, "a pointer's target"), note=given(note, "a pointer's note") or "",
            )
        )  # fmt: skip
        pointer.seen = self._checks.see(pointer)
        self._record(pointer)

    def remove_pointer(self, name: str) -> None:
        """Take a pointer back. One that is not there is not an error."""
        self._record(PointerRemoved(name=required(name, "a pointer's name")))

    def store_output(
        self, data: str | bytes | BinaryIO, *, name: str | None = None, media_type: str | None = None
    ) -> str:
        """Store a large value whole, up to 100 MB; gives the reference to fetch it by. A stream is read from its start.

        Raises TooLarge, and Invalid for a stream that is not binary or cannot be rewound.
        """
        kind = "text/plain" if isinstance(data, str) else "application/octet-stream"
        label = self._preparer.label
        record = OutputStored(
            ref="", size=0, name=label(name, "an output's name"), media_type=label(media_type, "a media type") or kind
        )
        if isinstance(data, str):
            data = self._cleaner.text(data)
            record.preview = data[:_PREVIEW_CHARS]
        stored = self._keep(data)
        record.ref, record.size = stored.ref, stored.size
        self._record(record)
        return stored.ref

    # ---- actions ---------------------------------------------------------------------------------------------------

    def begin_action(self, tool: str, class_: ActionClass, args: Any = None, *, call_id: str | None = None) -> Action:
        """Record that a tool is about to touch the world. Carry it out only when the result's `status` is "open".

        `class_` is "pure" (only reads), "idempotent" (safe to repeat with the same `key`) or "external" (could happen
        twice). Give the model's `call_id` where there is one: should the call come again, this goes on with the action
        that was begun for it, under the same key. It is then not "open" when it is done (`result` has what came of it),
        or when it is external and its outcome "unknown": ask `reconcile`, or whoever can find out. An idempotent action
        that an earlier holder left open goes on as well when it comes again with the same arguments.

        Raises Invalid.
        """
        return self._journal.begin(tool, class_, args, call_id)

    def end_action(
        self, seq: int, status: EndStatus, *, result: Any = None, error: str | None = None,
        resolution: str | None = None, wait: bool = True,
    ) -> None:  # fmt: skip
        """Record what came of an action: "done", "failed", or "abandoned" (given up before anything happened).

        `result` is any JSON value, or text; `resolution` tells how the outcome is known when nobody saw it. Without
        `wait` it is durable only when what is recorded after it is, or `flush` returns, which raises what failed.
        Raises NotFound when no such action is open, Invalid.
        """
        end = ActionEnd(status, result, error, resolution)
        if wait:
            self._journal.end(seq, end)
        else:
            self._journal.submit_end(seq, end).add_done_callback(self._note)

    def pending_actions(self) -> list[Action]:
        """The actions without a recorded outcome, oldest first: "open" ones of this holder, "unknown" ones before."""
        return self._journal.pending()

    def ended_actions(self) -> list[Action]:
        """The newest actions that are over while no turn answers their call yet, oldest first; at most 20."""
        return self._journal.ended()

    def reconcile(self, resolver: Resolver | None = None) -> ReconcileReport:
        """Close what earlier holders left open, as far as the resolver can tell; nothing is carried out.

        `resolver(action)` returns an ActionEnd, or None where the outcome cannot be known; so does one that raises.
        Reads are closed without it, when the lease is taken.
        """
        return self._journal.reconcile(resolver)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def working_state(self) -> WorkingState:
        """The working state now."""
        return self._writer.state.working

    def pins(self) -> list[Pin]:
        """The pins that hold now."""
        return list(self._writer.state.pins.values())

    def pointers(self) -> list[Pointer]:
        """The pointers that hold now."""
        return list(self._writer.state.pointers.values())

    def check_pointers(self) -> dict[str, PointerCheck]:
        """What is there now where the pointers point, by name, for those whose kind has a checker.

        Takes 5 seconds at most; those that gave no answer by then are "not checked".
        """
        return self._checks.check(self.pointers())

    def recent_turns(self, limit: int = 20) -> list[Turn]:
        """The newest turns, oldest first: at most `limit`, and at most the 40 or so that are kept at hand."""
        return self._writer.state.turns[-limit:] if limit > 0 else []

    def turns(self, *, after: int = 0, limit: int | None = None) -> Iterator[Turn]:
        """All turns with a seq above `after`, oldest first, read from history as they are asked for."""
        records = self._records()
        turns = (record for record in records if isinstance(record, Turn) and record.seq > after)
        return islice(turns, None if limit is None else max(0, limit))

    def working_state_history(self, limit: int = 20) -> list[WorkingState]:
        """The newest updates of the working state, newest first, each with just the fields it changed."""
        records = self._records(newest_first=True)
        return list(islice((record for record in records if isinstance(record, WorkingState)), max(0, limit)))

    def fetch_output(self, ref: str, *, start: int = 0, length: int | None = None) -> bytes:
        """A stored output, or `length` bytes of it from byte `start`. Raises NotFound, Invalid."""
        with self._named():
            return self._backend.get_output(self.agent_id, ref, start, length)

    def recorded_ids(self, ids: Iterable[str]) -> set[str]:
        """Which of these message ids have been recorded, ever. Reads history only for those not among the newest."""
        wanted = set(ids)
        found = wanted & {turn.message_id for turn in self._writer.state.turns if turn.message_id}
        if wanted <= found or self._writer.state.turn_count == len(self._writer.state.turns):
            return found
        for record in self._records(newest_first=True):
            if isinstance(record, Turn) and record.message_id in wanted:
                found.add(record.message_id)
                if wanted <= found:
                    break
        return found

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _record(self, record: Milestone | Pin | Unpin | Pointer | PointerRemoved | OutputStored | WorkingState) -> None:
        record = self._cleaner.record(record)
        record.at = rfc3339()
        if (size := len(memoryview(encode(record)))) > MAX_WORKING_STATE:
            raise TooLarge(
                f"a {type(record).__name__} of {size:,} bytes; at most {MAX_WORKING_STATE:,} are allowed",
                agent_id=self.agent_id,
                hint="put long text into store_output and keep the reference",
            )
        self._writer.write([record])

    def _keep(self, data: str | bytes | BinaryIO) -> outputs.StoredValue:
        """Store an output, for the holder only: it must not appear among the records of another one."""
        self.check_lease()
        with self._named(), self._cleaner.output(data) as cleaned:
            return self._backend.put_output(self.agent_id, cleaned)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors in here name the agent."""
        try:
            yield
        except RecallError as error:
            error.agent_id = self.agent_id
            raise

    def _records(self, *, newest_first: bool = False) -> Iterator[Record]:
        entries = self._backend.entries(self.agent_id, newest_first=newest_first)
        return history.records(entries, self.agent_id, newest_first=newest_first)

    def _build_context(self, state: State) -> Context:
        restarts = max(0, state.starts - self._writer.owned)
        checks = self.check_pointers()
        built = self._build_briefing(state, restarts, checks)
        return Context(
            briefing=built.text, omitted=built.omitted, fresh=state.empty, epoch=self.epoch, restarts=restarts,
            working_state=state.working, pins=list(state.pins.values()), pointers=list(state.pointers.values()),
            milestones=list(state.milestones), outputs=list(state.outputs), recent_turns=list(state.turns),
            unanswered_calls=[call for _, call in briefing.unanswered(state.turns)],
            pending_actions=actions.pending(state, self._journal.own), pointer_checks=checks,
            counter=self._options.counter,
        )  # fmt: skip

    def _build_briefing(self, state: State, restarts: int, checks: Mapping[str, PointerCheck]) -> briefing.Briefing:
        return briefing.build(
            state, agent_id=self.agent_id, restarts=restarts, now=rfc3339(), budget=self._options.token_budget,
            own=self._journal.own, checks=checks, counter=self._options.counter,
        )  # fmt: skip

    def _note(self, future: Future[list[int]]) -> None:
        """Keep the first failure for `flush`. Runs on the writer's thread."""
        self._failure = self._failure or future.exception()


class _Announcer:
    """Says once, and again when the holder changes, whom we wait for."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, held: LeaseHeld) -> None:
        if held.holder != self._said:
            log.warning("waiting: %s", held)
            self._said = held.holder


def _others(newest: Iterator[Turn], message_ids: Collection[str]) -> tuple[list[Turn], int]:
    """The newest turns that are not of these messages, oldest first, and how many that are were passed over."""
    others: list[Turn] = []
    shown = 0
    for turn in newest:
        if turn.message_id in message_ids:
            shown += 1
        elif len(others) == RECENT_TURNS:
            break
        else:
            others.insert(0, turn)
    return others, shown


def _texts(texts: Sequence[str] | None, what: str) -> list[str] | None:
    if texts is None:
        return None
    if isinstance(texts, Mapping) or not isinstance(texts, Iterable):
        raise Invalid(f"{what} is a list of texts, not {type(texts).__name__}")
    checked = [given(text, f"each of {what}") for text in ([texts] if isinstance(texts, str) else texts)]
    return [text for text in checked if text]


def _plan(steps: Sequence[PlanStep | dict[str, Any] | str] | None) -> list[PlanStep] | None:
    if steps is None:
        return None
    if isinstance(steps, Mapping) or not isinstance(steps, Iterable):
        raise Invalid(f"a plan is a list of steps, not {type(steps).__name__}")
    return [_plan_step(step) for step in ([steps] if isinstance(steps, str) else steps)]


def _plan_step(step: PlanStep | dict[str, Any] | str) -> PlanStep:
    if isinstance(step, PlanStep):
        step = {"step": step.step, "status": step.status, **(step.extra or {})}
    fields = clean_json({"step": step} if isinstance(step, str) else step)
    try:
        known = msgspec.convert(fields, PlanStep)
    except msgspec.ValidationError as error:
        hint = "a step is a text, or has step and status (todo, doing, done)"
        raise Invalid(f"a step of a plan: {error}", hint=hint) from error
    if unknown := {name: value for name, value in fields.items() if name not in ("step", "status")}:
        known.extra = unknown
    return known


_open_agents: set[ResumedAgent] = set()


@atexit.register
def _close_all() -> None:
    """A process that ends in an orderly way hands its leases back, even when nobody closed its agents."""
    for agent in list(_open_agents):
        agent.close()
