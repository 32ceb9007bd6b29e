"""The hooks in the real create_react_agent: what is recorded, when, and what the model is sent."""

import asyncio
import threading
import time

import pytest
from histories import check_strict
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES, RemoveMessage
from langgraph.types import Command, interrupt
from polign_recall import Client, LeaseLost, StoreDenied
from pydantic import BaseModel
from recall_langgraph import RecallResume
from recall_langgraph.messages import NO_REPLY
from recall_langgraph.pairing import UNKNOWN
from running import GO, MODES, WatchedStore, agent_for, ids, look, play, recorded
from scripted_chat import ScriptedChat

ROUNDS = [[("look", {"at": "a"}), ("look", {"at": "b"})], [("look", {"at": "c"})], "All done."]

every_mode = pytest.mark.parametrize("mode", MODES)


def thread(name="1"):
    return {"configurable": {"thread_id": name}}


# -- what is recorded


@every_mode
async def test_turns_are_the_thread_once_and_in_order(mode, tmp_path):
    model = ScriptedChat(script=ROUNDS)
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model), GO)
    turns = recorded(tmp_path)
    assert ids(turns) == ids(state["messages"])
    assert [turn.role for turn in turns] == [*["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]]
    assert [turn.seq for turn in turns] == list(range(1, 8))
    assert [call.args for call in turns[1].calls] == [{"at": "a"}, {"at": "b"}]
    assert [turn.call_id for turn in turns[2:4]] == [call.id for call in turns[1].calls]
    assert [turn.content for turn in turns[2:4]] == ["seen a", "seen b"]


@every_mode
async def test_resumed_model_starts_from_the_briefing_and_only_the_model_sees_it(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        assert resume.context.fresh
        model = ScriptedChat(script=ROUNDS)
        await play(mode, agent_for(resume, model), GO)
        resume.agent.update_working_state(goal="Find the needle.")
        assert all("needle" not in sent[0].text for sent in model.inputs)
        assert [message.text for message in model.inputs[0]] == ["Go."]
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=ROUNDS)
        saver = InMemorySaver()
        graph = agent_for(resume, model, prompt="Be brief.", checkpointer=saver)
        state = await play(mode, graph, GO, thread())
        briefing = resume.briefing
        kept = graph.get_state(thread()).values["messages"]
    assert "Find the needle." in briefing
    assert len(model.inputs) == 3
    leading = [sent[:2] for sent in model.inputs]
    assert leading[0] == leading[1] == leading[2]
    assert [message.text for message in leading[0]] == ["Be brief.", f"{briefing}\n\nGo."]
    for messages in model.inputs:
        check_strict(messages)
    for message in (*state["messages"], *kept):
        assert "needle" not in message.text
    assert all("needle" not in str(turn.content) for turn in recorded(tmp_path))


@every_mode
async def test_reply_is_durable_before_its_tools_run(mode, tmp_path):
    seen = []

    @tool
    def peek() -> str:
        """Read the records as another process would."""
        seen.append([turn.role for turn in recorded(tmp_path)])
        return "ok"

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("peek", {})], [("peek", {})], "Done."])
        await play(mode, agent_for(resume, model, [peek]), GO)
    assert seen == [["user", "assistant"], ["user", "assistant", "tool", "assistant"]]


@every_mode
async def test_model_thinks_while_its_input_is_written(mode, tmp_path):
    store = WatchedStore(tmp_path)
    thinking = threading.Event()
    model = ScriptedChat(script=["Done."], thinking=lambda messages: thinking.set())
    waited = []

    def wait_for_the_model(key):
        waited.append(thinking.wait(timeout=30))

    async with RecallResume("agent", store=store) as resume:
        store.before_create = wait_for_the_model
        await play(mode, agent_for(resume, model, []), GO)
        store.before_create = lambda key: None
    assert waited[0] is True


@pytest.mark.parametrize("mode", ["ainvoke", "astream"])
async def test_async_hooks_leave_the_store_to_other_threads(mode, tmp_path):
    store = WatchedStore(tmp_path)

    @tool
    async def large() -> str:
        """Give something that is stored as an output."""
        return "word " * 20_000

    for _ in range(2):
        model = ScriptedChat(script=[[("large", {})], "Done."])
        async with RecallResume("agent", store=store) as resume:
            await play(mode, agent_for(resume, model, [large]), GO)
            await resume.arecord([HumanMessage("More.")])
    assert store.threads
    assert threading.get_ident() not in store.threads
    turns = recorded(tmp_path)
    assert [turn.role for turn in turns] == 2 * ["user", "assistant", "tool", "assistant", "user"]
    assert turns[2].size == 100_000


async def test_pictures_are_stored_as_outputs(tmp_path):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 500}}

    @tool
    def paint() -> list:
        """Paint."""
        return [{"type": "text", "text": "Here."}, picture]

    with RecallResume("agent", local_dir=tmp_path) as resume:
        agent_for(resume, ScriptedChat(script=[[("paint", {})], "Done."]), [paint]).invoke(GO)
        (text, part) = recorded(tmp_path)[2].content
        reference = part["image_url"]["url"].split()[0]
        assert (text["text"], resume.agent.fetch_output(reference, length=6)) == ("Here.", b"\x89PNG\r\n")


