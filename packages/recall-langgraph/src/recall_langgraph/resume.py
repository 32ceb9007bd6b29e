"""RecallResume: opens an agent's records around a LangGraph run, and gives the hooks that keep them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Literal

from langchain_core.messages import BaseMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from polign_recall import Client, Context, Invalid, LeaseNotHeld, RecallError, ResumedAgent, redact
from polign_recall.redact import Redactor
from polign_recall.stores import Store
from polign_recall.tokens import TokenCounter

from .messages import model_input
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
    `redact` takes secrets out of what is recorded (the graph's messages keep them), None switches that off.

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
        model: str | None = None,
        counter: TokenCounter | None = None,
        redact: Redactor | Literal[False] | None = redact,
    ) -> None:
        self.agent_id = agent_id
        self._client = client
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

        The write goes on while the model thinks. The briefing is in this input only, never in the state.
        """
        return _Hook("recall_pre_model_hook", self._before_model, self._abefore_model)

    @cached_property
    def post_model_hook(self) -> Runnable[State, dict[str, Any]]:
        """Makes the reply durable before its tools run, and stops a holder that was taken over (LeaseLost)."""
        return _Hook("recall_post_model_hook", self._after_model, self._aafter_model)

    # -- for a graph of one's own

    def with_briefing(self, messages: Messages) -> list[BaseMessage]:
        """The model's input for these messages: well formed for every provider, with the briefing in front.

        The briefing opens the first user message, the same bytes at every step; a new agent has none. The given
        messages are not changed. Send the result to the model; do not put it into the state.
        """
        return model_input(convert_to_messages(messages), self._current.injected)

    def record(self, messages: Messages) -> None:
        """Record the messages that are not recorded yet; they are durable when this returns.

        Messages are known by their id. A message object without one is given one, as LangGraph does; a tuple or a
        dict without one counts as new every time.
        """
        self._current.recorder.settle(convert_to_messages(messages))

    async def arecord(self, messages: Messages) -> None:
        """`record` without blocking the event loop."""
        await self._current.recorder.asettle(convert_to_messages(messages))

    @property
    def record_node(self) -> Runnable[State, dict[str, Any]]:
        """A node that records `state["messages"]` and changes nothing in the state: `post_model_hook` by another name.

        Place it behind the model's node, so that a reply is durable before its tools run.
        """
        return self.post_model_hook

    @property
    def briefing_node(self) -> Runnable[State, dict[str, list[BaseMessage]]]:
        """A node that puts the model's input under `llm_input_messages`: `pre_model_hook` by another name.

        Place it before the model's node, in a graph whose state has such a key without a reducer, and let the
        model's node send what is there. `messages` stays as it is.
        """
        return self.pre_model_hook

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
            self._opened = _Opened(agent, stack.pop_all())

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
        opened.recorder.submit(messages)
        opened.check_lease()  # lost, or past its time: no use to think then
        return {"llm_input_messages": model_input(messages, opened.injected)}

    async def _abefore_model(self, state: State) -> dict[str, list[BaseMessage]]:
        return await asyncio.to_thread(self._before_model, state)

    def _after_model(self, state: State) -> dict[str, Any]:
        opened = self._current
        opened.recorder.settle(_messages_of(state))
        opened.check_lease()
        return {}

    async def _aafter_model(self, state: State) -> dict[str, Any]:
        opened = self._current
        await opened.recorder.asettle(_messages_of(state))
        await opened.acheck_lease()
        return {}

    @property
    def _current(self) -> _Opened:
        if self._opened is None:
            raise LeaseNotHeld("the agent is not open", agent_id=self.agent_id, hint="use `with RecallResume(...)`")
        return self._opened


class _Hook(Runnable[State, dict[str, Any]]):
    """A graph's node, sync and async. LangGraph traces nodes itself, so this adds no run of its own."""

    def __init__(
        self,
        name: str,
        run: Callable[[State], dict[str, Any]],
        arun: Callable[[State], Awaitable[dict[str, Any]]],
    ) -> None:
        self.name = name
        self._run = run
        self._arun = arun

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        return self._run(input)

    async def ainvoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        return await self._arun(input)


class _Opened:
    """What belongs to one stay in the `with` block."""

    def __init__(self, agent: ResumedAgent, stack: ExitStack) -> None:
        self.agent = agent
        self.stack = stack
        self.context = agent.context
        self.injected = "" if agent.context.fresh else agent.context.briefing
        self.recorder = Recorder(agent, self.injected)

    def check_lease(self) -> None:
        """Raise unless the agent is ours; free while the lease runs by our clock."""
        if not self.agent.lease_held:
            self.agent.check_lease()

    async def acheck_lease(self) -> None:
        """`check_lease` without blocking the event loop."""
        if not self.agent.lease_held:
            await asyncio.to_thread(self.agent.check_lease)


def _messages_of(state: State) -> list[BaseMessage]:
    messages = state["messages"] if isinstance(state, Mapping) else state.messages
    return list(messages)
