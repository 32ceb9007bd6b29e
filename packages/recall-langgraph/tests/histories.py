"""Broken and unusual histories, and what every model input must look like."""

from collections.abc import Sequence

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)


def user(text="hello", **more):
    return HumanMessage(text, **more)


def reply(text="", *call_ids, **more):
    calls = [{"id": call_id, "name": "look", "args": {"at": call_id}} for call_id in call_ids]
    return AIMessage(text, tool_calls=calls, **more)


def result(call_id, text="found", **more):
    return ToolMessage(text, tool_call_id=call_id, name="look", **more)


def invalid(call_id, name="look"):
    call = {"id": call_id, "name": name, "args": '{"at": ', "error": "no JSON", "type": "invalid_tool_call"}
    return AIMessage("", invalid_tool_calls=[call])


def anthropic_reply(*call_ids):
    """As langchain-anthropic gives it: the calls stand in the content as well."""
    blocks = [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in call_ids]
    thinking = {"type": "thinking", "thinking": "where is it?", "signature": "c2VhbGVk"}
    calls = [{"id": call_id, "name": "look", "args": {}} for call_id in call_ids]
    return AIMessage([thinking, {"type": "text", "text": "I look."}, *blocks], tool_calls=calls)


def responses_reply(*call_ids):
    """As langchain-openai gives it for the Responses API."""
    blocks = [
        {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": "look",
            "arguments": "{}",
        }
        for call_id in call_ids
    ]
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}
    calls = [{"id": call_id, "name": "look", "args": {}} for call_id in call_ids]
    return AIMessage([reasoning, {"type": "text", "text": "I look."}, *blocks], tool_calls=calls)


def thoughts():
    """As langchain-anthropic gives a reply that was cut off before it said anything."""
    return AIMessage([{"type": "thinking", "thinking": "where is it?", "signature": "c2VhbGVk"}])


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

