"""An agent whose model thinks until it is told to go on: it says "thinking" and waits for a line.

python slow_agent.py DIRECTORY NAME MODE, where MODE is sync or async. Its one tool adds NAME to DIRECTORY/effects; it
ends with the status 3 when the agent was taken over.
"""

import asyncio
import sys
import warnings
from pathlib import Path

from langchain_core.tools import tool
from polign_recall import LeaseLost
from recall_langgraph import RecallResume
from scripted_chat import ScriptedChat

warnings.filterwarnings("ignore", "create_react_agent has been moved")
from running import GO, agent_for  # noqa: E402  after the filter: it imports create_react_agent

directory, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


@tool
def act() -> str:
    """Act on the world."""
    with (directory / "effects").open("a") as effects:
        effects.write(f"{name}\n")
    return "acted"


def thinking(messages):
    if len(model.inputs) == 1:
        print("thinking", flush=True)
        sys.stdin.readline()


model = ScriptedChat(script=[[("act", {}), ("act", {})], "Done."], thinking=thinking)


async def main():
    async with RecallResume("agent", local_dir=directory / "records", takeover=True, holder=name) as resume:
        graph = agent_for(resume, model, [act])
        await (graph.ainvoke(GO) if mode == "async" else asyncio.to_thread(graph.invoke, GO))


try:
    asyncio.run(main())
except LeaseLost as lost:
    print(f"lost to {lost.by}", flush=True)
    sys.exit(3)
