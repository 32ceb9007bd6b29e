"""Tools whose calls are written down before they touch the world, and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar, Final, get_args

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as create_tool
from langchain_core.utils.pydantic import get_fields
from polign_recall import Invalid, ResumedAgent
from polign_recall.records import ActionClass

from .journal import Request, arun, run

KEY: Final = "idempotency_key"
"""The argument that receives an action's key."""


def durable(
    tools: Sequence[BaseTool | Callable[..., Any]],
    classes: Mapping[str, ActionClass],
    agent: Callable[[], ResumedAgent],
) -> list[BaseTool]:
    """Copies of the tools that keep a journal of their calls in the records of `agent()`.

    Raises Invalid for tools without a class, a class that there is not, a key that the model would be asked for, and
    tools that are durable already.
    """
    made = [tool if isinstance(tool, BaseTool) else create_tool(tool) for tool in tools]
    if missing := [tool.name for tool in made if tool.name not in classes]:
        hint = 'classes={"read_file": "pure", "put_object": "idempotent", "send_mail": "external"}'
        raise Invalid(f"tools without a class: {', '.join(missing)}", hint=hint)
    return [durable_tool(tool, classes[tool.name], agent) for tool in made]


def durable_tool(tool: BaseTool, class_: ActionClass, agent: Callable[[], ResumedAgent]) -> BaseTool:
    """A copy of the tool that keeps a journal of its calls: of its type, and the same to a model. Raises Invalid."""
    if class_ not in get_args(ActionClass):
        raise Invalid(f"{tool.name}: a tool is pure, idempotent or external, not {class_!r}")
    if getattr(tool, "keeps_journal", False):
        raise Invalid(f"{tool.name} is durable already", hint="wrap a tool once, or let RecallMiddleware do it")
    if KEY in tool.args:
        hint = f"annotate it: {KEY}: Annotated[str, InjectedToolArg]"
        raise Invalid(f"{tool.name}: its argument {KEY} would be asked of the model", hint=hint)
    kind, hidden = type(tool), _hidden(tool)

    class Durable(kind):  # type: ignore[misc, valid-type]
        """What runs a tool, sync and async, is `run` and `arun`: also `invoke` comes down to these."""

        keeps_journal: ClassVar[bool] = True

        def run(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
            execute = super().run
            return run(
                agent(),
                Request(self.name, class_, _chosen(tool_input, hidden), tool_call_id),
                lambda key: execute(_keyed(tool_input, key, hidden), *args, tool_call_id=tool_call_id, **kwargs),
            )

        async def arun(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
            execute = super().arun
            return await arun(
                agent(),
                Request(self.name, class_, _chosen(tool_input, hidden), tool_call_id),
                lambda key: execute(_keyed(tool_input, key, hidden), *args, tool_call_id=tool_call_id, **kwargs),
            )

    copy = tool.model_copy()
    object.__setattr__(copy, "__class__", Durable)
    return copy


def _hidden(tool: BaseTool) -> set[str]:
    """The arguments that the model does not choose: the graph's state and store, the call's id, the key."""
    functions = [getattr(tool, name, None) for name in ("func", "coroutine")]
    parameters = [signature(function).parameters for function in functions if function]
    schema = get_fields(tool.get_input_schema())
    names = {*schema}.union(*(parameters or [signature(tool._run).parameters, signature(tool._arun).parameters]))
    return names - {*tool.args}


def _chosen(tool_input: Any, hidden: set[str]) -> Any:
    """The arguments to record."""
    if not isinstance(tool_input, Mapping):
        return tool_input
    return {name: value for name, value in tool_input.items() if name not in hidden}


def _keyed(tool_input: Any, key: str, hidden: set[str]) -> Any:
    """The arguments to call the tool with. A copy: LangChain adds to them, and the tool may be tried again."""
    if not isinstance(tool_input, Mapping):
        return tool_input
    return {**tool_input, KEY: key} if KEY in hidden else {**tool_input}
