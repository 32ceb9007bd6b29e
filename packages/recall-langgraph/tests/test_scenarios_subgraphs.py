"""Agents inside of other graphs: their messages are recorded once, whatever the outer graph does with them."""

from itertools import pairwise
from typing import Annotated

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from providers import check_inputs
from recall_langgraph import RecallResume
from running import GO, MODES, agent_for, check_records, look, play, recorded, thread
from scripted_chat import ScriptedChat
from typing_extensions import TypedDict

every_mode = pytest.mark.parametrize("mode", MODES)
MORE = {"messages": [("user", "And now?")]}
ROUND = [[("look", {"at": "a"})], "Done."]


@tool
def ask(what: str) -> str:
    """Ask a person."""
    return f"{what}: {interrupt(what)}"


def around(state, saver, **nodes):
    """A graph of these nodes, one after the other."""
    graph = StateGraph(state)
    names = [START, *nodes, END]
    for name, node in nodes.items():
        graph.add_node(name, node)
    for one, other in pairwise(names):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=saver)


@every_mode
async def test_agent_as_a_node_with_the_outer_graphs_messages(mode, tmp_path):
    saver = InMemorySaver()
    for given, script in ((GO, ROUND), (MORE, ["Fine."])):
        model = ScriptedChat(script=script)
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            graph = around(MessagesState, saver, agent=agent_for(resume, model))
            state = await play(mode, graph, given, thread())
        check_inputs(model)
        check_records(tmp_path, state["messages"])


@every_mode
async def test_two_agents_of_one_id_in_a_row(mode, tmp_path):
    """A planner and a worker that keep one record: what the first said is not recorded again by the second."""
    saver, planner, worker = InMemorySaver(), ScriptedChat(script=["A plan."]), ScriptedChat(script=ROUND)
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        nodes = {"planner": agent_for(resume, planner, []), "worker": agent_for(resume, worker)}
        state = await play(mode, around(MessagesState, saver, **nodes), GO, thread())
    check_inputs(planner, worker)
    check_records(tmp_path, state["messages"])


class Outer(TypedDict):
    question: str
    answer: str


@every_mode
@pytest.mark.parametrize("kept", [None, True], ids=["with the thread", "by itself"])
async def test_agent_in_a_node_with_other_keys(kept, mode, tmp_path):
    """The outer graph's state has no messages; the inner thread is its checkpointer's, per call or for good."""
    saver, states = InMemorySaver(), []

    def work(state):
        given = {"messages": [HumanMessage(state["question"], id=state["question"])]}
        states.append(inner.invoke(given))
        return {"answer": states[-1]["messages"][-1].text}

    for question, script in (("Where?", ROUND), ("And now?", ["Fine."])):
        model = ScriptedChat(script=script)
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            inner = agent_for(resume, model, checkpointer=kept)
            state = await play(mode, around(Outer, saver, work=work), {"question": question}, thread())
        assert state["answer"].strip() == script[-1]
        check_inputs(model)
    if kept:
        check_records(tmp_path, states[-1]["messages"])
    else:
        check_records(tmp_path, [*states[0]["messages"], *states[1]["messages"]])


@every_mode
@pytest.mark.parametrize("keys", ["shared", "other"])
async def test_pause_inside_of_an_inner_agent_runs_the_outer_node_again(keys, mode, tmp_path):
    saver, ran, inner_states = InMemorySaver(), [], []

    def work(state):
        ran.append(1)
        inner_states.append(inner.invoke({"messages": [HumanMessage(state["question"])]}))
        return {"answer": inner_states[-1]["messages"][-1].text}

    def graph_for(resume):
        agent = agent_for(resume, model, [ask, look])
        return (agent, around(MessagesState, saver, agent=agent) if keys == "shared" else around(Outer, saver, w=work))

    script = [[("look", {"at": "a"})], [("ask", {"what": "May I?"})], "Thanks."]
    model = ScriptedChat(script=script)
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        inner, graph = graph_for(resume)
        await play(mode, graph, {**GO, "question": "Go."}, thread())
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        inner, graph = graph_for(resume)
        state = await play(mode, graph, Command(resume="Yes."), thread())
    check_inputs(model)
    check_records(tmp_path, state["messages"] if keys == "shared" else inner_states[-1]["messages"])
    assert len(ran) == (0 if keys == "shared" else 2)


@every_mode
async def test_agent_inside_of_a_tool_of_another_agent(mode, tmp_path):
    """The tool is a whole agent with records of its own; the outer one records its answer as a result."""
    inner_model, model = ScriptedChat(script=ROUND), ScriptedChat(script=[[("research", {"what": "it"})], "Found."])
    inner_states = []

    @tool
    def research(what: str) -> str:
        """Let a researcher find out."""
        inner_states.append(agent_for(researcher, inner_model).invoke({"messages": [("user", f"Find {what}.")]}))
        return inner_states[-1]["messages"][-1].text

    async with (
        RecallResume("researcher", local_dir=tmp_path) as researcher,
        RecallResume("agent", local_dir=tmp_path) as resume,
    ):
        state = await play(mode, agent_for(resume, model, [research]), GO)
    check_inputs(inner_model, model)
    check_records(tmp_path, state["messages"])
    check_records(tmp_path, inner_states[0]["messages"], "researcher")


@every_mode
async def test_outer_graph_with_messages_of_its_own_kind_beside_the_agents(mode, tmp_path):
    """Only what the agent's graph says is the agent's: the outer graph's other nodes record nothing."""

    class Both(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        notes: list[str]

    def note(state):
        return {"notes": [message.text for message in state["messages"]], "messages": [("ai", "A note of mine.")]}

    model = ScriptedChat(script=["Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        await play(mode, around(Both, None, agent=agent_for(resume, model, []), note=note), GO)
    assert [turn.content.strip() for turn in recorded(tmp_path)] == ["Go.", "Done."]
