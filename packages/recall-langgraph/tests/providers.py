"""What the providers' own converters make of a model's input, held to what each provider asks of a request."""

import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from histories import check_strict
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage
from langchain_google_genai.chat_models import _parse_chat_history
from langchain_openai import ChatOpenAI


def check_input(messages: Sequence[BaseMessage]) -> None:
    """The input suits strict chat templates and every provider's converter."""
    check_strict(messages)
    for check in (check_openai_chat, check_openai_responses, check_anthropic, check_google):
        check(messages)


def check_inputs(*models):
    """What these models were sent suits strict templates and every provider; each was asked all of its script."""
    for model in models:
        assert len(model.inputs) == len(model.script)
        for messages in model.inputs:
            check_input(messages)


def check_openai_chat(messages: Sequence[BaseMessage]) -> None:
    """Chat Completions: every call answered by one tool message right behind its reply, no message empty."""
    sent = _openai(responses=False)._get_request_payload(messages)["messages"]
    while sent:
        message = sent.pop(0)
        assert message["role"] in ("system", "user", "assistant")
        assert message["content"] or message.get("tool_calls")
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            answer = sent.pop(0)
            assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])


def check_openai_responses(messages: Sequence[BaseMessage]) -> None:
    """Responses: the outputs of a run of calls follow it; reasoning is followed by what came of it."""
    sent = _openai(responses=True)._get_request_payload(messages)["input"]
    calls = [item["call_id"] for item in sent if item.get("type") == "function_call"]
    results = [item["call_id"] for item in sent if item.get("type") == "function_call_output"]
    assert results == calls
    assert len(set(calls)) == len(calls)
    waiting: list[str] = []
    for item, following in zip(sent, [*sent[1:], {}], strict=True):
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            assert item["call_id"] in waiting
            waiting.remove(item["call_id"])
        else:
            assert item.get("role") == "assistant" or not waiting, "a call is not answered before the talk goes on"
        if item.get("type") == "reasoning":
            assert following.get("type") == "function_call" or following.get("role") == "assistant"
    assert not waiting


def check_anthropic(messages: Sequence[BaseMessage]) -> None:
    """Messages: roles in turns, the user first, a reply's results open the next message, no message empty."""
    sent = _anthropic()._get_request_payload(messages)["messages"]
    assert sent[0]["role"] == "user"
    assert all(one["role"] != other["role"] for one, other in pairwise(sent))
    seen: list[str] = []
    for message, following in zip(sent, [*sent[1:], None], strict=True):
        assert message["content"]
        calls = _anthropic_ids(message, "tool_use", "id")
        seen += calls
        if calls:
            opening = following["content"][: len(calls)]
            assert [block["tool_use_id"] for block in opening] == calls
        if following:
            assert _anthropic_ids(following, "tool_result", "tool_use_id") == calls
    assert len(set(seen)) == len(seen)


def check_google(messages: Sequence[BaseMessage]) -> None:
    """Gemini: the user first, no content empty, as many responses as calls, right behind them."""
    _, sent = _parse_chat_history(list(messages), model="gemini-2.5-flash")
    assert sent[0].role == "user"
    for content, following in zip(sent, [*sent[1:], None], strict=True):
        assert content.parts
        calls = [part.function_call.name for part in content.parts if part.function_call]
        answers = [part.function_response for part in following.parts if part.function_response] if following else []
        assert [answer.name for answer in answers] == calls


def _anthropic_ids(message: dict[str, Any], kind: str, key: str) -> list[str]:
    content = message["content"]
    return [block[key] for block in content if block["type"] == kind] if isinstance(content, list) else []


@cache
def _openai(responses: bool) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4.1", api_key="unused", use_responses_api=responses)


@cache
def _anthropic() -> ChatAnthropic:
    return ChatAnthropic(model="claude-sonnet-4-5", api_key="unused")