def test_failed_tool_is_recorded_as_failed(tmp_path):
    @tool
    def divide(by: int) -> str:
        """Divide."""
        return str(1 // by)

    with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("divide", {"by": "x"})], "Done."])
        agent_for(resume, model, [divide]).invoke(GO)
    assert [turn.status for turn in recorded(tmp_path)] == [None, None, "error", None]


def test_state_may_be_a_pydantic_object(tmp_path):
    from typing import Annotated

    from langgraph.graph.message import add_messages

    class State(BaseModel):
        messages: Annotated[list, add_messages]
        remaining_steps: int = 25

    with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=ROUNDS), state_schema=State)
        state = graph.invoke(GO)
    assert ids(recorded(tmp_path)) == ids(state["messages"])


# -- old threads


@every_mode
async def test_restored_thread_is_recorded_once(mode, tmp_path):
    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        await play(mode, agent_for(resume, ScriptedChat(script=ROUNDS), checkpointer=saver), GO, thread())
    for _ in range(2):
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            model = ScriptedChat(script=ROUNDS)
            graph = agent_for(resume, model, checkpointer=saver)
            state = await play(mode, graph, {"messages": [("user", "And again.")]}, thread())
            for messages in model.inputs:
                check_strict(messages)
    assert ids(recorded(tmp_path)) == ids(state["messages"])


def test_thread_that_is_older_than_the_turns_at_hand_is_recorded_once(tmp_path):
    saver = InMemorySaver()
    with RecallResume("agent", local_dir=tmp_path) as resume:
        agent_for(resume, ScriptedChat(script=ROUNDS), checkpointer=saver).invoke(GO, thread())
        resume.record([HumanMessage(f"other {number}") for number in range(100)])
    with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=["Hello."]), checkpointer=saver)
        state = graph.invoke({"messages": [("user", "Still there?")]}, thread())
    turns = recorded(tmp_path)
    assert len(turns) == 7 + 100 + 2
    assert ids(turns[:7]) + ids(turns[-2:]) == ids(state["messages"])


def test_messages_that_the_caller_kept_are_recorded_once(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        state = agent_for(resume, ScriptedChat(script=ROUNDS)).invoke(GO)
    for _ in range(3):
        with RecallResume("agent", local_dir=tmp_path) as resume:
            graph = agent_for(resume, ScriptedChat(script=["Yes."]))
            state = graph.invoke({"messages": [*state["messages"], ("user", "More?")]})
    assert ids(recorded(tmp_path)) == ids(state["messages"])


def test_cut_and_replaced_messages_are_not_recorded_again(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=["One.", "Two.", "Three."])
        graph = agent_for(resume, model, [], checkpointer=InMemorySaver())
        first, second = graph.invoke(GO, thread())["messages"]
        edited = [HumanMessage("Edited.", id=first.id), RemoveMessage(id=second.id), ("user", "a")]
        graph.invoke({"messages": edited}, thread())
        graph.update_state(thread(), {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
        graph.invoke({"messages": [HumanMessage("Kept.", id=first.id), ("user", "b")]}, thread())
    assert [turn.content for turn in recorded(tmp_path)] == ["Go.", "One.", "a", "Two.", "b", "Three."]


@every_mode
async def test_interrupted_tool_is_resumed_without_a_second_turn(mode, tmp_path):
    @tool
    def ask() -> str:
        """Ask a person."""
        return interrupt("May I?")

    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=[[("ask", {})]]), [ask], checkpointer=saver)
        await play(mode, graph, GO, thread())
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=["Thanks."])
        graph = agent_for(resume, model, [ask], checkpointer=saver)
        state = await play(mode, graph, Command(resume="Yes."), thread())
    assert [message.text for message in state["messages"]] == ["Go.", "", "Yes.", "Thanks."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


@every_mode
async def test_interrupted_thread_goes_on_with_a_new_message(mode, tmp_path):
    @tool
    def ask() -> str:
        """Ask a person."""
        return interrupt("May I?")

    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("ask", {})], "Then not."])
        graph = agent_for(resume, model, [ask], checkpointer=saver)
        await play(mode, graph, GO, thread())
        state = await play(mode, graph, {"messages": [("user", "Never mind.")]}, thread())
    check_strict(model.inputs[1])
    assert [message.text for message in model.inputs[1]][2:] == [UNKNOWN, NO_REPLY, "Never mind."]
    assert [message.text for message in state["messages"]] == ["Go.", "", "Never mind.", "Then not."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


# -- what the user sees


@pytest.mark.parametrize("mode", ["stream", "astream"])
async def test_message_stream_shows_nothing_that_was_meant_for_the_model(mode, tmp_path):
    @tool
    def ask() -> str:
        """Ask a person."""
        return interrupt("May I?")

    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=[[("ask", {})]]), [ask], checkpointer=saver)
        await play("ainvoke", graph, {"messages": [("ai", "Welcome."), ("user", "Go.")]}, thread())
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("look", {"at": "a"})], "All done."])
        graph = agent_for(resume, model, [ask, look], checkpointer=saver)
        given = {"messages": [("user", "Never mind.")]}
        if mode == "stream":
            chunks = list(graph.stream(given, thread(), stream_mode="messages"))
        else:
            chunks = [chunk async for chunk in graph.astream(given, thread(), stream_mode="messages")]
    assert [message.text for message in model.inputs[0]][-3:] == [UNKNOWN, NO_REPLY, "Never mind."]
    assert "".join(message.text for message, _ in chunks) == "seen aAll done. "


