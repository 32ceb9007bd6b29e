"""Durable tools in real graphs: what is written down around a call, and what a call that comes again does."""

import asyncio
import threading
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, Tool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from polign_recall import Client, Invalid, LeaseLost
from recall_langgraph import RecallResume
from running import GO, MODES, WatchedStore, agent_for, play, recorded
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
THREAD = {"configurable": {"thread_id": "1"}}
Key = Annotated[str, InjectedToolArg]


@pytest.fixture
def resume(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        yield resume


def seen(directory):
    """The agent's open actions, and those that are over and not answered, as another process sees them."""
    with Client(local_dir=directory) as client, client.resume("agent", defer_lease=True) as agent:
        return agent.context.pending_actions, agent.ended_actions()


def call(name, args=None, call_id="c1"):
    return {"messages": [AIMessage("", tool_calls=[{"name": name, "args": args or {}, "id": call_id}])]}


def node(*tools, **options):
    """A graph that only runs tools."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, **options))
    graph.add_edge(START, "tools")
    return graph.compile(store=InMemoryStore())


def run(tools, name, args=None, call_id="c1", **options):
    """The messages that a tool's node adds."""
    return node(*tools, **options).invoke(call(name, args, call_id))["messages"][1:]


# -- what is refused


def test_a_tool_without_a_class_is_refused(resume):
    def a() -> str:
        """A."""

    def b() -> str:
        """B."""

    with pytest.raises(Invalid, match="without a class: a, b"):
        resume.durable([a, b], classes={"c": "pure"})
    with pytest.raises(Invalid, match="b: a tool is pure, idempotent or external, not 'reads'"):
        resume.durable([a, b], classes={"a": "pure", "b": "reads"})


def test_a_key_that_the_model_would_be_asked_for_is_refused(resume):
    def put(idempotency_key: str) -> str:
        """Put."""

    with pytest.raises(Invalid, match="put: its argument idempotency_key would be asked of the model"):
        resume.durable([put], classes={"put": "idempotent"})


def test_a_tool_that_is_durable_already_is_refused(resume):
    tools = resume.durable([text], classes={"text": "pure"})
    with pytest.raises(Invalid, match="text is durable already"):
        resume.durable(tools, classes={"text": "pure"})


# -- around a call


@every_mode
async def test_the_call_is_on_record_before_its_effect_and_its_end_after(mode, tmp_path):
    before = []

    def put(at: str, idempotency_key: Key) -> str:
        """Put."""
        turns = [(turn.role, [each.name for turn in [turn] for each in turn.calls]) for turn in recorded(tmp_path)]
        before.append((turns, seen(tmp_path)[0], idempotency_key))
        return f"put at {at}"

    model = ScriptedChat(script=[[("put", {"at": "x"})], "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        tools = resume.durable([put], classes={"put": "idempotent"})
        state = await play(mode, agent_for(resume, model, tools), GO)
        assert resume.open_actions() == []
    [(turns, [action], key)] = before
    assert turns == [("user", []), ("assistant", ["put"])]
    assert (action.tool, action.class_, action.args, action.key) == ("put", "idempotent", {"at": "x"}, key)
    assert action.call_id == state["messages"][1].tool_calls[0]["id"]
    assert state["messages"][2].content == "put at x"
    assert seen(tmp_path) == ([], [])


@pytest.mark.parametrize("mode", ["ainvoke", "astream"])
async def test_the_journal_does_not_block_the_event_loop(mode, tmp_path):
    def now(x: str) -> str:
        """Sync."""
        return x * 20_000

    async def later(x: str) -> str:
        """Async."""
        return x * 20_000

    store = WatchedStore(tmp_path)
    model = ScriptedChat(script=[[("now", {"x": "a b "}), ("later", {"x": "c d "})], "Done."])
    async with RecallResume("agent", store=store) as resume:
        tools = resume.durable([now, later], classes={"now": "external", "later": "pure"})
        await play(mode, agent_for(resume, model, tools), GO)
    assert threading.get_ident() not in store.threads
    assert any("outputs/" in key for _, key in store.calls)


def test_what_a_graph_injects_reaches_the_tool_and_not_the_journal(resume, tmp_path):
    got = {}

    @tool
    def act(
        x: int,
        state: Annotated[dict, InjectedState],
        store: Annotated[object, InjectedStore()],
        runtime: ToolRuntime,
        call: Annotated[str, InjectedToolCallId],
        idempotency_key: Key,
        y: int = 2,
    ) -> str:
        """Act."""
        got.update(state=state, store=store, runtime=runtime, call=call, key=idempotency_key)
        return f"{x + y}"

    [durable] = resume.durable([act], classes={"act": "external"})
    assert durable.tool_call_schema.model_json_schema() == act.tool_call_schema.model_json_schema()
    assert set(durable.args) == {"x", "y"}
    [message] = run([durable], "act", {"x": 1, "idempotency_key": "forged"})
    resume.agent.flush()
    [action] = seen(tmp_path)[1]
    assert message.content == "3"
    assert action.args == {"x": 1}
    assert (got["call"], got["key"], got["runtime"].tool_call_id) == ("c1", action.key, "c1")
    assert len(got["state"]["messages"]) == 1
    assert isinstance(got["store"], InMemoryStore)


# -- how it ends


def fail(idempotency_key: Key) -> str:
    """Fail."""
    raise ConnectionError(f"no route {idempotency_key}")


def test_an_error_closes_the_action_as_failed_and_is_raised(resume, tmp_path):
    tools = resume.durable([fail], classes={"fail": "external"})
    with pytest.raises(ConnectionError) as caught:
        run(tools, "fail")
    [], [action] = seen(tmp_path)
    assert (action.status, action.error) == ("failed", f"ConnectionError: no route {action.key}")
    [message] = run(tools, "fail", handle_tool_errors=True)
    assert (message.status, str(caught.value) in message.content) == ("error", True)  # the same key again


async def test_an_error_of_an_async_tool(resume, tmp_path):
    async def afail() -> str:
        """Fail."""
        raise ConnectionError("no route")

    [durable] = resume.durable([afail], classes={"afail": "external"})
    with pytest.raises(ConnectionError):
        await node(durable).ainvoke(call("afail"))
    assert [(each.status, each.error) for each in seen(tmp_path)[1]] == [("failed", "ConnectionError: no route")]


def test_an_error_that_the_tool_itself_makes_a_message_of_is_a_failure(resume, tmp_path):
    @tool
    def refuse(x: int) -> str:
        """Refuse."""
        raise ToolException("not today")

    refuse.handle_tool_error = True
    refuse.handle_validation_error = "give a number"
    tools = resume.durable([refuse], classes={"refuse": "external"})
    assert [(each.content, each.status) for each in run(tools, "refuse", {"x": 1})] == [("not today", "error")]
    assert [each.content for each in run(tools, "refuse", {"x": "one"}, "c2")] == ["give a number"]
    resume.agent.flush()
    assert [(each.status, each.error) for each in seen(tmp_path)[1]] == [
        ("failed", "not today"), ("failed", "give a number")
    ]  # fmt: skip


def test_an_interrupted_process_leaves_the_action_open(resume, tmp_path):
    def stop() -> str:
        """Stop."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(resume.durable([stop], classes={"stop": "external"}), "stop")
    [action], [] = seen(tmp_path)
    assert resume.open_actions()[0].key == action.key


async def test_a_cancelled_task_leaves_the_action_open(tmp_path):
    running = asyncio.Event()

    async def hang() -> str:
        """Hang."""
        running.set()
        await asyncio.Event().wait()

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        task = asyncio.ensure_future(node(*resume.durable([hang], classes={"hang": "external"})).ainvoke(call("hang")))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.tool for each in resume.open_actions()] == ["hang"]


async def test_a_task_cancelled_before_its_tool_ran_gives_the_action_up(tmp_path):
    store, writing, go_on = WatchedStore(tmp_path), threading.Event(), threading.Event()
    ran = []

    async def act() -> str:
        """Act."""
        ran.append(1)

    def hold(key):
        writing.set()
        assert go_on.wait(60)

    with RecallResume("agent", store=store) as resume:
        [durable] = resume.durable([act], classes={"act": "external"})
        store.before_create = hold
        task = asyncio.ensure_future(durable.ainvoke({}))
        assert await asyncio.to_thread(writing.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await asyncio.get_running_loop().shutdown_default_executor()
    assert (ran, seen(tmp_path)[0]) == ([], [])


@every_mode
async def test_an_interrupt_gives_the_action_up_and_its_answer_goes_on_under_the_key(mode, tmp_path):
    keys, effects = [], []

    def pay(sum: int, idempotency_key: Key) -> str:
        """Pay."""
        keys.append(idempotency_key)
        if interrupt("pay?") == "yes":
            effects.append(sum)
        return "paid"

    model = ScriptedChat(script=[[("pay", {"sum": 5})], "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        tools = resume.durable([pay], classes={"pay": "external"})
        graph = agent_for(resume, model, tools, checkpointer=InMemorySaver())
        await play(mode, graph, GO, THREAD)
        [], [action] = seen(tmp_path)
        assert (action.status, action.resolution) == ("abandoned", "interrupted")
        await play(mode, graph, Command(resume="yes"), THREAD)
    assert keys == [action.key] * 2
    assert effects == [5]
    assert seen(tmp_path) == ([], [])


def test_a_holder_that_was_taken_over_runs_no_tool(tmp_path):
    ran = []

    def act() -> str:
        """Act."""
        ran.append(1)

    with RecallResume("agent", local_dir=tmp_path) as resume:
        tools = resume.durable([act], classes={"act": "pure"})
        with RecallResume("agent", local_dir=tmp_path, takeover=True), pytest.raises(LeaseLost):
            run(tools, "act")
    assert ran == []


# -- what tools there are, and what they return


def text(x: str) -> str:
    """Text."""
    return f"did {x}"


def blocks(x: str) -> list:
    """Content blocks."""
    return [{"type": "text", "text": f"did {x}"}]


def data(x: str) -> dict:
    """Any value."""
    return {"did": [x, 1, None, 2.5]}


def nothing(x: str) -> None:
    """Nothing."""


def long(x: str) -> str:
    """A text that is stored as an output."""
    return f"{x} and so on\n" * 4_000


def message(x: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
    """A message."""
    return ToolMessage(f"did {x}", tool_call_id=tool_call_id, name="message", id="m1", additional_kwargs={"a": 1})


@tool(response_format="content_and_artifact")
def artifact(x: str) -> tuple[str, dict]:
    """Content and artifact."""
    return f"did {x}", {"rows": [1, 2], "none": None}


def command(x: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """A command."""
    said = ToolMessage(f"did {x}", tool_call_id=tool_call_id, name="command")
    return Command(update={"messages": [said], "seen": {"x": x, "n": 0}}, goto="next")


def several(x: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> list:
    """A message and a command."""
    return [ToolMessage(f"did {x}", tool_call_id=tool_call_id), Command(update={"seen": {"x": x}})]


async def later(x: str) -> str:
    """An async tool."""
    return f"did {x}"


@tool(return_direct=True)
def direct(x: str) -> str:
    """A tool whose result ends the run."""
    return f"did {x}"


class Own(BaseTool):
    """A tool of one's own class."""

    name: str = "own"
    description: str = "Own."
    suffix: str = "!"

    def _run(self, x: str) -> str:
        return f"did {x}{self.suffix}"


def single(x):
    return f"did {x}"


TOOLS = [
    text, blocks, data, nothing, long, message, artifact, command, several, later, direct, Own(),
    Tool.from_function(single, "single", "A tool with a single text as its input."),
]  # fmt: skip


class Seen(MessagesState):
    seen: dict


async def outputs(tools, name, mode):
    """What a tools' node makes of a call: the messages, and the rest of the state."""
    graph = StateGraph(Seen)
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("next", lambda state: {"seen": {**state["seen"], "next": True}})
    graph.add_edge(START, "tools")
    state = await play(mode, graph.compile(), call(name, {"__arg1" if name == "single" else "x": "it"}))
    fields = ("content", "artifact", "status", "tool_call_id", "name", "additional_kwargs")
    return [[getattr(each, field) for field in fields] for each in state["messages"][1:]], state.get("seen")


def named(given):
    return getattr(given, "name", None) or given.__name__


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        pytest.param(given, mode, id=f"{named(given)}-{mode}")
        for given in TOOLS
        for mode in ("invoke", "ainvoke")
        if (given, mode) != (later, "invoke")
    ],
)
async def test_tools_of_every_kind_give_what_they_give_and_give_it_again_without_being_run(mode, given, tmp_path):
    name = named(given)
    plain = await outputs([given], name, mode)
    with RecallResume("agent", local_dir=tmp_path) as resume:
        [durable] = resume.durable([given], classes={name: "external"})
        assert await outputs([durable], name, mode) == plain
        assert durable.return_direct == (name == "direct")
        resume.agent.flush()
        [], [action] = seen(tmp_path)
        assert (action.status, action.args) == ("done", {"__arg1" if name == "single" else "x": "it"})
        again = resume.durable([refusing(given)], classes={name: "external"})
        assert await outputs(again, name, mode) == plain


def refusing(given):
    """The same tool, which must not be run."""

    def refuse(*args, **kwargs):
        raise AssertionError("it was run again")

    copy = (given if isinstance(given, BaseTool) else tool(given)).model_copy()
    for method in ("_run", "_arun"):
        object.__setattr__(copy, method, refuse)
    return copy


def test_what_json_cannot_hold_is_kept_as_text(resume):
    @tool(response_format="content_and_artifact")
    def look() -> tuple[str, object]:
        """Look."""
        return "seen", object()

    tools = resume.durable([look], classes={"look": "external"})
    [first], [second] = run(tools, "look"), run(tools, "look")
    assert type(first.artifact) is object
    assert (second.content, second.artifact) == ("seen", None)


def test_a_tool_that_is_called_without_a_graph(resume):
    [durable] = resume.durable([data], classes={"data": "external"})
    assert durable.invoke({"x": "a"}) == {"did": ["a", 1, None, 2.5]}
    assert durable.run({"x": "b"}) == {"did": ["b", 1, None, 2.5]}
    assert resume.open_actions() == []


def test_a_command_that_leaves_a_graph_in_a_tool_ends_the_action(resume, tmp_path):
    def leave(state: MessagesState):
        return Command(goto="elsewhere", graph=Command.PARENT)

    inner = StateGraph(MessagesState)
    inner.add_node("leave", leave)
    inner.add_edge(START, "leave")
    compiled = inner.compile()

    def delegate() -> str:
        """Delegate."""
        compiled.invoke(GO)

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(resume.durable([delegate], classes={"delegate": "external"})))
    graph.add_node("elsewhere", lambda state: {"messages": [AIMessage("here")]})
    graph.add_edge(START, "tools")
    assert graph.compile().invoke(call("delegate"))["messages"][-1].text == "here"
    resume.agent.flush()
    assert [each.status for each in seen(tmp_path)[1]] == ["done"]


def test_graph_interrupts_are_what_they_were(resume):
    def ask() -> str:
        """Ask."""
        return interrupt("well?")

    [durable] = resume.durable([ask], classes={"ask": "external"})
    graph = StateGraph(MessagesState)
    caught = []

    def tools(state):
        try:
            return {"messages": [durable.invoke({**state["messages"][-1].tool_calls[0], "type": "tool_call"})]}
        except GraphInterrupt as error:
            caught.append(error.args[0][0].value)
            raise

    graph.add_node("tools", tools)
    graph.add_edge(START, "tools")
    compiled = graph.compile(checkpointer=InMemorySaver())
    assert compiled.invoke(call("ask"), THREAD)["__interrupt__"][0].value == "well?"
    assert compiled.invoke(Command(resume="so so"), THREAD)["messages"][-1].content == "so so"
    assert caught == ["well?"]
