"""RecallResume: opens an agent's records around a LangGraph run, and gives the hooks that keep them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Literal

from langchain_core.messages import BaseMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from polign_recall import (
    Action,
    ActionEnd,
    Client,
    Context,
    Invalid,
    LeaseNotHeld,
    RecallError,
    ReconcileReport,
    ResumedAgent,
    redact,
)
from polign_recall.actions import Resolver
from polign_recall.checking import Checker
from polign_recall.records import ActionClass
from polign_recall.redact import Redactor
from polign_recall.state import RECENT_RESULTS
from polign_recall.stores import Store
from polign_recall.tokens import TokenCounter

from .bounding import Window
from .durable import durable
from .journal import learn
from .messages import model_input
from .outcomes import text_of
from .recorder import Recorder

Messages = Sequence[MessageLikeRepresentation]
"""Whatever LangChain takes for messages: message objects, `("user", "hi")`, dicts."""
State = Any
"""A graph's state: a dict, or a pydantic object, with `messages`."""


class RecallResume:
    """Holds an agent for as long as it is entered, with `with` or `async with`.

    Entering opens the agent and its briefing; leaving waits until everything is recorded and hands the agent over.

        with RecallResume("billing-migrator", local_dir="./recall-data") as resume:
            agent = create_react_agent(
                model,
                tools=[*your_tools, *recall_tools(resume)],
                pre_model_hook=resume.pre_model_hook,
                post_model_hook=resume.post_model_hook,
            )
            agent.invoke({"messages": [("user", "Carry on.")]})

    `local_dir`, `store`, `url` with `api_key`, and `env` choose where the records live, as for `polign_recall.Client`;
    `client` uses one that is open already and leaves it open. The other arguments are those of `Client.resume`:
    `token_budget` limits the briefing (tokens), `lease_ttl` is how long a holder that went silent keeps the agent (5 to
    3600 seconds), `wait` how long to wait for another holder (seconds), `takeover` takes the agent from it at once,
    `redact` takes secrets out of what is recorded (the graph's messages keep them), None switches that off, `checkers`
    find out whether pointers still lead where they did.

    `resolvers`, by the tool's name, are asked on entering what came of calls that an earlier process left without an
    outcome; see `durable` and `settle`.

    `max_context_tokens` bounds what the model is sent, for threads of any length: at least twice `token_budget`. Older
    messages then leave the model's input, calls and results together, and a new briefing stands for them; the graph's
    messages and the records keep them. It counts the messages' text and the arguments of calls; not the tools' schemas,
    a `prompt` of create_react_agent, or pictures.

    Entering raises LeaseHeld when another process works for the agent, and StoreError or DataError when the records
    cannot be opened. Hooks and methods raise LeaseLost once another process has taken over: the run stops.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        local_dir: str | os.PathLike[str] | None = None,
        store: str | Store | None = None,
        url: str | None = None,
        api_key: str | None = None,
        client: Client | None = None,
        env: Mapping[str, str] | None = None,
        token_budget: int = 8000,
        lease_ttl: float = 60,
        wait: float = 0,
        takeover: bool = False,
        holder: str | None = None,
        output_threshold: int = 2000,
        max_context_tokens: int | None = None,
        model: str | None = None,
        counter: TokenCounter | None = None,
        redact: Redactor | Literal[False] | None = redact,
        checkers: Mapping[str, Checker] | None = None,
        resolvers: Mapping[str, Resolver] | None = None,
    ) -> None:
        self.agent_id = agent_id
        self._client = client
        self._limit = max_context_tokens
        self._resolvers = dict(resolvers or {})
        self._where: dict[str, Any] = {
            "local_dir": local_dir, "store": store, "url": url, "api_key": api_key, "env": env
        }  # fmt: skip
        self._how: dict[str, Any] = {
            "token_budget": token_budget,
            "lease_ttl": lease_ttl,
            "wait": wait,
            "takeover": takeover,
            "holder": holder,
            "output_threshold": output_threshold,
            "model": model,
            "counter": counter,
            "redact": redact,
            "checkers": checkers,
        }
        self._opened: _Opened | None = None

    @property
    def agent(self) -> ResumedAgent:
        """The agent's records. Raises LeaseNotHeld outside the `with` block."""
        return self._current.agent

    @property
    def context(self) -> Context:
        """What was known when the agent was opened."""
        return self._current.context

    @property
    def briefing(self) -> str:
        """The text that a resumed model starts from; for a new agent, which needs none, what it would be."""
        return self.context.briefing

    # -- hooks for create_react_agent

    @cached_property
    def pre_model_hook(self) -> Runnable[State, dict[str, list[BaseMessage]]]:
        """Records what is new, without waiting, and gives the model's input: `{"llm_input_messages": [...]}`.

        The write goes on while the model thinks. The briefing is in this input only, never in the state's messages.
        """
        return _Hook("recall_pre_model_hook", self._before_model, self._abefore_model)

    @cached_property
    def post_model_hook(self) -> Runnable[State, dict[str, Any]]:
        """Makes the reply durable before its tools run, and stops a holder that was taken over (LeaseLost).

        It also takes the model's input out of the state again, so that a checkpointer does not keep it with the thread.
        """
        return _Hook("recall_post_model_hook", self._after_model, self._aafter_model, ["llm_input_messages"])

    # -- for a graph of one's own

    def with_briefing(self, messages: Messages) -> list[BaseMessage]:
        """The model's input for these messages: well formed for every provider, with the briefing in front.

        The briefing opens the first user message, the same bytes at every step; a new agent has none. The given
        messages are not changed. Send the result to the model; do not put it into the state. With `max_context_tokens`
        it may wait for the store: call it in a thread where there is an event loop.
        """
        return self._current.model_input(convert_to_messages(messages))

    def record(self, messages: Messages) -> None:
        """Record the messages that are not recorded yet; they are durable when this returns.

        Messages are known by their id. A message object without one is given one, as LangGraph does; a tuple or a
        dict without one counts as new every time.
        """
        opened = self._current
        opened.recorder.settle(opened.as_given(convert_to_messages(messages)))

    async def arecord(self, messages: Messages) -> None:
        """`record` without blocking the event loop."""
        opened = self._current
        await opened.recorder.asettle(opened.as_given(convert_to_messages(messages)))

    @cached_property
    def record_node(self) -> Runnable[State, dict[str, Any]]:
        """A node that records `state["messages"]` and changes nothing in the state.

        Place it behind the model's node, so that a reply is durable before its tools run, and a holder that was taken
        over stops there (LeaseLost). One in front of it as well keeps what a cancelled run has shown.
        """
        return _Hook("recall_record_node", self._after_model, self._aafter_model)

    @property
    def briefing_node(self) -> Runnable[State, dict[str, list[BaseMessage]]]:
        """A node that puts the model's input under `llm_input_messages`: `pre_model_hook` by another name.

        Place it before the model's node, in a graph whose state has such a key without a reducer, and let the
        model's node send what is there. `messages` stays as it is.
        """
        return self.pre_model_hook

    # -- tools that touch the world

    def durable(
        self, tools: Sequence[BaseTool | Callable[..., Any]], *, classes: Mapping[str, ActionClass]
    ) -> list[BaseTool]:
        """Copies of the tools that write each call down before it touches the world, and what came of it after.

        `classes` says for each tool, by its name, what may be done when its process died on the way: "pure" (it only
        reads: forgotten), "idempotent" (safe to repeat with the same key: goes on under its key) or "external" (could
        happen twice: never repeated for the same call). A tool's argument `idempotency_key`, annotated
        `InjectedToolArg`, receives the key, which is the same at every try of a call.

        Where LangGraph runs a call again, one that is done gives its recorded result, without being run. Raises Invalid
        for a tool without a class. Calling the tools raises what the records raise, LeaseLost above all.
        """
        return durable(tools, classes, lambda: self.agent)

    def open_actions(self) -> list[Action]:
        """The calls of durable tools without a recorded outcome, oldest first: "open" here, "unknown" from before."""
        return self.agent.pending_actions()

    def settle(self, resolvers: Mapping[str, Resolver] | None = None) -> ReconcileReport:
        """Ask what came of the calls that an earlier process left without an outcome; nothing is carried out.

        A resolver is found by the tool's name, here or among those of `RecallResume(resolvers=...)`, which are asked on
        entering already. It gets the Action and gives an ActionEnd, or None where the outcome cannot be told; so does
        one that raises. Where something was found out, the briefing is built anew. Raises Invalid.
        """
        report = self.agent.reconcile(_by_tool({**self._resolvers, **(resolvers or {})}))
        if report.closed:
            self._current.rebuild()
        return report

    async def asettle(self, resolvers: Mapping[str, Resolver] | None = None) -> ReconcileReport:
        """`settle` in a thread of its own, so that it does not block the event loop."""
        return await asyncio.to_thread(self.settle, resolvers)

    # -- opening and closing

    def __enter__(self) -> RecallResume:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    async def __aenter__(self) -> RecallResume:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._abandon)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._close, error)

    def _abandon(self, opening: asyncio.Future[None]) -> None:
        """After a cancelled entry: the thread may have got the agent since; nobody will use it."""
        if not opening.cancelled():
            opening.exception()  # or asyncio reports that nobody asked for it
        threading.Thread(target=self._close, args=(None,)).start()

    def _open(self) -> None:
        if self._opened is not None:
            raise Invalid("this RecallResume is open already", agent_id=self.agent_id, hint="make another one")
        with ExitStack() as stack:
            client = self._client or stack.enter_context(Client(**self._where))
            agent = stack.enter_context(client.resume(self.agent_id, **self._how))
            if self._resolvers and agent.reconcile(_by_tool(self._resolvers)).closed:
                agent.refresh()
            opened = _Opened(agent)
            if self._limit is not None:
                opened.bound(self._limit, self._how["token_budget"])
            opened.stack, self._opened = stack.pop_all(), opened

    def _close(self, error: BaseException | None) -> None:
        """Wait for what was submitted, then release, whatever happens; an error of the body is never masked."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        problem: RecallError | None = None
        try:
            opened.recorder.flush()
        except RecallError as caught:
            problem = caught
        finally:
            opened.stack.close()
        if problem is None or problem is error:
            return
        if error is None:
            raise problem
        error.add_note(f"while leaving RecallResume: {problem}")

    # -- the hooks

    def _before_model(self, state: State) -> dict[str, list[BaseMessage]]:
        messages, opened = _messages_of(state), self._current
        opened.submit(messages)
        return {"llm_input_messages": opened.model_input(messages)}

    async def _abefore_model(self, state: State) -> dict[str, list[BaseMessage]]:
        return await asyncio.to_thread(self._before_model, state)

    def _after_model(self, state: State) -> None:
        self._current.settle(_messages_of(state))

    async def _aafter_model(self, state: State) -> None:
        await self._current.asettle(_messages_of(state))

    @property
    def _current(self) -> _Opened:
        if self._opened is None:
            raise LeaseNotHeld("the agent is not open", agent_id=self.agent_id, hint="use `with RecallResume(...)`")
        return self._opened


class _Hook(Runnable[State, dict[str, Any]]):
    """A graph's node, sync and async; one that gives no update empties the keys `emptied` of the state.

    LangGraph traces nodes itself, so this adds no run of its own.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[State], dict[str, Any] | None],
        arun: Callable[[State], Awaitable[dict[str, Any] | None]],
        emptied: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._run = run
        self._arun = arun
        self._emptied = emptied

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        return self._run(input) or {key: [] for key in self._emptied}

    async def ainvoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        return await self._arun(input) or {key: [] for key in self._emptied}


