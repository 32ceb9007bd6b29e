"""LangChain messages and what becomes of them: a model's input, and turns to record. Pure functions, no I/O.

A model's input is built anew for every call from the graph's messages, which are never changed:

    as given -> common types -> calls paired with results -> runs of one role joined -> briefing in front

It suits every provider and strict chat templates: at most one system message, and it leads; then the user;
then user and assistant in turns, where an assistant's calls are each followed by exactly one result, in the
order of the calls. Building it from its own result changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, TypedDict, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)
from polign_recall.records import Call, Role

from .pairing import CALL_BLOCKS, RAW_CALLS, Outcomes, is_made_up, made_up, paired

Content: TypeAlias = str | list[str | dict[str, Any]]

NO_REPLY: Final = "(no reply was recorded here)"
NO_USER: Final = "(no message from the user came before this)"
NO_TEXT: Final = "(empty message)"

_ROLES: Final[dict[str, Role]] = {"human": "user", "ai": "assistant", "tool": "tool", "function": "tool"}
_CHAT_TYPES: Final[dict[str, type[BaseMessage]]] = {
    "assistant": AIMessage,
    "ai": AIMessage,
    "model": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}
# Only the provider that wrote them can read these: signatures and sealed reasoning.
_SEALED_BLOCKS: Final = frozenset({"redacted_thinking", "function_call_signature"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_SEALED_KEYS: Final = frozenset({"signature", "thought_signature", "encrypted_content"})
_CUT_OFF: Final = "cut_off"
_PLAIN_TEXT: Final = {"type", "text", "id", "index"}


class TurnFields(TypedDict):
    """What `ResumedAgent.prepare_turn` takes, from one message."""

    role: Role
    content: str | list[dict[str, Any]]
    name: str | None
    message_id: str | None
    calls: list[Call]
    call_id: str | None
    status: str | None


def model_input(
    messages: Sequence[BaseMessage], briefing: str = "", outcomes: Outcomes | None = None
) -> list[BaseMessage]:
    """The input of a model call: `messages`, well formed, with `briefing` in front of the first user message.

    `outcomes` tell what came of calls whose results are not among the messages.

    Never empty; the given messages are not changed.
    """
    if is_well_formed(messages):  # as nearly all are: a long history is looked through at every step
        return _with_briefing(list(messages), briefing)
    return _with_briefing(repaired(messages, briefing, outcomes), briefing)


def turn_fields(message: BaseMessage) -> TurnFields | None:
    """The message as a turn; None for one that is not recorded (system, removal, a summary, made up for the model)."""
    plain = _plain(message)
    if plain is None or plain.type not in _ROLES or is_made_up(plain) or _is_summary(plain):
        return None
    result = plain if isinstance(plain, ToolMessage) else None
    failed = result is not None and result.status == "error"
    return TurnFields(
        role=_ROLES[plain.type],
        content=_recorded_content(plain),
        name=plain.name,
        message_id=plain.id,
        calls=_recorded_calls(plain) if isinstance(plain, AIMessage) else [],
        call_id=result.tool_call_id if result else None,
        status=_CUT_OFF if _CUT_OFF in plain.additional_kwargs else "error" if failed else None,
    )


def cut_off(text: str, message_id: str | None) -> AIMessage:
    """A reply of which only this much was said before its run ended; recorded with the status "cut_off"."""
    return AIMessage(text, id=message_id, additional_kwargs={_CUT_OFF: True})


def without_briefing(message: BaseMessage, briefing: str) -> BaseMessage:
    """The message without a briefing that `model_input` put in front: a briefing is never recorded."""
    if not (briefing and isinstance(message, HumanMessage) and _begins_with(message.content, briefing)):
        return message
    content = message.content
    rest = content[len(briefing) :].removeprefix("\n\n") if isinstance(content, str) else content[1:]
    return message.model_copy(update={"content": rest})


# -- the model's input


def is_well_formed(messages: Sequence[BaseMessage]) -> bool:
    """Whether `repaired` would change nothing. May say no where yes is true, never the other way round."""
    if not messages or not isinstance(messages[0].content, str):
        return False
    talk = messages[1:] if messages[0].type == "system" and messages[0].content else messages
    expected = "human"
    waiting: list[str | None] = []  # calls of the last reply that have no result yet, the last one first
    ids: set[str | None] = {None, ""}
    for message in talk:
        content, kind = message.content, message.type
        if not isinstance(content, str):
            return False
        if waiting:
            if kind != "tool" or cast(ToolMessage, message).tool_call_id != waiting.pop():
                return False
            continue
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        if kind != expected or not (content or calls) or _has_unread_calls(message):
            return False
        if calls:
            known = len(ids)
            waiting = [call["id"] for call in reversed(calls)]
            ids.update(waiting)
            if len(ids) != known + len(calls):
                return False
        expected = "ai" if calls or expected == "human" else "human"
    return bool(talk) and not waiting


def _has_unread_calls(message: BaseMessage) -> bool:
    if not isinstance(message, AIMessage):
        return False
    if message.tool_calls or not message.additional_kwargs:
        return bool(message.invalid_tool_calls)
    return bool(message.invalid_tool_calls or RAW_CALLS & message.additional_kwargs.keys())


def repaired(
    messages: Sequence[BaseMessage], stand_in: str = "", outcomes: Outcomes | None = None
) -> list[BaseMessage]:
    """The messages, well formed. `stand_in` is the user message in front where there is none."""
    plain = [message for given in messages if (message := _plain(given)) is not None]
    system = [message for message in plain if isinstance(message, SystemMessage) and _blocks(message.content)]
    talk = _alternating(paired([message for message in plain if not isinstance(message, SystemMessage)], outcomes))
    if not (talk and isinstance(talk[0], HumanMessage)):
        talk.insert(0, made_up(HumanMessage, stand_in or NO_USER, talk[0] if talk else None))
    return [*_alternating(system), *talk]


def _plain(message: BaseMessage) -> BaseMessage | None:
    """The message as one of the common types; None for an instruction to LangGraph, which is no message."""
    if isinstance(message, RemoveMessage):
        return None
    if isinstance(message, BaseMessageChunk):
        message = message_chunk_to_message(message)
    if isinstance(message, ChatMessage):
        kind = _CHAT_TYPES.get(message.role.lower(), HumanMessage)
        return kind(content=message.content, id=message.id, name=message.name)
    return message


def _alternating(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Runs of one role joined; where a user message follows results, a reply is put between; none empty."""
    result: list[BaseMessage] = []
    for message in messages:
        last = result[-1] if result else None
        if last is not None and last.type == message.type != "tool":
            result[-1] = _joined(last, message)
            continue
        if isinstance(last, ToolMessage) and isinstance(message, HumanMessage):
            result.append(made_up(AIMessage, NO_REPLY, message))
        result.append(message)
    return [_with_text(message) for message in result]


