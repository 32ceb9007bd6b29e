"""A small server on 127.0.0.1 that speaks OpenAI's Chat Completions protocol for a scripted model.

Only the part that LangChain's `ChatOpenAI` uses is here: `POST /v1/chat/completions`, answered whole or as a
stream of server-sent events, with tool calls and usage numbers. The model is a function from the request to a
`Reply`; it is given nothing but the request.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """A tool the model wants run: its name and its arguments."""

    name: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the model answers: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


Model = Callable[[dict[str, Any]], Reply]
"""Decides on the reply to one request, from the request's JSON alone."""


@dataclass(frozen=True)
class Exchange:
    """One request and what the model decided."""

    request: dict[str, Any]
    reply: Reply


@dataclass
class ScriptedOpenAI:
    """Serves `model` while the `with` block runs.

    `thinking` is how long the model takes to answer, in seconds. `exchanges` grows by one with each request,
    when the model has decided and before its answer is sent.
    """

    model: Model
    thinking: float = 0.0
    exchanges: list[Exchange] = field(default_factory=list)

    def __enter__(self) -> "ScriptedOpenAI":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The base URL to give to a client (`OPENAI_BASE_URL`)."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def answer(self, request: dict[str, Any]) -> Reply:
        """Lets the model decide, and keeps the exchange."""
        reply = self.model(request)
        self.exchanges.append(Exchange(request, reply))
        time.sleep(self.thinking)
        return reply


def completion(request: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The reply as a whole `chat.completion` object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = _tool_calls(reply)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
    return {**_head(request, "chat.completion"), "choices": [choice], "usage": _usage(request, reply)}


def chunks(request: dict[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    """The reply as the `chat.completion.chunk` objects of a stream."""
    head = _head(request, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(_tool_calls(reply)):
        arguments = call["function"]["arguments"]
        opening = {**call, "function": {**call["function"], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **opening}]})
        for piece in _pieces(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish_reason(reply))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(request, reply)}


def _head(request: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": request.get("model", "scripted"),
    }


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.args)},
        }
        for call in reply.calls
    ]


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(request: dict[str, Any], reply: Reply) -> dict[str, int]:
    """Token numbers at four characters a token, the usual rule of thumb for English."""
    prompt = len(json.dumps([request.get("messages"), request.get("tools")])) // 4
    answered = (len(reply.text) + sum(len(json.dumps(call.args)) for call in reply.calls)) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": answered, "total_tokens": prompt + answered}


def _pieces(text: str, size: int = 40) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _handler_of(owner: ScriptedOpenAI) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path != "/v1/chat/completions":
                return self._fail(404, f"no such endpoint: {self.path}")
            try:
                request = json.loads(body)
                reply = owner.answer(request)
            except (ValueError, KeyError, TypeError) as error:
                return self._fail(400, f"the request is not understood: {error!r}")
            try:
                self._stream(request, reply) if request.get("stream") else self._whole(request, reply)
            except ConnectionError:
                self.close_connection = True  # the client was killed while it waited

        def _whole(self, request: dict[str, Any], reply: Reply) -> None:
            self._json(200, completion(request, reply))

        def _stream(self, request: dict[str, Any], reply: Reply) -> None:
            self.close_connection = True  # the end of the stream is the end of the connection
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for chunk in chunks(request, reply):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _fail(self, status: int, message: str) -> None:
            self._json(status, {"error": {"message": message, "type": "invalid_request_error", "code": None}})

        def _json(self, status: int, answer: dict[str, Any]) -> None:
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the demo prints what matters."""

    return Handler
