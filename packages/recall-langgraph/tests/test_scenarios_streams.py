"""Cancelled streams lose nothing that the user saw, and no stream shows what was meant for the model."""

import asyncio
import threading
from itertools import pairwise

import pytest
from histories import reply
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from providers import check_inputs
from recall_langgraph import RecallResume, watching
from recall_langgraph.messages import NO_REPLY, NO_USER
from recall_langgraph.pairing import UNKNOWN
from running import GO, agent_for, check_records, ids, look, recorded, thread
from scripted_chat import ScriptedChat

SHOWN = ("values", "updates", "messages")
every_stream = pytest.mark.parametrize("shown", SHOWN)
both = pytest.mark.parametrize("mode", ["stream", "astream"])


async def watch(mode, graph, given, config, shown, until):
    """What a user is shown, who closes the stream at the first piece of which `until` is true; bounded by the run."""
    seen = []
    if mode == "stream":
        stream = graph.stream(given, config, stream_mode=shown)
        for piece in stream:
            seen.append(piece)
            if until(piece):
                break
        await asyncio.to_thread(stream.close)
    else:
        stream = graph.astream(given, config, stream_mode=shown)
        async for piece in stream:
            seen.append(piece)
            if until(piece):
                break
        await stream.aclose()
    return seen


def messages_in(shown, piece):
    """The messages of a thread that a piece of a stream shows."""
    if shown == "messages":
        return [piece[0]]
    states = [piece] if shown == "values" else [update or {} for update in piece.values()]
    return [message for state in states for message in state.get("messages", ())]


def said(shown, text, kind):
    """Whether a piece of a stream shows this text in a message of this kind."""
    return lambda piece: any(m.type in kind and text in m.text for m in messages_in(shown, piece))


REPLY = ("ai", "AIMessageChunk")


def one_after_the_other(saver=None, **nodes):
    """A graph of these nodes, in a row."""
    graph = StateGraph(MessagesState)
    names = [START, *nodes]
    for name, node in nodes.items():
        graph.add_node(name, node)
    for one, other in pairwise(names):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=saver)


# -- what the user saw is kept


@both
@every_stream
async def test_reply_that_was_shown_is_recorded_though_the_stream_was_closed_at_it(shown, mode, tmp_path):
    model, saver = ScriptedChat(script=["Hello there.", "Again."]), InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [], checkpointer=saver)
        await watch(mode, graph, GO, thread(), shown, said(shown, "Hello", REPLY))
    question, answer = recorded(tmp_path)
    assert (question.content, answer.role) == ("Go.", "assistant")
    assert answer.content.startswith("Hello")
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [], checkpointer=saver)
        await watch(mode, graph, {"messages": [("user", "More.")]}, thread(), shown, lambda piece: False)
        assert "Hello" in model.inputs[1][0].text  # in the briefing, where the thread does not have it
    check_inputs(model)
    turns = recorded(tmp_path)
    assert len(set(ids(turns))) == len(turns)
    assert [turn.content.split(" ")[0] for turn in turns] == ["Go.", "Hello", "More.", "Again."]


