"""What the tests run agents with: every way to call a graph, a store that is watched, and records read back."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from polign_recall import Client
from polign_recall.stores import DirectoryStore

MODES = ("invoke", "ainvoke", "stream", "astream")
GO = {"messages": [("user", "Go.")]}


async def play(mode: str, graph: Any, given: Any, config: Any = None) -> dict[str, Any]:
    """Run a graph to its end in one of the four ways; gives its last state."""
    if mode == "invoke":
        return await asyncio.to_thread(graph.invoke, given, config)
    if mode == "ainvoke":
        return await graph.ainvoke(given, config)
    if mode == "stream":
        return (await asyncio.to_thread(lambda: list(graph.stream(given, config, stream_mode="values"))))[-1]
    return [state async for state in graph.astream(given, config, stream_mode="values")][-1]


@tool
def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("broken")


def agent_for(resume, model, tools=(look,), **more):
    """The real create_react_agent with the hooks of `resume`."""
    hooks = {"pre_model_hook": resume.pre_model_hook, "post_model_hook": resume.post_model_hook}
    return create_react_agent(model, tools, **hooks, **more)


def recorded(directory, agent_id="agent"):
    """All turns of an agent, read without its lease."""
    with Client(local_dir=directory) as client, client.resume(agent_id, defer_lease=True) as agent:
        return list(agent.turns())


def thread(name="1"):
    """The config of a thread."""
    return {"configurable": {"thread_id": name}}


def check_records(directory, messages, agent_id="agent"):
    """The agent's turns are these messages: in this order, each once, without a gap."""
    turns = recorded(directory, agent_id)
    assert ids(turns) == ids(messages)
    assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
    assert [turn.content for turn in turns] == [message.text for message in messages]


def ids(turns):
    """The message ids of turns, or of messages."""
    return [getattr(turn, "message_id", None) or turn.id for turn in turns]


class WatchedStore:
    """A directory store that notes what is called, by which thread, and how many bytes it is to create each time.

    It calls `before_create` before it writes.
    """

    def __init__(self, path) -> None:
        self._store = DirectoryStore(str(path))
        self.threads: set[int] = set()
        self.calls: list[tuple[str, str]] = []
        self.created: list[int] = []
        self.before_create: Callable[[str], None] = lambda key: None

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.threads.add(threading.get_ident())
            self.calls.append((name, str(args[0]) if args else ""))
            if name == "create":
                self.before_create(args[0])
                self.created.append(len(args[1]))
            return value(*args, **kwargs)

        return call
