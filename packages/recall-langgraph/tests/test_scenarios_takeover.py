"""A holder that was taken over while its model was thinking runs none of the tools of that reply."""

import signal
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from polign_recall import LeaseLost
from providers import check_inputs
from recall_langgraph import RecallResume
from running import GO, MODES, agent_for, check_records, look, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
CALLS = [("act", {}), ("act", {})]


def acting(effects, name):
    """A tool whose effect can be counted from outside."""

    @tool
    def act() -> str:
        """Act on the world."""
        with effects.open("a") as file:
            file.write(f"{name}\n")
        return "acted"

    return act


def react(resume, model, act, saver):
    return agent_for(resume, model, [act], checkpointer=saver)


def own(resume, model, act, saver):
    """A graph of one's own, with `with_briefing` and `record_node`."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(resume.with_briefing(state["messages"]))]})
    graph.add_node("record", resume.record_node)
    graph.add_node("tools", ToolNode([act]))
    graph.add_edge(START, "model")
    graph.add_edge("model", "record")
    graph.add_conditional_edges("record", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@every_mode
@pytest.mark.parametrize("graph_for", [react, own])
async def test_second_holder_takes_over_during_the_model_call(graph_for, mode, tmp_path):
    effects, saver = tmp_path / "effects", InMemorySaver()
    async with AsyncExitStack() as stack:
        second = RecallResume("agent", local_dir=tmp_path / "records", takeover=True, holder="second")

        def be_taken_over(messages):
            second.__enter__()
            stack.callback(second.__exit__, None, None, None)

        model = ScriptedChat(script=[CALLS, "Done."], thinking=be_taken_over)
        first = RecallResume("agent", local_dir=tmp_path / "records", holder="first")
        with pytest.raises(LeaseLost) as lost:
            async with first:
                await play(mode, graph_for(first, model, acting(effects, "first"), saver), GO, thread())
        assert lost.value.by == "second"
        assert not effects.exists()
        assert len(model.inputs) == 1

        model = ScriptedChat(script=[CALLS, "Done."])
        graph = graph_for(second, model, acting(effects, "second"), None)
        state = await play(mode, graph, {"messages": [HumanMessage("Carry on.")]})
    assert effects.read_text().split() == ["second", "second"]
    check_inputs(model)
    told = recorded(tmp_path / "records")[: -len(state["messages"])]  # what the first holder had written before
    check_records(tmp_path / "records", [*_lost_thread(saver)[: len(told)], *state["messages"]])
    assert len(told) <= 1


def _lost_thread(saver):
    return saver.get_tuple(thread()).checkpoint["channel_values"]["messages"]


@every_mode
async def test_thread_of_the_loser_goes_on_under_the_new_holder(mode, tmp_path):
    """The reply whose tools did not run is in the thread: the new holder's model is told that nobody knows."""
    effects, saver = tmp_path / "effects", InMemorySaver()
    second = RecallResume("agent", local_dir=tmp_path / "records", takeover=True)
    model = ScriptedChat(script=[CALLS], thinking=lambda messages: second.__enter__())
    first = RecallResume("agent", local_dir=tmp_path / "records")
    with pytest.raises(LeaseLost):
        async with first:
            await play(mode, react(first, model, acting(effects, "first"), saver), GO, thread())
    model = ScriptedChat(script=["Then not."])
    try:
        graph = react(second, model, look, saver)
        state = await play(mode, graph, {"messages": [("user", "Well?")]}, thread())
    finally:
        second.__exit__(None, None, None)
    assert not effects.exists()
    check_inputs(model)
    assert [message.type for message in model.inputs[0]] == ["human", "ai", "tool", "tool", "ai", "human"]
    check_records(tmp_path / "records", state["messages"])


# -- with processes


@contextmanager
def slow_agent(directory, name, mode):
    """An agent in a process of its own, whose model is thinking."""
    command = [sys.executable, str(Path(__file__).with_name("slow_agent.py")), str(directory), name, mode]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "thinking\n", process.communicate(timeout=60)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("how", ["slow", "suspended"])
async def test_second_process_takes_over_during_the_model_call(how, mode, tmp_path):
    with slow_agent(tmp_path, "first", mode) as first:
        if how == "suspended":
            first.send_signal(signal.SIGSTOP)
        with slow_agent(tmp_path, "second", mode) as second:
            _, errors = second.communicate("go on\n", timeout=60)
            assert second.returncode == 0, errors
        assert (tmp_path / "effects").read_text().split() == ["second", "second"]
        if how == "suspended":
            first.send_signal(signal.SIGCONT)
        output, errors = first.communicate("go on\n", timeout=60)
    assert (first.returncode, output) == (3, "lost to second\n"), errors
    assert (tmp_path / "effects").read_text().split() == ["second", "second"]
    contents = [turn.content.strip() for turn in recorded(tmp_path / "records")]
    assert contents[-5:] == ["Go.", "", "acted", "acted", "Done."]
    assert contents[:-5] in ([], ["Go."])  # what the first one had written before
