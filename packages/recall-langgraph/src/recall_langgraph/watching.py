"""What a graph has shown its user before a hook could record it, so that a cancelled run loses none of it.

The hooks record at the steps of a run: a reply after its model, a result before the next model. A run that ends in
between (the user closed the stream, a tool failed, a tool that returns directly, a hand-off) has shown messages that
no step brings any more. LangChain tells every callback handler about them, as LangGraph's own streams learn of them;
when such a run ends, what is left over goes to the recorder.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import ParentCommand
from langgraph.types import Command

from .messages import cut_off

Run: TypeAlias = uuid.UUID
_HIDDEN: Final = "nostream"
"""LangGraph's tag for a model whose tokens its "messages" stream does not show."""


class Taker(Protocol):
    """Takes what a run left over; see `Recorder.take`."""

    def take(self, messages: Sequence[BaseMessage]) -> None:
        """Record these messages, soon, without blocking."""


@dataclass
class _Reply:
    """What a model has said so far; `whole` once it has ended."""

    node: Run | None
    message_id: str | None = None
    parts: list[str] = field(default_factory=list)
    whole: BaseMessage | None = None

    def messages(self) -> list[BaseMessage]:
        """The reply, cut off where it is not whole; none when nothing was said."""
        if self.whole is not None:
            return [self.whole]
        return [cut_off("".join(self.parts), self.message_id)] if self.parts else []


@dataclass
class _Shown:
    """What a run of a graph has shown: its nodes' messages by their place in the run, and replies of no node yet."""

    taker: Taker | None
    messages: list[tuple[tuple[str, ...], BaseMessage]] = field(default_factory=list)
    replies: dict[Run, _Reply] = field(default_factory=dict)

    def in_order(self, cancelled: bool) -> list[BaseMessage]:
        """All of it as the graph orders it, replies of no node last; those only of a run that did not end by itself."""
        ordered = [message for _, message in sorted(self.messages, key=lambda pair: pair[0])]
        replies = list(self.replies.values()) if cancelled else []
        return [*ordered, *(message for reply in replies for message in reply.messages())]


@dataclass
class _Chain:
    """A run that is under way: the graph and the node that it works for; where it is a node itself, its place."""

    graph: Run | None = None
    node: Run | None = None
    place: tuple[str, ...] | None = None


def start() -> None:
    """Let LangChain know the watcher: runs that begin from here on can be watched."""
    _registered()


def watch(taker: Taker) -> None:
    """Called by a step of a graph: what the step's run shows from here on is for `taker`. Nothing outside a graph.

    A graph whose steps record for several agents is nobody's: what a node said cannot be told apart there.
    """
    _registered().watch(taker)


def leave(taker: Taker) -> list[BaseMessage]:
    """What runs that have not ended have shown so far; they are not watched for `taker` any more.

    A stream of a coroutine that nobody reads on ends only when the event loop gets to close it.
    """
    return _registered().leave(taker)


