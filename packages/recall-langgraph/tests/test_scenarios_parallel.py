"""Parallel tool calls and branches: every message recorded once and in order, every model input valid."""

import threading
from typing import Annotated

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Send
from providers import check_input, check_inputs
from recall_langgraph import RecallResume
from recall_langgraph.pairing import UNKNOWN
from running import GO, MODES, agent_for, check_records, ids, look, play, recorded, thread
from scripted_chat import AnsweringChat, ScriptedChat
from typing_extensions import TypedDict

every_mode = pytest.mark.parametrize("mode", MODES)
MORE = {"messages": [("user", "And now?")]}


@tool
def divide(by: int) -> str:
    """Divide."""
    return str(1 // by)


class Race:
    """Two tools that run at once: `slow` is not done before `quick` is."""

    def __init__(self):
        self.quick_is_done = threading.Event()

        @tool
        def slow() -> str:
            """Take long."""
            assert self.quick_is_done.wait(timeout=30)
            return "slow is done"

        @tool
        def quick() -> str:
            """Be quick."""
            self.quick_is_done.set()
            return "quick is done"

        self.tools = [slow, quick]


@every_mode
async def test_one_reply_with_a_slow_a_failing_and_a_quick_call(mode, tmp_path):
    saver, calls = InMemorySaver(), [("slow", {}), ("divide", {"by": 0}), ("quick", {}), ("look", {"at": "a"})]
    model = ScriptedChat(script=[calls, "Done."])
    tools = ToolNode([*Race().tools, divide, look], handle_tool_errors=True)
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, tools, checkpointer=saver), GO, thread())
    check_inputs(model)
    check_records(tmp_path, state["messages"])
    results = recorded(tmp_path)[2:6]
    assert [turn.name for turn in results] == ["slow", "divide", "quick", "look"]
    assert [turn.status for turn in results] == [None, "error", None, None]

    model = ScriptedChat(script=["Fine."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, tools, checkpointer=saver), MORE, thread())
    check_inputs(model)
    check_records(tmp_path, state["messages"])


@every_mode
@pytest.mark.parametrize("given", [None, MORE], ids=["continued", "asked"])
async def test_tool_that_breaks_the_run_leaves_a_thread_that_goes_on(given, mode, tmp_path):
    saver, broken, looked = InMemorySaver(), [True], threading.Event()

    @tool
    def quick() -> str:
        """Be quick."""
        looked.set()
        return "quick is done"

    @tool
    def fragile() -> str:
        """Break at first."""
        assert looked.wait(timeout=30)
        if broken:
            raise ValueError(broken.pop())
        return "works again"

    model = ScriptedChat(script=[[("quick", {}), ("fragile", {})]])
    with pytest.raises(ValueError, match="True"):
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            await play(mode, agent_for(resume, model, [quick, fragile], checkpointer=saver), GO, thread())
    check_inputs(model)
    model = ScriptedChat(script=["Fine."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, [quick, fragile], checkpointer=saver), given, thread())
    check_inputs(model)
    results = [message.text for message in model.inputs[0] if message.type == "tool"]
    if given is None:
        assert results == ["quick is done", "works again"]
        check_records(tmp_path, state["messages"])
    else:  # LangGraph drops what the failed step had; the record of the result that arrived stands in for it
        assert results == ["quick is done", UNKNOWN]
        assert [turn.content.strip() for turn in recorded(tmp_path)] == [
            *("Go.", "", "quick is done", "And now?", "Fine.")
        ]


# -- branches of a graph


class Branches(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


TASKS = [HumanMessage(f"Task {number}.", id=f"task-{number}") for number in range(3)]


def fan_out(branch, saver):
    """A graph that sends three tasks to a node at once."""
    graph = StateGraph(Branches)
    graph.add_node("branch", branch)
    graph.add_conditional_edges(
        START, lambda state: [Send("branch", {"messages": [task]}) for task in TASKS], ["branch"]
    )
    graph.add_edge("branch", END)
    return graph.compile(checkpointer=saver)


def thinker():
    """A model for several conversations at once: looks at the number of its task, then is done."""
    together = threading.Barrier(3)

    def answer(messages):
        number = next(m.text for m in messages if m.type == "human")[-2]
        if messages[-1].type == "tool":
            return f"Done {number}."
        together.wait(timeout=30)  # so that the three do run at once
        return [("look", {"at": number})]

    return AnsweringChat(answer=answer)


def agent_node(resume, model):
    """The branch is a whole agent: a sub-graph."""
    return agent_for(resume, model)


def own_node(resume, model):
    """The branch is a function that asks the model, runs the tools and records by itself."""

    def branch(state):
        messages = list(state["messages"])
        for _ in range(2):
            messages.append(model.invoke(resume.with_briefing(messages)))
            resume.record(messages)
            messages += [look.invoke({**call, "type": "tool_call"}) for call in messages[-1].tool_calls]
        resume.record(messages)
        return {"messages": messages}

    return branch


@every_mode
@pytest.mark.parametrize("branch", [agent_node, own_node])
async def test_branches_that_ask_a_model_at_once_record_each_conversation_once(branch, mode, tmp_path):
    saver, model = InMemorySaver(), thinker()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, fan_out(branch(resume, model), saver), {"messages": []}, thread())
    check_branches(tmp_path, model, state)

    async with RecallResume("agent", local_dir=tmp_path) as resume:  # the next process, with what the thread has
        resume.record(state["messages"])
    check_branches(tmp_path, model, state)


def check_branches(directory, model, state):
    """Three conversations, mixed as they came: each complete, once, in its own order, and sent alone to the model."""
    turns = recorded(directory)
    assert sorted(ids(turns)) == sorted(ids(state["messages"]))
    for number in range(3):
        said = [turn.content for turn in turns if str(number) in str(turn.content) or turn.role == "assistant"]
        assert [text for text in said if str(number) in text] == [
            *(f"Task {number}.", f"seen {number}", f"Done {number}.")
        ]
        first = next(turn for turn in turns if turn.calls and turn.calls[0].args == {"at": str(number)})
        assert ids(turns).index(f"task-{number}") < turns.index(first)
    assert len(model.inputs) == 6
    for messages in model.inputs:
        check_input(messages)
        assert [m.text for m in messages if m.type == "human"] in [[task.text] for task in TASKS]
