"""Writes the messages of a graph down as turns: each once, in order, whatever thread or branch brings them."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING

from langchain_core.messages import BaseMessage, HumanMessage
from polign_recall import RecallError, WriteUnknown

from . import watching
from .arrived import Arrived
from .messages import TurnFields, turn_fields, without_briefing

if TYPE_CHECKING:
    from polign_recall import ResumedAgent
    from polign_recall.records import Turn

Written = Future[list[int]]
"""Gives the seqs of the turns once they are durable, or raises what failed."""


class Recorder:
    """Records the messages of this process's graphs. May be used from any thread.

    A message is known by its id. A list of messages comes again at every step, and whole when a checkpointer restores
    an old thread; so it is remembered which ids were recorded here, and which are known to be from an earlier
    process. The agent's history is asked only about messages that may be older than this process.
    """

    def __init__(self, agent: ResumedAgent, briefing: str) -> None:
        self._agent = agent
        self.briefing = briefing  # never recorded; replaced when it is built anew
        self._lock = threading.Lock()  # held while deciding and submitting, never while waiting
        self._ours: set[str] = set()
        self._older = {turn.message_id for turn in agent.context.recent_turns if turn.message_id}
        self._fresh = agent.context.fresh
        self._in_flight: dict[Written, list[str]] = {}
        self._failed: dict[str, BaseException] = {}
        self._left_over: deque[BaseMessage] = deque()
        self.arrived = Arrived(agent.context.recent_turns)
        """Results that are recorded though a thread may have lost them."""
        watching.start()

    def submit(self, messages: Sequence[BaseMessage], *, linger: bool = True) -> list[Written]:
        """Queue the messages that are not recorded yet, without waiting; gives all that is on its way.

        They linger a little, so that a quick model's reply is committed with what it answers.

        It may read history, and stores large contents: not for an event loop's thread. Raises what
        `ResumedAgent.submit` raises, such as LeaseLost.
        """
        watching.watch(self)
        with self._lock:
            self._take_stock()
            left_over = list(self._left_over)
            for given in (left_over, messages):
                if turns := self._new_turns(given):
                    new = [turn.message_id for turn in turns if turn.message_id]
                    self._in_flight[self._agent.submit(*turns, linger=linger)] = new
                    self._ours.update(new)
            for _ in left_over:
                self._left_over.popleft()
            return list(self._in_flight)

    def take(self, messages: Sequence[BaseMessage]) -> None:
        """Record, soon, what a run showed and no step of it recorded; never waits. What fails is told by `flush`."""
        if new := self._unknown(messages):
            self._left_over.extend(new)
            self.arrived.left_over(new)
            threading.Thread(target=self._submit_left_over, name="recall-left-over").start()

    def _submit_left_over(self) -> None:
        with suppress(RecallError):  # it stays where it is: the next step or `flush` tries again
            self.submit([], linger=False)

    def _unknown(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        return [message for message in messages if message.id not in self._ours and message.id not in self._older]

    def settle(self, messages: Sequence[BaseMessage]) -> None:
        """Record, and wait until this and what was submitted before is durable. Raises what failed."""
        for written in self.submit(messages, linger=False):
            try:
                written.result()
            except RecallError as error:
                self._told(error)
                raise

    async def asettle(self, messages: Sequence[BaseMessage]) -> None:
        """`settle` without blocking the event loop. When it is cancelled, the messages are recorded all the same."""
        for written in await asyncio.to_thread(self.submit, messages, linger=False):
            try:
                await asyncio.wrap_future(written)
            except RecallError as error:
                await asyncio.to_thread(self._told, error)
                raise

    def flush(self) -> None:
        """At the end: wait for all that was submitted, and for what runs have shown that are not closed yet.

        Raises what failed, was not told yet and not recorded by a later step.
        """
        self._left_over.extend(self._unknown(watching.leave(self)))
        wait(self.submit([]) if self._left_over else list(self._in_flight))
        with self._lock:
            self._take_stock()
            for error in self._failed.values():
                raise error

    def _told(self, told: RecallError) -> None:
        with self._lock:
            self._take_stock()
            self._failed = {key: error for key, error in self._failed.items() if error is not told}

    def _take_stock(self) -> None:
        """See what became of what was on its way; what failed is tried again by the next step that brings it."""
        for written in [written for written in self._in_flight if written.done()]:
            ids = self._in_flight.pop(written)
            if error := written.exception():
                self._failed.update(dict.fromkeys(ids, error))
                if not isinstance(error, WriteUnknown):  # that one may still land
                    self._ours.difference_update(ids)
            else:
                for message_id in ids:
                    self._failed.pop(message_id, None)

    def _new_turns(self, messages: Sequence[BaseMessage]) -> list[Turn]:
        turns = [self._agent.prepare_turn(**fields) for fields in self._not_recorded(messages).values()]
        if repeats := self.arrived.repeats(turns, messages):
            self._older |= {message_id for message_id in repeats if message_id}
            turns = [turn for turn in turns if turn.message_id not in repeats]
        return turns

    def _not_recorded(self, messages: Sequence[BaseMessage]) -> dict[str, TurnFields]:
        """The turns of the messages that are new, by message id."""
        new: dict[str, TurnFields] = {}
        doubtful: set[str] = set()
        certain, tail = self._fresh, _tail(messages)
        for index, message in enumerate(messages):
            if message.id in self._ours:
                certain = True  # what follows a message of this process is of this process
            elif message.id not in self._older and message.id not in new:
                fields = turn_fields(without_briefing(message, self.briefing))
                if fields is None:
                    continue
                if message.id is None:
                    message.id = fields["message_id"] = str(uuid.uuid4())  # as LangGraph's own reducer does
                elif not certain and index < tail:
                    doubtful.add(message.id)
                new[message.id] = fields
        if doubtful:
            known = self._agent.recorded_ids(doubtful)
            self._older |= known
            new = {message_id: fields for message_id, fields in new.items() if message_id not in known}
        return new


def _tail(messages: Sequence[BaseMessage]) -> int:
    """Where the part begins that a step adds: the last message, and what the user said before it.

    If that is from an earlier process, it was among the last things that process recorded, which are at hand.
    """
    start = max(0, len(messages) - 1)
    while start > 0 and isinstance(messages[start - 1], HumanMessage):
        start -= 1
    return start