@both
@every_stream
async def test_result_that_was_shown_is_recorded_though_the_stream_was_closed_at_it(shown, mode, tmp_path):
    model, saver = ScriptedChat(script=[[("look", {"at": "a"})]]), InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, checkpointer=saver)
        await watch(mode, graph, GO, thread(), shown, said(shown, "seen a", ("tool",)))
    assert [(turn.role, turn.content) for turn in recorded(tmp_path)] == [
        *[("user", "Go."), ("assistant", ""), ("tool", "seen a")]
    ]
    model = ScriptedChat(script=["Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        await agent_for(resume, model, checkpointer=saver).ainvoke({"messages": [("user", "More.")]}, thread())
    check_inputs(model)
    assert [m.text for m in model.inputs[0] if m.type == "tool"] == ["seen a"]  # also where the thread has lost it
    turns = recorded(tmp_path)
    assert len(set(ids(turns))) == len(turns)
    assert [turn.content.strip() for turn in turns] == ["Go.", "", "seen a", "More.", "Done."]


@every_stream
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a graph"])
async def test_task_that_is_cancelled_while_the_model_speaks_keeps_what_it_said(inside, shown, tmp_path):
    speaking = asyncio.Event()

    class Endless(ScriptedChat):
        async def _astream(self, messages, *args, **kwargs):
            self.inputs.append(messages)
            for word in ("I ", "was ", "saying "):
                yield ChatGenerationChunk(message=AIMessageChunk(word))
            speaking.set()
            await asyncio.Event().wait()

    seen = []

    async def run(graph):
        async for piece in graph.astream(GO, thread(), stream_mode=[shown, "messages"]):
            seen.append(piece)

    model, saver = Endless(script=["never"]), InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        agent = agent_for(resume, model, [], checkpointer=None if inside else saver)
        running = asyncio.create_task(run(one_after_the_other(saver, agent=agent) if inside else agent))
        async with asyncio.timeout(30):
            await speaking.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    question, answer = recorded(tmp_path)
    assert question.content == "Go."
    assert (answer.role, answer.content, answer.status) == ("assistant", "I was saying ", "cut_off")

    model = ScriptedChat(script=["As I was saying."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        assert "assistant (cut off): I was saying" in resume.briefing
        agent = agent_for(resume, model, [], checkpointer=None if inside else saver)
        graph = one_after_the_other(saver, agent=agent) if inside else agent
        await graph.ainvoke({"messages": [("user", "Yes?")]}, thread())
    check_inputs(model)
    assert [turn.content for turn in recorded(tmp_path)][2:] == ["Yes?", "As I was saying."]


@both
async def test_run_that_ends_with_a_tools_result_records_it(mode, tmp_path):
    @tool(return_direct=True)
    def final() -> str:
        """Give the answer."""
        return "42"

    model = ScriptedChat(script=[[("final", {})]])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [final])
        seen = await watch(mode, graph, GO, None, "values", lambda piece: False)
    check_records(tmp_path, seen[-1]["messages"])


@both
async def test_run_that_a_limit_ends_keeps_its_last_results(mode, tmp_path):
    calls = [[("look", {"at": str(number)})] for number in range(9)]
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=calls))
        with pytest.raises(GraphRecursionError):
            await watch(mode, graph, GO, {"recursion_limit": 8}, "updates", lambda piece: False)
    turns = recorded(tmp_path)
    assert [turn.role for turn in turns] == ["user", *["assistant", "tool"] * 2]
    assert turns[-1].content == "seen 1"


async def test_failed_sibling_does_not_take_an_arrived_result_with_it(tmp_path):
    arrived = threading.Event()

    @tool
    def fragile() -> str:
        """Break once the other result is there."""
        arrived.wait(timeout=30)
        raise ValueError("broken")

    @tool
    def quick() -> str:
        """Be quick."""
        return "quick is done"

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=[[("fragile", {}), ("quick", {})]]), [fragile, quick])
        shown = said("updates", "quick", ("tool",))
        with pytest.raises(ValueError, match="broken"):
            await watch("astream", graph, GO, None, "updates", lambda piece: shown(piece) and arrived.set())
    assert [turn.content for turn in recorded(tmp_path)] == ["Go.", "", "quick is done"]


@both
async def test_what_a_model_says_inside_a_tool_is_not_the_agents_reply(mode, tmp_path):
    inner = ScriptedChat(script=["inner thoughts"])

    @tool
    def consult() -> str:
        """Ask another model, and break."""
        raise ValueError(inner.invoke("What?").text)

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=[[("consult", {})]]), [consult])
        with pytest.raises(ValueError, match="inner"):
            await watch(mode, graph, GO, None, "messages", lambda piece: False)
    assert [turn.role for turn in recorded(tmp_path)] == ["user", "assistant"]