class _Opened:
    """What belongs to one stay in the `with` block."""

    def __init__(self, agent: ResumedAgent) -> None:
        self.agent = agent
        self.stack = ExitStack()
        self.window: Window | None = None
        self.context = agent.context
        self.injected = "" if agent.context.fresh else agent.context.briefing
        self.recorder = Recorder(agent, self.injected)

    def submit(self, messages: Sequence[BaseMessage]) -> None:
        """Record what is new without waiting. Raises LeaseLost: it is no use to think or act then."""
        learn(self.agent, messages)
        self.recorder.submit(messages)
        self.check_lease()

    def settle(self, messages: Sequence[BaseMessage]) -> None:
        """Record what is new, and wait until all is durable. Raises LeaseLost."""
        self.recorder.settle(messages)
        self.check_lease()

    async def asettle(self, messages: Sequence[BaseMessage]) -> None:
        """`settle` without blocking the event loop."""
        await self.recorder.asettle(messages)
        await self.acheck_lease()

    def model_input(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """What the model is sent for these messages."""
        outcomes = dict(self.recorder.arrived.outcomes)
        outcomes |= {(action.call_id, action.tool): text_of(action) for action in self.agent.ended_actions()}
        if self.window is None:
            return model_input(messages, self.injected, outcomes)
        return self.window.model_input(messages, self.injected, outcomes)

    def as_given(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """The messages without briefings of `max_context_tokens` that `with_briefing` put in front of some."""
        return messages if self.window is None else self.window.without_briefings(messages)

    def rebuild(self) -> None:
        """Make the briefing anew."""
        self.context = self.agent.refresh()
        self.injected = self.context.briefing
        self.recorder.briefing = self.injected
        if self.window is not None:
            self.window.forget()

    def bound(self, limit: int, budget: int) -> None:
        """Keep model inputs at `limit` tokens, with briefings of at most `budget`. Raises Invalid."""
        self.window = Window(limit, budget, self.context.counter, self._brief, self._stored)

    def _brief(self, shown: Collection[str]) -> str:
        """A briefing for all that is recorded but the messages of these ids, once it is durable."""
        self.recorder.settle([])
        return self.agent.briefing_beside(shown)

    def _stored(self) -> dict[str, str]:
        """The references of recent turns that are stored whole, by message id."""
        turns = self.agent.recent_turns(RECENT_RESULTS)
        return {turn.message_id: turn.output_ref for turn in turns if turn.message_id and turn.output_ref}

    def check_lease(self) -> None:
        """Raise unless the agent is ours; free while the lease runs by our clock."""
        if not self.agent.lease_held:
            self.agent.check_lease()

    async def acheck_lease(self) -> None:
        """`check_lease` without blocking the event loop."""
        if not self.agent.lease_held:
            await asyncio.to_thread(self.agent.check_lease)


def _by_tool(resolvers: Mapping[str, Resolver]) -> Resolver:
    def resolve(action: Action) -> ActionEnd | None:
        resolver = resolvers.get(action.tool)
        return resolver(action) if resolver is not None else None

    return resolve


def _messages_of(state: State) -> list[BaseMessage]:
    messages = state["messages"] if isinstance(state, Mapping) else state.messages
    return list(messages)