# -- losing the agent


@every_mode
async def test_holder_that_was_taken_over_stops_before_the_tools(mode, tmp_path):
    ran = []

    @tool
    def act() -> str:
        """Act on the world."""
        ran.append(1)
        return "ok"

    thieves = []

    def lose_it(messages):
        resume.agent.flush()
        client = Client(local_dir=tmp_path)
        thieves.append(client.resume("agent", takeover=True))

    model = ScriptedChat(script=[[("act", {})], "Done."], thinking=lose_it)
    resume = RecallResume("agent", local_dir=tmp_path)
    with pytest.raises(LeaseLost) as lost:
        async with resume:
            await play(mode, agent_for(resume, model, [act]), GO)
    assert lost.value.epoch == thieves[0].epoch == 2
    assert not ran
    assert len(model.inputs) == 1
    thieves[0].close()
    assert [turn.role for turn in recorded(tmp_path)] == ["user"]


@every_mode
async def test_model_is_not_asked_once_the_loss_is_known(mode, tmp_path):
    @tool
    def lose_it() -> str:
        """Lose the agent, and notice."""
        client.resume("agent", takeover=True)
        with pytest.raises(LeaseLost):
            resume.agent.milestone("too late")
        return "ok"

    model = ScriptedChat(script=[[("lose_it", {})], "Done."])
    with Client(local_dir=tmp_path) as client:
        resume = RecallResume("agent", local_dir=tmp_path)
        with pytest.raises(LeaseLost):
            async with resume:
                await play(mode, agent_for(resume, model, [lose_it]), GO)
        assert len(model.inputs) == 1


# -- trouble


@every_mode
async def test_write_that_failed_is_tried_again_with_the_reply(mode, tmp_path):
    store = WatchedStore(tmp_path)
    failures = []

    def fail_once(key):
        if not failures:
            failures.append(key)
            raise StoreDenied("may not write")

    def until_it_failed(messages):
        assert failed.wait(timeout=30)

    failed = threading.Event()
    async with RecallResume("agent", store=store) as resume:
        model = ScriptedChat(script=["Done."], thinking=until_it_failed)
        submit = resume.agent.submit

        def watched(*records, **how):
            future = submit(*records, **how)
            future.add_done_callback(lambda _: failed.set())
            return future

        resume.agent.submit = watched
        store.before_create = fail_once
        await play(mode, agent_for(resume, model, []), GO)
    assert failures
    assert [turn.content for turn in recorded(tmp_path)] in (["Go.", "Done."], ["Go.", "Done. "])


async def test_cancelled_step_is_recorded_all_the_same(tmp_path):
    store = WatchedStore(tmp_path)
    reached, go_on = threading.Event(), threading.Event()

    def hold(key):
        reached.set()
        assert go_on.wait(timeout=30)

    async with RecallResume("agent", store=store) as resume:
        store.before_create = hold
        step = asyncio.create_task(resume.arecord([("user", "Go."), ("ai", "Done.")]))
        await asyncio.to_thread(reached.wait, 30)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        go_on.set()
    assert [turn.content for turn in recorded(tmp_path)] == ["Go.", "Done."]


def test_idle_restarts_leave_the_briefing_as_it_is(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        agent_for(resume, ScriptedChat(script=ROUNDS)).invoke(GO)
    sizes = []
    for _ in range(50):
        with RecallResume("agent", local_dir=tmp_path) as resume:
            sizes.append(len(resume.briefing))
    assert max(sizes) - min(sizes) <= len("(50 restarts so far)")
    assert len(recorded(tmp_path)) == 7


def test_threads_that_bring_the_same_messages_record_them_once(tmp_path):
    history = [
        message
        for number in range(30)
        for message in (
            HumanMessage("u", id=f"u{number}"),
            AIMessage("", id=f"a{number}", tool_calls=[{"id": f"c{number}", "name": "look", "args": {}}]),
            ToolMessage("t", id=f"t{number}", tool_call_id=f"c{number}"),
        )
    ]
    with RecallResume("agent", local_dir=tmp_path) as resume:
        prepare = resume.agent.prepare_turn

        def prepare_slowly(**fields):
            time.sleep(0.001)  # lets the other threads in
            return prepare(**fields)

        resume.agent.prepare_turn = prepare_slowly

        def grow():
            for end in range(1, len(history) + 1):
                resume.record(history[:end])

        workers = [threading.Thread(target=grow) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert ids(recorded(tmp_path)) == ids(history)