HISTORIES: dict[str, list[BaseMessage]] = {
    "empty": [],
    "plain": [user(), reply("hi"), user("more")],
    "whole": [user(), reply("", "a"), result("a"), reply("done"), user()],
    "unanswered in the middle": [user(), reply("", "a"), user("go on"), reply("so?"), user("go on")],
    "unanswered at the end": [user(), reply("I look", "a")],
    "interrupted, then the user": [user(), reply("I look", "a"), user("carry on")],
    "duplicate result": [user(), reply("", "a"), result("a", "first"), result("a", "second"), reply("ok")],
    "late result": [user(), reply("", "a"), user("and?"), result("a"), reply("there")],
    "orphan result": [user(), result("gone", "left over"), reply("ok"), user()],
    "cut in the middle of a pair": [result("gone", "left over"), reply("ok"), user()],
    "parallel, partly answered": [user(), reply("", "a", "b", "c"), result("b"), user("well?")],
    "parallel, out of order": [user(), reply("", "a", "b"), result("b", "B"), result("a", "A"), reply("ok")],
    "ids counted from zero": [
        *[user("one"), reply("", "call_0"), result("call_0", "first"), reply("ok")],
        *[user("two"), reply("", "call_0"), result("call_0", "second"), reply("ok")],
    ],
    "the same id twice in a reply": [
        user(),
        reply("", "a", "a"),
        result("a", "x"),
        result("a", "y"),
        reply(),
    ],
    "no id": [user(), reply("", None), user("and?")],
    "result before its call": [user(), result("a"), reply("", "a"), user()],
    "list contents": [
        HumanMessage([{"type": "text", "text": "see"}, IMAGE]),
        reply("", "a"),
        ToolMessage([{"type": "text", "text": "a picture"}, IMAGE], tool_call_id="a"),
        AIMessage([{"type": "text", "text": "nice"}]),
        HumanMessage([{"type": "text", "text": "thanks"}]),
        user("bye"),
    ],
    "leading reply": [reply("welcome"), user(), reply("", "a"), result("a")],
    "only a reply": [reply("welcome")],
    "several system messages": [
        SystemMessage("one"),
        user(),
        SystemMessage([{"type": "text", "text": "two"}]),
        reply("ok"),
        SystemMessage("three"),
        user(),
    ],
    "only a system message": [SystemMessage("one")],
    "runs of one role": [
        user("a"),
        user("b"),
        reply("c"),
        reply("d", "x"),
        result("x"),
        reply("e"),
        reply("f"),
    ],
    "unreadable call": [user(), invalid("a"), user("again")],
    "unreadable call without a name": [user(), invalid("a", None), user("again")],
    "Anthropic's blocks": [user(), anthropic_reply("a", "b"), result("a"), user("and?")],
    "Anthropic's blocks, edited": [
        user(),
        anthropic_reply("a", "b").model_copy(update={"tool_calls": reply("", "a").tool_calls}),
        result("a"),
        reply("ok"),
    ],
    "Responses blocks": [user(), responses_reply("a", "b"), result("b"), user("and?")],
    "thoughts alone": [user(), thoughts(), user("and?"), anthropic_reply().model_copy(update={"content": []})],
    "ids counted from zero, in blocks": [
        *[user("one"), anthropic_reply("0"), result("0", "first"), reply("ok")],
        *[user("two"), anthropic_reply("0"), result("0", "second"), reply("ok")],
    ],
    "empty contents": [SystemMessage(""), user(""), reply(""), user(), reply([{"type": "text", "text": ""}])],
    "raw calls": [
        user(),
        AIMessage(
            "",
            additional_kwargs={
                "tool_calls": [
                    {"id": "r", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ]
            },
        ).model_copy(update={"tool_calls": []}),
        user(),
    ],
    "chat messages": [
        ChatMessage(role="system", content="s"),
        ChatMessage(role="user", content="u"),
        ChatMessage(role="assistant", content="a"),
        ChatMessage(role="critic", content="c"),
    ],
}


def check_strict(messages: Sequence[BaseMessage]) -> None:
    """What the strictest chat templates accept, and what every provider asks of calls and results."""
    talk = list(messages)
    assert talk, "empty: LangGraph would send everything instead"
    if talk[0].type == "system":
        talk.pop(0)
    seen: set[str] = set()
    expected = "human"
    while talk:
        message = talk.pop(0)
        assert message.type == expected, f"{message.type} where {expected} should be"
        assert message.text or message.content or getattr(message, "tool_calls", ()), "nothing in it"
        expected = "ai" if expected == "human" else "human"
        if message.type != "ai":
            continue
        assert not message.invalid_tool_calls
        ids = [call["id"] for call in message.tool_calls]
        assert all(ids), ids
        assert len(set(ids)) == len(ids), ids
        assert not seen & set(ids), ids
        seen |= set(ids)
        for call_id in ids:
            assert talk, f"{call_id} is not answered"
            answer = talk.pop(0)
            assert (answer.type, answer.tool_call_id) == ("tool", call_id)
        if ids:
            expected = "ai"


_ids = st.sampled_from(["a", "b", "a-2", "call-2", None])
_texts = st.sampled_from(["", "x", "two\n\nlines"])
_blocks = st.lists(
    st.sampled_from(
        [
            {"type": "text", "text": "t"},
            {"type": "tool_use", "id": "a", "name": "look", "input": {}},
            {"type": "function_call", "id": "fc", "call_id": "b", "name": "look", "arguments": "{}"},
            {"type": "thinking", "thinking": "hm", "signature": "s"},
        ]
    ),
    max_size=3,
)
_contents = _texts | st.lists(st.just({"type": "text", "text": "t"}), max_size=2)
_calls = st.lists(
    _ids.map(lambda call_id: {"id": call_id, "name": "look", "args": {}, "type": "tool_call"}), max_size=3
)
_unread = st.lists(
    _ids.map(lambda i: {"id": i, "name": "look", "args": "{", "error": None, "type": "invalid_tool_call"}),
    max_size=1,
)

histories = st.lists(
    st.one_of(
        _contents.map(HumanMessage),
        _contents.map(SystemMessage),
        st.builds(AIMessage, _texts | _blocks, tool_calls=_calls, invalid_tool_calls=_unread),
        st.builds(ToolMessage, _contents, tool_call_id=st.sampled_from(["a", "b", "a-2", "call-2", ""])),
    ),
    max_size=12,
)
