"""A chat model that plays a script: the only double in these tests."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field


class ScriptedChat(BaseChatModel):
    """Answers each call with the next part of `script`: a text, or names of tools with their arguments.

    Keeps the inputs that it was sent in `inputs`. `thinking` is called while it thinks, with the input.
    """

    script: list[Any]
    inputs: list[list[BaseMessage]] = Field(default_factory=list)
    thinking: Callable[[list[BaseMessage]], None] = lambda messages: None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "ScriptedChat":
        return self

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        number = len(self.inputs)
        self.inputs.append(messages)
        self.thinking(messages)
        return self._reply(number, self.script[number])

    def _reply(self, number: int, part: Any) -> AIMessage:
        if isinstance(part, str):
            return AIMessage(part)
        calls = [
            {"id": f"call-{number}-{index}-{uuid4().hex[:8]}", "name": name, "args": args}
            for index, (name, args) in enumerate(part)
        ]
        return AIMessage("", tool_calls=calls)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        reply = self._next(messages)
        for word in reply.content.split(" ") if reply.content else []:
            yield ChatGenerationChunk(message=AIMessageChunk(word + " "))
        chunks = [
            {"id": call["id"], "name": call["name"], "args": json.dumps(call["args"]), "index": index}
            for index, call in enumerate(reply.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=chunks, chunk_position="last"))


class AnsweringChat(ScriptedChat):
    """Answers each input with what `answer` gives for it, a part of a script: for conversations that run at once."""

    script: list[Any] = Field(default_factory=list)
    answer: Callable[[list[BaseMessage]], Any]

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.inputs.append(messages)
        number = len(self.inputs)
        self.thinking(messages)
        return self._reply(number, self.answer(messages))
