"""An agent that kills its own process with SIGKILL: in its tool, or while its model thinks.

python dying_agent.py DIRECTORY WHERE MODE, where WHERE is tool, first-model, second-model, or sibling: then a second
tool of the same reply dies, once the first has acted.
"""

import asyncio
import os
import signal
import sys
import threading
import warnings
from pathlib import Path

from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from recall_langgraph import RecallResume
from scripted_chat import ScriptedChat

warnings.filterwarnings("ignore", "create_react_agent has been moved")
from running import GO, agent_for  # noqa: E402  after the filter: it imports create_react_agent

directory, where, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
THREAD = {"configurable": {"thread_id": "1"}}
acted = threading.Event()


def die(here):
    if here == where:
        os.kill(os.getpid(), signal.SIGKILL)


@tool
def act() -> str:
    """Act."""
    die("tool")
    acted.set()
    return "acted"


@tool
def crash() -> str:
    """Die after the other tool has acted."""
    assert acted.wait(timeout=60)
    die("sibling")
    return "survived"


asked = []
calls = [("act", {}), ("crash", {})] if where == "sibling" else [("act", {})]


def thinking(messages):
    asked.append(messages)
    die("first-model" if len(asked) == 1 else "second-model")


model = ScriptedChat(script=[calls, "Done."], thinking=thinking)


def run():
    with (
        SqliteSaver.from_conn_string(str(directory / "threads.db")) as saver,
        RecallResume("agent", local_dir=directory / "records") as resume,
    ):
        graph = agent_for(resume, model, [act, crash], checkpointer=saver)
        graph.invoke(GO, THREAD, durability="sync")


async def arun():
    async with (
        AsyncSqliteSaver.from_conn_string(str(directory / "threads.db")) as saver,
        RecallResume("agent", local_dir=directory / "records") as resume,
    ):
        graph = agent_for(resume, model, [act, crash], checkpointer=saver)
        await graph.ainvoke(GO, THREAD, durability="sync")


if mode == "sync":
    run()
else:
    asyncio.run(arun())
