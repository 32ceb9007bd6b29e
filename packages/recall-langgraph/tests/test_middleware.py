"""RecallMiddleware in the real create_agent: what is recorded, when, and what the model and the user are shown."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware, after_model, before_model, dynamic_prompt
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from making import made_for
from polign_recall import Client, LeaseLost, LeaseNotHeld
from providers import check_input
from pydantic import BaseModel
from recall_langgraph import RecallMiddleware, RecallResume, recall_tools
from running import GO, MODES, WatchedStore, ids, look, play, recorded, thread
from scripted_chat import ScriptedChat

ROUNDS = [[("look", {"at": "a"}), ("look", {"at": "b"})], [("look", {"at": "c"})], "All done."]

every_mode = pytest.mark.parametrize("mode", MODES)


# -- what is recorded, and what the model is sent


@every_mode
async def test_turns_are_the_thread_once_and_in_order(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, made_for(resume, ScriptedChat(script=ROUNDS)), GO)
    turns = recorded(tmp_path)
    assert ids(turns) == ids(state["messages"])
    assert [turn.role for turn in turns] == [*["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]]
    assert [turn.content for turn in turns[2:4]] == ["seen a", "seen b"]


@every_mode
async def test_briefing_is_in_the_request_only_and_the_system_prompt_is_untouched(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=ROUNDS)
        await play(mode, made_for(resume, model), GO)
        resume.agent.update_working_state(goal="Find the needle.")
        assert [message.text for message in model.inputs[0]] == ["Go."]
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=ROUNDS)
        prompt = SystemMessage([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
        graph = made_for(resume, model, system_prompt=prompt, checkpointer=InMemorySaver())
        state = await play(mode, graph, GO, thread())
        kept = graph.get_state(thread()).values["messages"]
        leading = [sent[:2] for sent in model.inputs]
        assert leading[0] == leading[1] == leading[2]
        assert [leading[0][0].content, leading[0][1].text] == [prompt.content, f"{resume.briefing}\n\nGo."]
        assert "Find the needle." in resume.briefing
    for messages in model.inputs:
        check_input(messages)
    assert all("needle" not in message.text for message in (*state["messages"], *kept))
    assert all("needle" not in str(turn.content) for turn in recorded(tmp_path))


@every_mode
async def test_system_messages_of_the_thread_join_the_system_prompt(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=["One.", "Two."])
        given = {"messages": [SystemMessage("rules"), ("user", "Go.")]}
        await play(mode, made_for(resume, model, system_prompt="Be brief."), given)
        await play(mode, made_for(resume, model), given)
    assert [[m.type for m in sent] for sent in model.inputs] == [["system", "human"], ["system", "human"]]
    assert [sent[0].text for sent in model.inputs] == ["Be brief.\n\nrules", "rules"]


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
        await play(mode, made_for(resume, model, [peek]), GO)
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
        await play(mode, made_for(resume, model, []), GO)
        store.before_create = lambda key: None
    assert waited[0] is True


@pytest.mark.parametrize("mode", ["ainvoke", "astream"])
async def test_event_loop_never_waits_for_the_store(mode, tmp_path):
    store = WatchedStore(tmp_path)

    @tool
    async def large() -> str:
        """Give something that is stored as an output."""
        return "word " * 20_000

    for _ in range(2):
        model = ScriptedChat(script=[[("large", {}), ("milestone", {"text": "m"})], "Done."])
        async with RecallResume("agent", store=store) as resume:
            await play(mode, made_for(resume, model, [large]), GO)
    assert store.threads
    assert threading.get_ident() not in store.threads


@every_mode
async def test_recall_tools_come_with_it(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        script = [[("update_working_state", {"goal": "Ship it."}), ("milestone", {"text": "begun"})], "Done."]
        graph = made_for(resume, ScriptedChat(script=script), [])
        state = await play(mode, graph, GO)
        assert resume.agent.working_state.goal == "Ship it."
        assert [stone.text for stone in resume.agent.refresh().milestones] == ["begun"]
        assert [message.text.strip() for message in state["messages"]] == ["Go.", "", "saved", "saved", "Done."]


def test_tools_that_the_user_gave_as_well_are_there_once(tmp_path):
    bound = []

    class Bound(ScriptedChat):
        def bind_tools(self, tools, **kwargs):
            bound.append([each.name for each in tools])
            return self

    with RecallResume("agent", local_dir=tmp_path) as resume:
        made_for(resume, Bound(script=["Done."]), [look, *recall_tools(resume)]).invoke(GO)
    assert sorted(bound[0]) == ["fetch_output", "look", "milestone", "set_pointer", "update_working_state"]


def test_outside_the_with_block_it_says_what_to_do(tmp_path):
    resume = RecallResume("agent", local_dir=tmp_path)
    graph = made_for(resume, ScriptedChat(script=["Done."]))
    with pytest.raises(LeaseNotHeld, match="with RecallResume"):
        graph.invoke(GO)
    with resume:
        assert graph.invoke(GO)["messages"][-1].text == "Done."


# -- what the user sees


@pytest.mark.parametrize("mode", ["stream", "astream"])
async def test_streams_show_the_conversation_alone(mode, tmp_path):
    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = made_for(resume, ScriptedChat(script=[[("look", {"at": "a"})]]), checkpointer=saver)
        # Interrupted between a call and its tool: the model will be shown a result that was made up.
        graph.interrupt_before_nodes = ["tools"]
        await play("ainvoke", graph, {"messages": [("ai", "Welcome."), ("user", "Go.")]}, thread())
        resume.agent.update_working_state(goal="needle")
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("look", {"at": "b"})], "All done."])
        graph = made_for(resume, model, checkpointer=saver)
        given, modes = {"messages": [("user", "Never mind.")]}, ["messages", "updates", "values"]
        if mode == "stream":
            chunks = list(graph.stream(given, thread(), stream_mode=modes))
        else:
            chunks = [chunk async for chunk in graph.astream(given, thread(), stream_mode=modes)]
    assert "outcome unknown" in str(model.inputs[0])
    assert "needle" in str(model.inputs[0])
    assert "needle" not in str(chunks)
    assert "outcome unknown" not in str(chunks)
    assert "no reply was recorded" not in str(chunks)
    tokens = [message for kind, (message, *_) in ((k, c) for k, c in chunks if k == "messages")]
    assert "".join(message.text for message in tokens) == "seen bAll done. "
    updates = [update for kind, update in chunks if kind == "updates"]
    assert {name for update in updates for name, value in update.items() if value} == {"model", "tools"}


# -- losing the agent


@every_mode
@pytest.mark.parametrize("retried", [False, True])
async def test_holder_that_was_taken_over_does_not_run_the_tools(mode, retried, tmp_path):
    ran = []

    @tool
    def act() -> str:
        """Act on the world."""
        ran.append(1)
        return "ok"

    thieves = []

    def lose_it(messages):
        resume.agent.flush()  # what the user said is durable by now
        thieves.append(Client(local_dir=tmp_path).resume("agent", takeover=True))

    model = ScriptedChat(script=[[("act", {}), ("milestone", {"text": "mine"})], "Done."], thinking=lose_it)
    before = [ToolRetryMiddleware(initial_delay=0)] if retried else []
    resume = RecallResume("agent", local_dir=tmp_path)
    with pytest.raises(LeaseLost) as lost:
        async with resume:
            await play(mode, made_for(resume, model, [act], before=before), GO)
    assert lost.value.epoch == thieves[0].epoch == 2
    assert not ran
    assert len(model.inputs) == 1
    thieves[0].close()
    assert [turn.role for turn in recorded(tmp_path)] == ["user"]


@every_mode
async def test_loss_that_is_known_stops_the_tool_that_comes_next(mode, tmp_path):
    ran = []

    @tool
    def lose_it() -> str:
        """Lose the agent, and notice."""
        client.resume("agent", takeover=True).close()
        with pytest.raises(LeaseLost):
            resume.agent.milestone("too late")
        return "ok"

    @tool
    def act() -> str:
        """Act on the world."""
        ran.append(1)
        return "ok"

    @before_model(can_jump_to=["tools"])
    def straight_to_the_tool(state, runtime):
        """Call a tool without asking the model: the only way to one that no model call precedes."""
        if len(model.inputs) != 1:
            return None
        call = {"name": "act", "args": {}, "id": "made"}
        return {"messages": [AIMessage("", tool_calls=[call])], "jump_to": "tools"}

    model = ScriptedChat(script=[[("lose_it", {})], "Done."])
    with Client(local_dir=tmp_path) as client:
        resume = RecallResume("agent", local_dir=tmp_path)
        with pytest.raises(LeaseLost):
            async with resume:
                await play(mode, made_for(resume, model, [lose_it, act], before=[straight_to_the_tool]), GO)
    assert (ran, len(model.inputs)) == ([], 1)


# -- concurrent runs


def test_one_instance_serves_threads(tmp_path):
    models = {}

    def run(name):
        model = models[name] = ScriptedChat(script=[[("look", {"at": name})], f"Done {name}."])
        ours = graph_for(model)
        return ours.invoke({"messages": [("user", f"Go {name}.")]}, thread(name))

    with RecallResume("agent", local_dir=tmp_path) as resume:
        middleware = RecallMiddleware(resume)
        saver = InMemorySaver()

        def graph_for(model):
            return create_agent(model, [look], middleware=[middleware], checkpointer=saver)

        before = dict(vars(middleware))
        with ThreadPoolExecutor(8) as pool:
            states = list(pool.map(run, [str(number) for number in range(24)]))
        assert vars(middleware) == before
    check_separate(states, models, recorded(tmp_path))


async def test_one_instance_serves_tasks(tmp_path):
    models = {}
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        saver = InMemorySaver()

        async def run(name):
            model = models[name] = ScriptedChat(script=[[("look", {"at": name})], f"Done {name}."])
            graph = made_for(resume, model, checkpointer=saver)
            return await graph.ainvoke({"messages": [("user", f"Go {name}.")]}, thread(name))

        states = await asyncio.gather(*(run(str(number)) for number in range(24)))
    check_separate(states, models, recorded(tmp_path))


def check_separate(states, models, turns):
    """Each run saw its own messages alone; each was recorded once, those of one run in their order."""
    order = {turn.message_id: turn.seq for turn in turns}
    assert len(order) == len(turns) == 24 * 4
    for name, state in zip(models, states, strict=True):
        assert [message.text for message in state["messages"]] == [f"Go {name}.", "", f"seen {name}", f"Done {name}."]
        seqs = [order[message.id] for message in state["messages"]]
        assert seqs == sorted(seqs)
    for name, model in models.items():
        assert model.inputs[1][0].text == f"Go {name}."
        assert [message.text for message in model.inputs[1]][2] == f"seen {name}"


# -- what create_agent can do


class Weather(BaseModel):
    """The weather."""

    degrees: int


@every_mode
async def test_structured_output(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        script = [[("look", {"at": "a"})], [("Weather", {"degrees": "warm"})], [("Weather", {"degrees": 20})]]
        model = ScriptedChat(script=script)
        graph = made_for(resume, model, response_format=ToolStrategy(Weather), classes=None)
        state = await play(mode, graph, GO)
    assert state["structured_response"] == Weather(degrees=20)
    assert ids(recorded(tmp_path)) == ids(state["messages"])
    assert [turn.role for turn in recorded(tmp_path)] == ["user", *(["assistant", "tool"] * 3)]
    for messages in model.inputs:
        check_input(messages)


@every_mode
async def test_result_that_ends_the_run_is_recorded(mode, tmp_path):
    @tool(return_direct=True)
    def answer() -> str:
        """Answer for good."""
        return "42"

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, made_for(resume, ScriptedChat(script=[[("answer", {})]]), [answer]), GO)
    assert [turn.content for turn in recorded(tmp_path)] == ["Go.", "", "42"]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


@every_mode
@pytest.mark.parametrize("ours_first", [True, False])
async def test_jumps_of_other_middleware(mode, ours_first, tmp_path):
    @before_model(can_jump_to=["end"])
    def stop(state, runtime):
        """End the run once a tool has answered."""
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("Enough.")], "jump_to": "end"}
        return None

    @after_model(can_jump_to=["model"])
    def again(state, runtime):
        """Send a short reply back once."""
        if state["messages"][-1].text.strip() == "Hm.":
            return {"messages": [HumanMessage("Be clear.")], "jump_to": "model"}
        return None

    others = {"after": [stop, again]} if ours_first else {"before": [stop, again]}
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=["Hm.", [("look", {"at": "a"})]])
        state = await play(mode, made_for(resume, model, **others), GO)
    texts = [message.text.strip() for message in state["messages"]]
    assert texts == ["Go.", "Hm.", "Be clear.", "", "seen a", "Enough."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


@every_mode
async def test_commands_of_tools(mode, tmp_path):
    @tool
    def hand_over(runtime: "ToolRuntime") -> Command:
        """Say more than a result."""
        told = ToolMessage("handed over", tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [told, HumanMessage("And hurry.")]})

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("hand_over", {}), ("look", {"at": "a"})], "Done."])
        state = await play(mode, made_for(resume, model, [hand_over, look]), GO)
    assert [m.text.strip() for m in state["messages"]] == ["Go.", "", "handed over", "And hurry.", "seen a", "Done."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])
    check_input(model.inputs[1])


@every_mode
async def test_dynamic_prompt(mode, tmp_path):
    @dynamic_prompt
    def prompt(request):
        return f"You have {len(request.state['messages'])} messages."

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=ROUNDS[1:])
        await play(mode, made_for(resume, model, before=[prompt]), GO)
    assert [sent[0].text for sent in model.inputs] == ["You have 1 messages.", "You have 3 messages."]
    assert [sent[1].text for sent in model.inputs] == ["Go.", "Go."]


@every_mode
async def test_unreadable_call_is_answered_once(mode, tmp_path):
    class Mumbling(ScriptedChat):
        def _next(self, messages):
            reply = super()._next(messages)
            if len(self.inputs) > 1:
                return reply
            call = {"id": "bad", "name": "look", "args": "{", "error": "no JSON", "type": "invalid_tool_call"}
            return AIMessage("", invalid_tool_calls=[call])

        def _stream(self, messages, *args, **kwargs):
            raise NotImplementedError

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = Mumbling(script=["", "Done."], disable_streaming=True)
        graph = made_for(resume, model, checkpointer=InMemorySaver())
        await play(mode, graph, GO, thread())
        state = await play(mode, graph, {"messages": [("user", "Again.")]}, thread())
    assert set(ids(recorded(tmp_path))) == set(ids(state["messages"]))
    assert len(recorded(tmp_path)) == len(state["messages"])
    check_input(model.inputs[1])


# -- checkpointers


@pytest.mark.parametrize("mode", ["invoke", "stream"])
def test_thread_restored_from_sqlite(mode, tmp_path):
    for number in range(3):
        with (
            SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
            RecallResume("agent", local_dir=tmp_path / "records") as resume,
        ):
            model = ScriptedChat(script=ROUNDS)
            graph = made_for(resume, model, checkpointer=saver)
            state = asyncio.run(play(mode, graph, {"messages": [("user", f"Go {number}.")]}, thread()))
            for messages in model.inputs:
                check_input(messages)
    assert ids(recorded(tmp_path / "records")) == ids(state["messages"])
    assert len(state["messages"]) == 3 * 7


@pytest.mark.parametrize("mode", ["ainvoke", "astream"])
async def test_thread_restored_from_sqlite_async(mode, tmp_path):
    for number in range(3):
        async with (
            AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
            RecallResume("agent", local_dir=tmp_path / "records") as resume,
        ):
            graph = made_for(resume, ScriptedChat(script=ROUNDS), checkpointer=saver)
            state = await play(mode, graph, {"messages": [("user", f"Go {number}.")]}, thread())
    assert ids(recorded(tmp_path / "records")) == ids(state["messages"])


def test_old_thread_that_was_never_recorded_is_recorded_in_order(tmp_path):
    saver = InMemorySaver()
    create_agent(ScriptedChat(script=ROUNDS), [look], checkpointer=saver).invoke(GO, thread())
    with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = made_for(resume, ScriptedChat(script=ROUNDS), checkpointer=saver)
        state = graph.invoke({"messages": [("user", "More.")]}, thread())
    assert ids(recorded(tmp_path)) == ids(state["messages"])
