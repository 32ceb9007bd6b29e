"""RecallMiddleware: the same as the hooks, for `langchain.agents.create_agent`, and a journal around tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from langgraph.types import Command
from polign_recall import Invalid
from polign_recall.records import ActionClass

from .durable import durable_tool
from .resume import RecallResume
from .tools import recall_tools

ToolResult = ToolMessage | Command[Any]


class RecallMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Records an agent that `create_agent` makes, starts its model from the briefing, and adds `recall_tools`.

        with RecallResume("billing-migrator", local_dir="./recall-data") as resume:
            agent = create_agent(model, tools=your_tools, middleware=[RecallMiddleware(resume)])
            agent.invoke({"messages": [("user", "Carry on.")]})

    The briefing opens the first user message of what the model is sent, the same bytes at every step; it is never in
    the graph's state, and the system prompt stays as it is. A reply is durable before its tools run. A holder that was
    taken over runs no tool: LeaseLost is raised instead.

    With `classes`, a mapping from the name of each tool to "pure" (only reads), "idempotent" (safe to repeat with the
    same key) or "external" (could happen twice), every tool call is journalled: its intent is durable before the tool
    runs, its outcome is recorded after it. An argument `idempotency_key: Annotated[str, InjectedToolArg]` gets the
    call's key, the same at every try. A tool without a class is refused before the model is asked (Invalid); those of
    `recall_tools` need none. Without `classes` nothing is journalled.

    Put it last in the list of middleware: then it records a reply before others may pause the run, and every retry of
    a tool passes through it. It works in every mode of the graph; one instance may serve concurrent runs.
    """

    def __init__(self, resume: RecallResume, *, classes: Mapping[str, ActionClass] | None = None) -> None:
        self._resume = resume
        self._classes = None if classes is None else dict(classes)
        self.tools = recall_tools(resume)
        self._own = {tool.name for tool in self.tools}
        self._made: dict[str, tuple[BaseTool, BaseTool]] = {}  # durable copies, each with what it was made of

    # -- around a run

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Settle what an earlier process left open, and record what the user said before others can cut it away."""
        self._resume.settle()
        self._resume._current.submit(state["messages"])

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`before_agent` without blocking the event loop."""
        await asyncio.to_thread(self.before_agent, state, runtime)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Record what came after the last reply, such as the result of a tool with `return_direct`."""
        self._resume._current.settle(state["messages"])

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_agent` without blocking the event loop."""
        await self._resume._current.asettle(state["messages"])

    # -- around a model call

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Record what is new without waiting for it, and give the model its input."""
        return handler(self._for_model(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """`wrap_model_call` without blocking the event loop."""
        return await handler(await asyncio.to_thread(self._for_model, request))

    def after_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Make the reply durable before its tools run, and stop a holder that was taken over (LeaseLost)."""
        self._resume._current.settle(state["messages"])

    async def aafter_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_model` without blocking the event loop."""
        await self._resume._current.asettle(state["messages"])

    def _for_model(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with the model's input; of the system prompt only where the thread has system messages too."""
        for tool in request.tools:  # refused now, before anything is done
            if isinstance(tool, BaseTool):  # others run at the provider
                self._durable(tool)
        opened, system = self._resume._current, request.system_message
        opened.submit(request.state["messages"])
        first, *others = cast(list[Any], opened.model_input([*([system] if system else []), *request.messages]))
        if system is None or not isinstance(first, SystemMessage):
            return request.override(messages=[first, *others])
        return request.override(system_message=first, messages=others)

    # -- around a tool call

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        """Run the tool only while the agent is ours (LeaseLost), and keep a journal of it if it has a class."""
        self._resume._current.check_lease()
        return handler(self._for_tool(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """`wrap_tool_call` without blocking the event loop."""
        await self._resume._current.acheck_lease()
        return await handler(self._for_tool(request))

    def _for_tool(self, request: ToolCallRequest) -> ToolCallRequest:
        if request.tool is None:  # the model named one that there is not, and will be told so
            return request
        return request.override(tool=self._durable(request.tool))

    def _durable(self, tool: BaseTool) -> BaseTool:
        """The tool with a journal, or itself where none is kept. Raises Invalid for one that should have a class."""
        if self._classes is None or (tool.name in self._own and tool.name not in self._classes):
            return tool
        if type(tool).__module__ == durable_tool.__module__:  # made by `resume.durable`: it keeps a journal itself
            return tool
        if tool.name not in self._classes:
            hint = 'RecallMiddleware(resume, classes={...}): "pure", "idempotent" or "external" for every tool'
            raise Invalid(f"the tool {tool.name} has no class", agent_id=self._resume.agent_id, hint=hint)
        made = self._made.get(tool.name)
        if made is None or made[0] is not tool:
            copy = durable_tool(tool, self._classes[tool.name], lambda: self._resume.agent)
            made = self._made[tool.name] = (tool, copy)
        return made[1]
