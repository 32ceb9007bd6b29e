"""Lives of an agent, each in a process forked from this one, which has imported everything: `python killed_agent.py`.

Reads a life from each line of its input (see `Life`, as JSON) and answers with a line: finished, killed or failed.
"""

import asyncio
import json
import os
import re
import signal
import sys
import traceback
import urllib.request
import uuid
import warnings
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import before_model
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolArg
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from polign_recall import ActionEnd
from recall_langgraph import RecallMiddleware, RecallResume
from scripted_chat import ScriptedChat

warnings.filterwarnings("ignore", "create_react_agent has been moved")
from langgraph.prebuilt import create_react_agent  # noqa: E402  after the filter

STEPS = (1, 2, 3)
LONGEST = 60
"""Seconds in which a life that nobody ends must be over."""
THREAD = {"configurable": {"thread_id": "1"}, "recursion_limit": 100}
CLASSES = {"look": "pure", "order": "idempotent", "send": "external", "charge": "external"}
UNKNOWN = re.compile(r"Actions that were begun; nobody knows.*:\n((?:  - .*\n)+)")
Key = Annotated[str, InjectedToolArg]


@dataclass
class Life:
    """How one life goes: where the run's records are, which world it acts on, how it runs, when it ends."""

    directory: str
    world: str
    restored: bool = False
    """With a checkpointer, and the thread of the life before."""
    asynchronous: bool = False
    middleware: bool = False
    """With create_agent and its middleware, not with create_react_agent and hooks."""
    seconds: float = LONGEST
    """Killed after so many, wherever it is."""
    call: int = 0
    """Killed at this call of a tool, counted from one..."""
    where: str = ""
    """...before its effect, after it ("effect"), when it "returned", or when that is "recorded"."""


def die():
    os.kill(os.getpid(), signal.SIGKILL)


# -- the model's mind


def decide(messages):
    """The next calls, by the messages alone. Does not repeat what could have happened; gives that up instead."""
    text = "\n".join(message.text for message in messages)
    over = {(tool, n) for n in STEPS for tool in CLASSES if f"{tool} {n}: done" in text}
    over |= {match for lines in UNKNOWN.findall(text) for match in named(lines)}
    calls = {call["id"]: call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}
    for message in messages:
        if isinstance(message, ToolMessage) and message.text.startswith("outcome unknown: this call was begun before"):
            call = calls[message.tool_call_id]
            over.add((call["name"], call["args"]["n"]))
    for n in STEPS:
        for group in (["look"], ["order", "send"], ["charge"]):
            if left := [(tool, {"n": n}) for tool in group if (tool, n) not in over]:
                return left
    return "All done."


def named(lines):
    return [(tool, int(n)) for tool, n in re.findall(r'  - (\w+)\(\{"n":(\d)\}\)', lines)]


class DecidingChat(ScriptedChat):
    def _next(self, messages):
        reply = self._reply(0, decide(messages))
        for call in reply.tool_calls:
            call["id"] = f"call-{uuid.uuid4().hex}"  # a number would come again in the next process
        return reply


# -- its tools


class Tools:
    def __init__(self, life):
        self.life = life
        self.called = 0
        self.mails = Path(life.directory, "mails")
        self.mails.mkdir(exist_ok=True)

    def reaches(self, where):
        if self.called == self.life.call and where == self.life.where:
            die()

    def ask(self, method, what, n, key=""):
        request = urllib.request.Request(
            f"{self.life.world}/{what}/{n}", headers={"Idempotency-Key": key}, method=method
        )
        with urllib.request.urlopen(request, timeout=LONGEST) as answer:
            answer.read()

    def mail(self, n, key):
        draft = self.mails / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps([n, key]))
        draft.rename(draft.with_name(draft.name[1:]))

    def act(self, name, n, effect):
        self.called += 1
        self.reaches("before")
        effect()
        self.reaches("effect")
        return f"{name} {n}: done"

    def made(self):
        def look(n: int) -> str:
            """Look."""
            return self.act("look", n, lambda: self.ask("GET", "looks", n))

        def order(n: int, idempotency_key: Key) -> str:
            """Order."""
            return self.act("order", n, lambda: self.ask("POST", "orders", n, idempotency_key))

        def send(n: int, idempotency_key: Key) -> str:
            """Send."""
            return self.act("send", n, lambda: self.mail(n, idempotency_key))

        def charge(n: int, idempotency_key: Key) -> str:
            """Charge."""
            return self.act("charge", n, lambda: self.ask("POST", "charges", n, idempotency_key))

        return [look, order, send, charge]

    def sent(self, action):
        """What came of a mail."""
        keys = [json.loads(mail.read_text())[1] for mail in self.mails.glob("[!.]*")]
        n = action.args["n"]
        return ActionEnd("done", f"send {n}: done") if action.key in keys else ActionEnd("failed", error="not sent")


# -- a life


def graph_for(life, resume, saver):
    tools = Tools(life)

    def returned():
        tools.reaches("returned")
        if life.where == "recorded":
            resume.agent.flush()
            tools.reaches("recorded")

    model = DecidingChat(script=[])
    if life.middleware:
        between = before_model(lambda state, runtime: returned())
        middleware = [between, RecallMiddleware(resume, classes=CLASSES)]
        return create_agent(model, tools.made(), middleware=middleware, checkpointer=saver)

    def between(state):
        returned()
        return resume.pre_model_hook.invoke(state)

    return create_react_agent(
        model,
        resume.durable(tools.made(), classes=CLASSES),
        pre_model_hook=RunnableLambda(between),
        post_model_hook=resume.post_model_hook,
        checkpointer=saver,
    )


def opened(life):
    return RecallResume("agent", local_dir=Path(life.directory, "records"), resolvers={"send": Tools(life).sent})


def run(life):
    with ExitStack() as stack:
        saver = stack.enter_context(SqliteSaver.from_conn_string(threads(life))) if life.restored else None
        graph = graph_for(life, stack.enter_context(opened(life)), saver)
        going = saver is not None and graph.get_state(THREAD).next
        graph.invoke(None if going else {"messages": [("user", "Go.")]}, THREAD)


async def arun(life):
    async with AsyncExitStack() as stack:
        entered = stack.enter_async_context
        saver = await entered(AsyncSqliteSaver.from_conn_string(threads(life))) if life.restored else None
        graph = graph_for(life, await entered(opened(life)), saver)
        going = saver is not None and (await graph.aget_state(THREAD)).next
        await graph.ainvoke(None if going else {"messages": [("user", "Go.")]}, THREAD)


def threads(life):
    return str(Path(life.directory, "threads.db"))


def live(life: Life) -> str:
    """Fork, let the child live, and kill it when it is time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            asyncio.run(arun(life)) if life.asynchronous else run(life)
            status = 0
        except BaseException:  # noqa: BLE001 - told to whoever waits
            traceback.print_exc()
        finally:
            os._exit(status)
    if signal.sigtimedwait({signal.SIGCHLD}, life.seconds) is None:
        os.kill(child, signal.SIGKILL)
        if life.seconds == LONGEST:
            return "failed"
    _, status = os.waitpid(child, 0)
    signal.sigtimedwait({signal.SIGCHLD}, 0)
    return {0: "finished", -signal.SIGKILL: "killed"}.get(os.waitstatus_to_exitcode(status), "failed")


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        given: dict[str, Any] = json.loads(line)
        print(live(Life(**given)), flush=True)


if __name__ == "__main__":
    main()
