"""Pauses for a person: code before a pause runs again when it is answered, and is recorded once."""

import threading

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from providers import check_inputs
from recall_langgraph import RecallResume
from running import GO, MODES, agent_for, check_records, ids, look, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)


class Asking:
    """A tool that asks a person; `ran` counts how often its code before the pause ran."""

    def __init__(self):
        self.ran = 0

        @tool
        def ask(what: str) -> str:
            """Ask a person."""
            self.ran += 1
            return f"{what}: {interrupt(what)}"

        self.tool = ask


@every_mode
async def test_tool_that_pauses_is_recorded_once_when_it_is_answered(mode, tmp_path):
    saver, asking = InMemorySaver(), Asking()
    model = ScriptedChat(script=[[("ask", {"what": "May I?"})], "Thanks."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [asking.tool], checkpointer=saver)
        await play(mode, graph, GO, thread())
        assert [turn.role for turn in recorded(tmp_path)] == ["user", "assistant"]
        state = await play(mode, graph, Command(resume="Yes."), thread())
    assert asking.ran == 2
    check_inputs(model)
    check_records(tmp_path, state["messages"])


@every_mode
async def test_siblings_that_were_done_before_the_pause_are_recorded_once(mode, tmp_path):
    """Their results are durable while the person thinks, in the order of the calls, and are not fetched again."""
    saver, asking, runs, second = InMemorySaver(), Asking(), [], threading.Event()

    @tool
    def quick(number: int) -> str:
        """Be quick; the first call ends after the second."""
        runs.append(number)
        assert number == 2 or second.wait(timeout=30)
        second.set()
        return f"quick {number}"

    calls = [
        ("ask", {"what": "May I?"}),
        ("quick", {"number": 1}),
        ("quick", {"number": 2}),
        ("ask", {"what": "Sure?"}),
    ]
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=[calls]), [asking.tool, quick], checkpointer=saver)
        await play(mode, graph, GO, thread())
        pauses = [pause.id for pause in (await graph.aget_state(thread())).interrupts]
    assert [turn.content for turn in recorded(tmp_path)] == ["Go.", "", "quick 1", "quick 2"]
    model = ScriptedChat(script=["Thanks."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [asking.tool, quick], checkpointer=saver)
        answers = dict(zip(pauses, ["Yes.", "Sure."], strict=True))
        state = await play(mode, graph, Command(resume=answers), thread())
    assert sorted(runs) == [1, 2]
    check_inputs(model)
    results = [message.text for message in model.inputs[0] if message.type == "tool"]
    assert results == ["May I?: Yes.", "quick 1", "quick 2", "Sure?: Sure."]
    turns = recorded(tmp_path)
    assert sorted(ids(turns)) == sorted(ids(state["messages"]))
    assert [turn.content for turn in turns[4:]] == ["May I?: Yes.", "Sure?: Sure.", "Thanks."]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_pause_is_answered_in_another_process_with_sqlite(mode, tmp_path):
    asking, model = Asking(), ScriptedChat(script=[[("look", {"at": "a"}), ("ask", {"what": "May I?"})], "Thanks."])
    database = str(tmp_path / "threads.db")
    for given in (GO, Command(resume="Yes.")):
        if mode == "sync":
            with SqliteSaver.from_conn_string(database) as saver, RecallResume("agent", local_dir=tmp_path) as resume:
                graph = agent_for(resume, model, [asking.tool, look], checkpointer=saver)
                state = graph.invoke(given, thread())
        else:
            async with (
                AsyncSqliteSaver.from_conn_string(database) as saver,
                RecallResume("agent", local_dir=tmp_path) as resume,
            ):
                graph = agent_for(resume, model, [asking.tool, look], checkpointer=saver)
                state = await graph.ainvoke(given, thread())
    assert asking.ran == 2
    check_inputs(model)
    check_records(tmp_path, state["messages"])


@every_mode
@pytest.mark.parametrize("where", ["before", "after"])
async def test_pause_around_the_tools_records_the_reply_before_a_person_sees_it(where, mode, tmp_path):
    saver, pause = InMemorySaver(), {f"interrupt_{where}": ["tools"]}
    model = ScriptedChat(script=[[("look", {"at": "a"})], "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        await play(mode, agent_for(resume, model, checkpointer=saver, **pause), GO, thread())
    kept = [turn.role for turn in recorded(tmp_path)]
    assert kept == (["user", "assistant"] if where == "before" else ["user", "assistant", "tool"])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, checkpointer=saver, **pause), None, thread())
    check_inputs(model)
    check_records(tmp_path, state["messages"])


@every_mode
async def test_node_that_records_and_then_pauses_records_once(mode, tmp_path):
    """A node of one's own: all of it runs again after the pause, so its model is asked in a node before."""
    ran = []

    def speak(state):
        return {"messages": [model.invoke(resume.with_briefing(state["messages"]))]}

    def approve(state):
        ran.append(1)
        resume.record(state["messages"])
        answer = interrupt("Send it?")
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage(f"person: {answer}", tool_call_id=call["id"], name=call["name"])]}

    def graph_for():
        graph = StateGraph(MessagesState)
        for name, node in (("speak", speak), ("approve", approve), ("record", resume.record_node)):
            graph.add_node(name, node)
        for one, other in ((START, "speak"), ("speak", "approve"), ("approve", "record"), ("record", END)):
            graph.add_edge(one, other)
        return graph.compile(checkpointer=saver)

    saver, model = InMemorySaver(), ScriptedChat(script=[[("look", {"at": "a"})]])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        await play(mode, graph_for(), GO, thread())
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, graph_for(), Command(resume="yes"), thread())
    assert len(ran) == 2
    check_inputs(model)
    check_records(tmp_path, state["messages"])


def test_many_pauses_in_one_tool_run_its_beginning_again_and_again(tmp_path):
    @tool
    def interview() -> str:
        """Ask three things."""
        return " ".join(interrupt(number) for number in range(3))

    saver, model = InMemorySaver(), ScriptedChat(script=[[("interview", {})], "Thanks."])
    for given in (GO, *(Command(resume=word) for word in ("one", "two", "three"))):
        with RecallResume("agent", local_dir=tmp_path) as resume:
            state = agent_for(resume, model, [interview], checkpointer=saver).invoke(given, thread())
    check_inputs(model)
    check_records(tmp_path, state["messages"])
    assert recorded(tmp_path)[2].content == "one two three"


def test_messages_of_threads_that_pause_at_once_are_not_mixed(tmp_path):
    saver, asking, together = InMemorySaver(), Asking(), threading.Barrier(4)
    states = {}

    def converse(number):
        model = ScriptedChat(script=[[("ask", {"what": f"May I, {number}?"})], f"Thanks {number}."])
        graph = agent_for(resume, model, [asking.tool], checkpointer=saver)
        graph.invoke({"messages": [("user", f"Go {number}.")]}, thread(number))
        together.wait(timeout=30)
        states[number] = graph.invoke(Command(resume=number), thread(number))["messages"]
        check_inputs(model)

    with RecallResume("agent", local_dir=tmp_path) as resume:
        workers = [threading.Thread(target=converse, args=(str(number),)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(timeout=60)
    turns = recorded(tmp_path)
    assert len(turns) == 16
    for messages in states.values():
        assert [each for each in ids(turns) if each in set(ids(messages))] == ids(messages)