class _Watcher(BaseCallbackHandler):
    """Follows every run of the process; forgets a run when it ends. Its dicts and lists are changed atomically."""

    run_inline = True  # in the order of events, and before LangGraph saves or shows a node's messages
    ignore_agent = ignore_retriever = ignore_custom_event = ignore_retry = True  # spares each tool call two events

    def __init__(self) -> None:
        self._chains: dict[Run, _Chain] = {}
        self._replies: dict[Run, _Reply] = {}
        self._shown: dict[Run, _Shown] = {}

    def watch(self, taker: Taker) -> None:
        """See `watch`."""
        callbacks = (var_child_runnable_config.get() or {}).get("callbacks")
        graph = self._outer(getattr(callbacks, "parent_run_id", None)).graph
        if graph is None:
            return
        shown = self._shown.setdefault(graph, _Shown(taker))
        if shown.taker is not taker:
            shown.taker = None

    def leave(self, taker: Taker) -> list[BaseMessage]:
        """See `leave`."""
        open_runs = [shown for shown in list(self._shown.values()) if shown.taker is taker]
        for shown in open_runs:
            shown.taker = None
        return [message for shown in open_runs for message in shown.in_order(cancelled=True)]

    # -- nodes and graphs

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Run, parent_run_id: Run | None = None,
        metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A node works for the run that started it; what runs inside of a node, for the same graph."""
        if metadata and kwargs.get("name") == metadata.get("langgraph_node"):
            step, path = metadata.get("langgraph_step"), metadata.get("langgraph_path") or ()
            self._chains[run_id] = _Chain(parent_run_id, run_id, tuple(map(_sortable, (step, *path))))
        else:
            outer = self._outer(parent_run_id)
            self._chains[run_id] = _Chain(outer.graph, outer.node)

    def on_chain_end(self, outputs: Any, *, run_id: Run, **kwargs: Any) -> None:
        """A node's messages are kept until its run ends; they get their ids now, so that every copy has the same."""
        self._keep(self._chains.pop(run_id, _Chain()), outputs)
        self._end(run_id, cancelled=False)

    def on_chain_error(self, error: BaseException, *, run_id: Run, **kwargs: Any) -> None:
        """As `on_chain_end`; a hand-off to the graph around this one looks like an error."""
        chain = self._chains.pop(run_id, _Chain())
        if isinstance(error, ParentCommand):
            self._keep(chain, error.args[0])
        self._end(run_id, cancelled=True)

    def _outer(self, run_id: Run | None) -> _Chain:
        return self._chains.get(run_id, _Chain()) if run_id else _Chain()

    def _keep(self, chain: _Chain, outputs: Any) -> None:
        shown = self._shown.get(chain.graph) if chain.graph else None
        if chain.place is None or shown is None:
            return
        for message in _messages_in(outputs):
            message.id = message.id or str(uuid.uuid4())
            shown.messages.append((chain.place, message))
        # What its models said, and it did not add to the state, was not meant to be part of the talk.
        for run_id in [run_id for run_id, reply in list(shown.replies.items()) if reply.node == chain.node]:
            del shown.replies[run_id]

    def _end(self, run_id: Run, cancelled: bool) -> None:
        shown = self._shown.pop(run_id, None)
        if shown is not None and shown.taker is not None and (left := shown.in_order(cancelled)):
            shown.taker.take(left)

    # -- models

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Run, parent_run_id: Run | None = None,
        tags: list[str] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A model of a watched graph speaks; one that a tool asks does not speak for the graph."""
        chain = self._outer(parent_run_id)
        shown = self._shown.get(chain.graph) if chain.graph else None
        if shown is not None and _HIDDEN not in (tags or ()):
            self._replies[run_id] = shown.replies[run_id] = _Reply(chain.node)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: Run, **kwargs: Any) -> None:
        """Keep what was said so far."""
        reply = self._replies.get(run_id)
        if reply is not None and isinstance(chunk, ChatGenerationChunk) and chunk.message.text:
            reply.message_id = chunk.message.id
            reply.parts.append(chunk.message.text)

    def on_llm_end(self, response: LLMResult, *, run_id: Run, **kwargs: Any) -> None:
        """The whole reply takes the place of what was said so far."""
        reply = self._replies.pop(run_id, None)
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        if reply is not None and isinstance(generation, ChatGeneration):
            reply.whole = generation.message

    def on_llm_error(self, error: BaseException, *, run_id: Run, **kwargs: Any) -> None:
        """What was said so far stays."""
        self._replies.pop(run_id, None)


def _messages_in(outputs: Any) -> Iterator[BaseMessage]:
    """The messages that a node adds to its state: what it returned, or commands that it gave."""
    for output in outputs if isinstance(outputs, list | tuple) else [outputs]:
        update = output.update if isinstance(output, Command) else output
        if isinstance(update, list | tuple):  # pairs of a key and a value
            update = dict(pair for pair in update if isinstance(pair, tuple))
        added = update.get("messages") if isinstance(update, dict) else getattr(update, "messages", None)
        yield from (m for m in (added if isinstance(added, list) else [added]) if isinstance(m, BaseMessage))


def _sortable(part: Any) -> str:
    """Part of a place; LangGraph orders what the tasks of a step wrote by these."""
    return f"{part:010d}" if isinstance(part, int) else str(part)


@cache
def _registered() -> _Watcher:
    """The one watcher of this process, known to LangChain from the first use on, in every context."""
    watcher = _Watcher()
    register_configure_hook(ContextVar("recall_watcher", default=watcher), inheritable=True)
    return watcher