@every_stream
async def test_stream_that_nobody_reads_on_and_nobody_closes(shown, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        stream = agent_for(resume, ScriptedChat(script=["Hello there."]), []).astream(GO, stream_mode=shown)
        async for piece in stream:
            if said(shown, "Hello", REPLY)(piece):
                break
    question, answer = recorded(tmp_path)
    assert (question.content, answer.content[:5]) == ("Go.", "Hello")
    await stream.aclose()
    assert len(recorded(tmp_path)) == 2


# -- what is nobody's reply


@both
@pytest.mark.parametrize("tags", [[], ["nostream"]], ids=["router", "unseen"])
async def test_what_a_graph_did_not_add_to_the_talk_is_not_recorded_when_it_fails(tags, mode, tmp_path):
    """A model that only decides something in a node; and one that is not streamed, in the node that fails."""
    model = ScriptedChat(script=["inner thoughts"]).with_config(tags=tags)

    def decide(state):
        model.invoke("What now?")
        assert not tags, "broken here"
        return {"messages": []}

    def fail(state):
        raise AssertionError("broken later")

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = one_after_the_other(record=resume.record_node, decide=decide, fail=fail)
        with pytest.raises(AssertionError, match="broken"):
            await watch(mode, graph, GO, None, "messages", lambda piece: False)
    assert [turn.content for turn in recorded(tmp_path)] == ["Go."]


@both
async def test_graph_whose_nodes_record_for_two_agents_mixes_nothing(mode, tmp_path):
    async with RecallResume("alice", local_dir=tmp_path) as alice, RecallResume("bob", local_dir=tmp_path) as bob:

        def speak(name, resume):
            def node(state):
                message = AIMessage(f"I am {name}.")
                resume.record([message])
                return {"messages": [message]}

            return node

        graph = one_after_the_other(alice=speak("alice", alice), bob=speak("bob", bob))
        await watch(mode, graph, GO, None, "updates", said("updates", "bob", REPLY))
    for name in ("alice", "bob"):
        assert [turn.content for turn in recorded(tmp_path, name)] == [f"I am {name}."]


# -- what the user must not see


@both
@every_stream
async def test_no_stream_shows_the_briefing_or_what_was_made_up(shown, mode, tmp_path):
    """A broken thread and a briefing: the model is sent repairs, the user's stream has the thread as it is."""
    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        resume.agent.update_working_state(goal="Find the needle.")
        graph = agent_for(resume, ScriptedChat(script=[]), checkpointer=saver)
        broken = [("ai", "Welcome."), ("user", "Look."), reply("", "lost")]
        await graph.aupdate_state(thread(), {"messages": broken}, as_node="agent")
    model = ScriptedChat(script=[[("look", {"at": "a"})], "All done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, ToolNode([look]), checkpointer=saver)
        given = {"messages": [("user", "Go on.")]}
        seen = await watch(mode, graph, given, thread(), shown, lambda piece: False)
    check_inputs(model)
    sent = "".join(message.text for message in model.inputs[0])
    assert all(internal in sent for internal in ("needle", UNKNOWN, NO_REPLY))
    texts = [message.text for piece in seen for message in messages_in(shown, piece)]
    assert "All done." in "".join(texts)
    for internal in ("needle", UNKNOWN, NO_REPLY, NO_USER):
        assert internal not in "".join(texts)


@both
async def test_thread_that_is_kept_has_nothing_that_was_meant_for_the_model(mode, tmp_path):
    saver = InMemorySaver()
    for _ in range(2):
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            resume.agent.update_working_state(goal="Find the needle.")
            graph = agent_for(resume, ScriptedChat(script=[[("look", {"at": "a"})], "Done."]), checkpointer=saver)
            await watch(mode, graph, GO, thread(), "values", lambda piece: False)
            kept = (await graph.aget_state(thread())).values
    assert "needle" not in str(kept)
    assert not kept["llm_input_messages"]
    assert len(kept["messages"]) == 8


@both
async def test_nothing_is_kept_of_runs_that_have_ended(mode, tmp_path):
    """Whatever way they ended: what the process remembers of them does not grow."""
    watcher = watching._registered()

    def remembered():
        return {*watcher._chains, *watcher._shown, *watcher._replies}

    before = remembered()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        for until in ("nothing", "Hello", "Go."):
            graph = agent_for(resume, ScriptedChat(script=["Hello there."]), [])
            await watch(mode, graph, GO, None, "values", said("values", until, (*REPLY, "human")))
        with pytest.raises(IndexError):
            await watch(mode, agent_for(resume, ScriptedChat(script=[])), GO, None, "messages", lambda piece: False)
    assert remembered() <= before


@both
async def test_cancelled_graph_of_ones_own_keeps_what_was_shown(mode, tmp_path):
    """Nodes that record around one that uses `with_briefing`: the model's reply was shown, and not recorded yet."""
    model = ScriptedChat(script=["Hello there."])

    def speak(state):
        return {"messages": [model.invoke(resume.with_briefing(state["messages"]))]}

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = one_after_the_other(before=resume.record_node, speak=speak, after=resume.record_node)
        await watch(mode, graph, GO, None, "updates", said("updates", "Hello", REPLY))
    assert [turn.content.strip() for turn in recorded(tmp_path)] == ["Go.", "Hello there."]
