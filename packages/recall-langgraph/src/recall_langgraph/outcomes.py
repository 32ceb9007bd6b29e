"""What a tool returned, as the journal keeps it, and back again. Pure functions, no I/O.

A result is kept as the text, or content blocks, that the model is shown. What a graph needs as an object (a `Command`,
a list of outputs, a message with an artifact) is kept as JSON that can be made into that object again; where it holds
something that JSON cannot, its text is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolCall,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.types import Command
from polign_recall import Action, ActionEnd

Output = ToolMessage | Command[Any]
"""What the node that runs tools takes from one of them; or a list of these."""

_DOUBT: Final = "recall_outcome_unknown"  # marks, in `additional_kwargs`, a message that is no result
_OUTPUTS: Final = "langgraph_outputs"
_MESSAGE: Final = "langchain_message"
_COMMAND: Final = "langgraph_command"


def end_of(output: Any) -> ActionEnd:
    """How an action ended whose tool returned `output`."""
    if isinstance(output, ToolMessage) and output.status == "error":
        return ActionEnd("failed", error=output.text)
    if isinstance(output, ToolMessage) and not (output.artifact or output.additional_kwargs or output.id):
        return ActionEnd("done", output.content)
    outputs = output if isinstance(output, list) else [output]
    if not outputs or not all(isinstance(each, ToolMessage | Command) for each in outputs):
        return ActionEnd("done", output)  # of a tool that was not called for a model
    try:
        return ActionEnd("done", {_OUTPUTS: [_as_json(each) for each in outputs]})
    except TypeError:
        return ActionEnd("done", "\n".join(filter(None, map(_text, outputs))))


def end_of_error(error: Exception) -> ActionEnd:
    """How an action ended whose tool raised `error`. An interrupt gives it up; it begins anew when it is answered."""
    if isinstance(error, ParentCommand):
        return end_of(error.args[0])
    if isinstance(error, GraphBubbleUp):
        return ActionEnd("abandoned", resolution="interrupted")
    return ActionEnd("failed", error=f"{type(error).__name__}: {error}")


def output_of(action: Action, whole: str | None) -> Output | list[Output]:
    """What to give for a call whose action is known already. `whole` is its result where that is an output."""
    result = action.result if whole is None else _read(action.result, whole)
    if isinstance(result, dict) and result.keys() == {_OUTPUTS}:
        outputs = [_from_json(each) for each in result[_OUTPUTS]]
        return outputs[0] if len(outputs) == 1 else outputs
    if not _is_content(result):
        result = text_of(action) if whole is None else whole
    marks = {_DOUBT: True} if action.status == "unknown" else {}
    return ToolMessage(result, tool_call_id=action.call_id or "", name=action.tool, additional_kwargs=marks)


def results_among(messages: Iterable[BaseMessage], actions: Iterable[Action]) -> Iterator[tuple[Action, ToolMessage]]:
    """The results of these actions that are among the messages: a thread may know what the records do not."""
    wanted = {action.call_id: action for action in actions if action.call_id is not None}
    made: dict[str, ToolCall] = {}
    for message in messages if wanted else ():
        if isinstance(message, AIMessage):
            made.update({call["id"] or "": call for call in message.tool_calls})
        if not isinstance(message, ToolMessage) or _DOUBT in message.additional_kwargs:
            continue
        action, call = wanted.get(message.tool_call_id), made.get(message.tool_call_id)
        if action and call and (call["name"], call["args"]) == (action.tool, action.args):
            del wanted[message.tool_call_id]
            yield action, message


def text_of(action: Action) -> str:
    """What came of an action, for the model; a long result in short, with the reference to the whole."""
    if action.status in ("open", "unknown"):
        return (
            f"outcome unknown: this call was begun before, at {action.started_at} under the key {action.key}, and"
            " nobody knows what came of it. It was not run again; find out before repeating it"
        )
    known = ", ".join(part for part in (action.status, action.resolution, action.error) if part)
    result = _text(_from_kept(action.result))
    if action.result_ref is not None:
        result += f" [whole: {action.result_ref}]"
    if action.status == "done" and result:
        return result
    return f"{known}: {result}" if result else known


# -- inside


def _text(value: Any) -> str:
    """The text of a tool's result in whatever form."""
    if isinstance(value, BaseMessage):
        return str(value.text)
    if isinstance(value, Command):
        update = value.update if isinstance(value.update, Mapping) else {}
        return "\n".join(each.text for each in update.get("messages", ()) if isinstance(each, ToolMessage))
    if isinstance(value, list) and value and all(isinstance(each, ToolMessage | Command) for each in value):
        return "\n".join(filter(None, map(_text, value)))
    if value is None or isinstance(value, str):
        return value or ""
    return ToolMessage(value, tool_call_id="").text if _is_content(value) else json.dumps(value, ensure_ascii=False)


def _is_content(value: Any) -> bool:
    """Whether a message may have this as its content."""
    if not isinstance(value, list):
        return isinstance(value, str)
    return all(isinstance(block, str) or (isinstance(block, dict) and "type" in block) for block in value)


def _read(short: Any, whole: str) -> Any:
    """A result that was stored whole: text as it is, anything else as JSON."""
    is_text = isinstance(short, str) and not whole.startswith(f'{{"{_OUTPUTS}":')
    return whole if is_text else json.loads(whole)


def _from_kept(result: Any) -> Any:
    if isinstance(result, dict) and result.keys() == {_OUTPUTS}:
        return [_from_json(each) for each in result[_OUTPUTS]]
    return result


def _as_json(value: Any) -> Any:
    """Messages and commands as objects of one key, the rest as it is. Raises TypeError for what JSON does not have."""
    if isinstance(value, BaseMessage):
        kept = message_to_dict(value)
        return {_MESSAGE: {**kept, "data": {key: _as_json(item) for key, item in kept["data"].items() if item}}}
    if isinstance(value, Command):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        return {_COMMAND: {key: _as_json(item) for key, item in given.items() if item}}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise TypeError(f"{type(value).__name__} is not JSON")


def _from_json(value: Any) -> Any:
    """The reverse of `_as_json`; tuples come back as lists."""
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    restored = {key: _from_json(item) for key, item in value.items()}
    if value.keys() == {_MESSAGE}:
        data = {"content": "", **restored[_MESSAGE]["data"]}
        return messages_from_dict([{"type": value[_MESSAGE]["type"], "data": data}])[0]
    if value.keys() == {_COMMAND}:
        return Command(**restored[_COMMAND])
    return restored
