"""Commands, hand-offs, and a supervisor with two agents: each agent id has its own records, complete and once."""

import operator
from typing import Annotated

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.prebuilt.chat_agent_executor import AgentState
from langgraph.types import Command
from providers import check_inputs
from recall_langgraph import RecallResume
from running import GO, MODES, agent_for, check_records, ids, look, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
MORE = {"messages": [("user", "And now?")]}
CallId = Annotated[str, InjectedToolCallId]


# -- a command inside of one agent


class Noted(AgentState):
    notes: Annotated[list[str], operator.add]


@tool
def note(text: str, call_id: CallId) -> Command:
    """Keep a note in the graph's state."""
    return Command(update={"notes": [text], "messages": [ToolMessage(f"noted {text}", tool_call_id=call_id)]})


@every_mode
async def test_tool_that_updates_the_state_by_a_command(mode, tmp_path):
    saver, calls = InMemorySaver(), [("note", {"text": "one"}), ("look", {"at": "a"}), ("note", {"text": "two"})]
    model = ScriptedChat(script=[calls, "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [note, look], checkpointer=saver, state_schema=Noted)
        state = await play(mode, graph, GO, thread())
        assert graph.get_state(thread()).values["notes"] == ["one", "two"]
    check_inputs(model)
    check_records(tmp_path, state["messages"])
    model = ScriptedChat(script=["Fine."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [note, look], checkpointer=saver, state_schema=Noted)
        state = await play(mode, graph, MORE, thread())
    check_inputs(model)
    check_records(tmp_path, state["messages"])


@every_mode
async def test_command_that_removes_and_answers_at_once(mode, tmp_path):
    @tool
    def forget(call_id: CallId, state: Annotated[dict, InjectedState]) -> Command:
        """Forget how the talk began."""
        first = state["messages"][0]
        return Command(update={"messages": [RemoveMessage(first.id), ToolMessage("forgotten", tool_call_id=call_id)]})

    model = ScriptedChat(script=[[("forget", {})], "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, [forget]), GO)
    check_inputs(model)
    assert ids(recorded(tmp_path))[1:] == ids(state["messages"])
    assert [turn.content.strip() for turn in recorded(tmp_path)] == ["Go.", "", "forgotten", "Done."]


# -- hand-offs between agents


def to(name, as_parent=True):
    """A tool that hands the talk to another agent of the graph around this one."""

    @tool(f"to_{name}")
    def hand_off(call_id: CallId, state: Annotated[dict, InjectedState]) -> Command:
        """Hand over."""
        done = ToolMessage(f"handed to {name}", tool_call_id=call_id, name=f"to_{name}")
        return Command(goto=name, graph=Command.PARENT, update={"messages": [*state["messages"], done]})

    return hand_off


def team(saver, **agents):
    """Agents that hand over to one another, in one graph with one list of messages; the first one begins."""
    graph = StateGraph(MessagesState)
    for name, agent in agents.items():
        graph.add_node(name, agent)
    graph.add_edge(START, next(iter(agents)))
    return graph.compile(checkpointer=saver)


@every_mode
async def test_hand_off_is_recorded_by_who_hands_over_and_by_who_takes_over(mode, tmp_path):
    saver = InMemorySaver()
    alice_says, bob_says = (
        ScriptedChat(script=[[("to_bob", {})]]),
        ScriptedChat(script=[[("look", {"at": "a"})], "Done."]),
    )
    async with (
        RecallResume("alice", local_dir=tmp_path) as alice,
        RecallResume("bob", local_dir=tmp_path) as bob,
    ):
        agents = {"alice": agent_for(alice, alice_says, [to("bob")]), "bob": agent_for(bob, bob_says, [look])}
        state = await play(mode, team(saver, **agents), GO, thread())
    check_inputs(alice_says, bob_says)
    check_records(tmp_path, state["messages"][:3], "alice")  # until she handed over, the answer to her call included
    check_records(tmp_path, state["messages"], "bob")

    alice_says = ScriptedChat(script=["Thank you, Bob."])
    async with RecallResume("alice", local_dir=tmp_path) as alice:
        assert not alice.context.unanswered_calls
        agents = {"alice": agent_for(alice, alice_says, [to("bob")])}
        state = await play(mode, team(saver, **agents), MORE, thread())
    check_inputs(alice_says)
    check_records(tmp_path, state["messages"], "alice")  # what Bob said came to her with the thread, once


@every_mode
async def test_hand_off_beside_another_call_answers_both(mode, tmp_path):
    alice_says = ScriptedChat(script=[[("look", {"at": "a"}), ("to_bob", {})]])
    bob_says = ScriptedChat(script=["Done."])
    async with (
        RecallResume("alice", local_dir=tmp_path) as alice,
        RecallResume("bob", local_dir=tmp_path) as bob,
    ):
        agents = {"alice": agent_for(alice, alice_says, [look, to("bob")]), "bob": agent_for(bob, bob_says, [])}
        await play(mode, team(None, **agents), GO)
    check_inputs(alice_says, bob_says)
    contents = sorted(turn.content for turn in recorded(tmp_path, "alice"))
    assert contents == ["", "Go.", "handed to bob", "seen a"]


# -- a supervisor with two agents


class Team(MessagesState):
    task: str


def delegate(name):
    """A tool that gives another agent of the graph a task, and nothing else of the talk."""

    @tool(f"delegate_to_{name}")
    def hand_off(task: str, call_id: CallId, state: Annotated[dict, InjectedState]) -> Command:
        """Delegate."""
        done = ToolMessage(f"{name} was asked", tool_call_id=call_id, name=f"delegate_to_{name}")
        return Command(goto=name, graph=Command.PARENT, update={"messages": [*state["messages"], done], "task": task})

    return hand_off


TASKS = {"researcher": "Find the needle.", "writer": "Write about thread."}


def supervised(saver, boss, workers):
    """The supervisor and its workers; what a worker said last comes back as a message to the supervisor."""
    graph = StateGraph(Team)
    graph.add_node("boss", boss)
    graph.add_edge(START, "boss")
    for name, agent in workers.items():

        def work(state, agent=agent, name=name):
            last = agent.invoke({"messages": [("user", state["task"])]})["messages"][-1]
            return {"messages": [HumanMessage(f"{name} says: {last.text}")]}

        graph.add_node(name, work)
        graph.add_edge(name, "boss")
    return graph.compile(checkpointer=saver)


@every_mode
async def test_records_of_a_supervisor_and_its_two_agents_are_apart(mode, tmp_path):
    saver, names = InMemorySaver(), ("researcher", "writer")
    for given in (GO, MORE):
        boss_says = ScriptedChat(
            script=[*([(f"delegate_to_{name}", {"task": TASKS[name]})] for name in names), "Done."]
        )
        say = {name: ScriptedChat(script=[[("look", {"at": name})], f"{name} is done."]) for name in names}
        async with (
            RecallResume("boss", local_dir=tmp_path) as boss,
            RecallResume("researcher", local_dir=tmp_path) as researcher,
            RecallResume("writer", local_dir=tmp_path) as writer,
        ):
            workers = {n: agent_for(r, say[n], [look]) for n, r in (("researcher", researcher), ("writer", writer))}
            leader = agent_for(boss, boss_says, [delegate(name) for name in names])
            briefings = {resume.agent_id: resume.briefing for resume in (boss, researcher, writer)}
            state = await play(mode, supervised(saver, leader, workers), given, thread())
        check_inputs(boss_says, *say.values())
        for name in names:  # nobody is sent another's briefing, and the tasks are all that a worker knows
            sent = "".join(message.text for messages in say[name].inputs for message in messages)
            assert TASKS[name] in sent
            assert not any(other in sent for other in names if other != name)
            assert briefings["boss"] not in sent
    check_records(tmp_path, state["messages"], "boss")
    for name in names:
        contents = [turn.content.strip() for turn in recorded(tmp_path, name)]
        assert contents == 2 * [TASKS[name], "", f"seen {name}", f"{name} is done."]
        assert len(set(ids(recorded(tmp_path, name)))) == 8