def _with_text(message: BaseMessage) -> BaseMessage:
    """The message with something in it: most providers refuse a history with an empty one, or one of thoughts alone."""
    blocks = _blocks(message.content)
    if not all(map(_is_thought, blocks)) or (isinstance(message, AIMessage) and message.tool_calls):
        return message
    stand_in = {"ai": NO_REPLY, "human": NO_TEXT}.get(message.type)
    return message.model_copy(update={"content": _sum(blocks or "", stand_in)}) if stand_in else message


def _is_thought(block: str | dict[str, Any]) -> bool:
    return isinstance(block, dict) and block.get("type") in _THOUGHTS


def _with_briefing(messages: list[BaseMessage], briefing: str) -> list[BaseMessage]:
    """The messages with the briefing in front of the first user message's content, unless it is there already."""
    at = 1 if isinstance(messages[0], SystemMessage) else 0
    if briefing and not _begins_with(messages[at].content, briefing):
        content = _sum(briefing, messages[at].content)
        messages[at] = messages[at].model_copy(update={"content": content})
    return messages


def _joined(first: BaseMessage, second: BaseMessage) -> BaseMessage:
    """Two messages of one role as one; made up only when both are."""
    base = second if is_made_up(first) else first
    update: dict[str, Any] = {
        "content": _sum(first.content, second.content),
        "name": first.name if first.name == second.name else None,
    }
    if isinstance(first, AIMessage) and isinstance(second, AIMessage):
        update |= {
            "tool_calls": [*first.tool_calls, *second.tool_calls],
            "additional_kwargs": {**first.additional_kwargs, **second.additional_kwargs},
            "response_metadata": {**first.response_metadata, **second.response_metadata},
        }
    return base.model_copy(update=update)


def _sum(first: Any, second: Any) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(part for part in (first, second) if part)
    return [*_blocks(first), *_blocks(second)]


def _blocks(content: Any) -> list[str | dict[str, Any]]:
    """The content as blocks, without texts that are empty."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block for block in blocks if block not in ("", {"type": "text", "text": ""})]


def _begins_with(content: Any, briefing: str) -> bool:
    if isinstance(content, str):
        return content.startswith(briefing)
    return bool(content) and content[0] == {"type": "text", "text": briefing}


# -- turns


def _is_summary(message: BaseMessage) -> bool:
    """Whether LangChain's SummarizationMiddleware made it of messages that are recorded themselves."""
    return message.additional_kwargs.get("lc_source") == "summarization"


def _recorded_calls(message: AIMessage) -> list[Call]:
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    return [Call(id=call["id"] or "", name=call["name"] or "", args=call["args"]) for call in calls]


def _recorded_content(message: BaseMessage) -> str | list[dict[str, Any]]:
    """The content without what the calls say and what only its provider can read; as text if that is all."""
    if isinstance(message.content, str):
        return message.content or cast(str, message.additional_kwargs.get("refusal") or "")
    kept = [block for given in _blocks(message.content) if (block := _readable(given)) is not None]
    if isinstance(message, AIMessage) and all(block.keys() <= _PLAIN_TEXT for block in kept):
        return "".join(block.get("text", "") for block in kept)
    return kept


def _readable(block: str | dict[str, Any]) -> dict[str, Any] | None:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if block.get("type") in CALL_BLOCKS or block.get("type") in _SEALED_BLOCKS:
        return None
    return {key: value for key, value in block.items() if key not in _SEALED_KEYS}
