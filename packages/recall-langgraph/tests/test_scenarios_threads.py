"""Old threads that a checkpointer restores, in SQLite and in a real PostgreSQL: recorded once, sent well paired."""

import pickle
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from histories import reply, result, user
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import create_react_agent
from polign_recall.testing import servers
from providers import check_input, check_inputs
from recall_langgraph import RecallResume
from recall_langgraph.pairing import UNKNOWN
from running import GO, MODES, agent_for, check_records, ids, look, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
MORE = {"messages": [("user", "And now?")]}


@pytest.fixture(scope="session")
def postgres():
    with servers.postgres() as server:
        yield server


@pytest.fixture
def database(request, kind, tmp_path):
    """Where the threads are: a file, or an empty database of the server."""
    if kind == "sqlite":
        return str(tmp_path / "threads.db")
    server = request.getfixturevalue("postgres")
    name = f"t{uuid4().hex[:12]}"
    server.sql(f"CREATE DATABASE {name}")
    return f"postgresql://postgres:{server.env['PGPASSWORD']}@127.0.0.1:{server.port}/{name}"


@asynccontextmanager
async def opened(kind, database, mode):
    """A checkpointer of this kind for graphs that are run in this mode, as a new process opens it."""
    if mode.startswith("a"):
        saver_type = AsyncSqliteSaver if kind == "sqlite" else AsyncPostgresSaver
        async with saver_type.from_conn_string(database) as saver:
            await saver.setup()
            yield saver
    else:
        saver_type = SqliteSaver if kind == "sqlite" else PostgresSaver
        with saver_type.from_conn_string(database) as saver:
            saver.setup()
            yield saver


async def converse(mode, saver, rounds, directory=None, name="1"):
    """Some rounds in a thread, by an agent that keeps records in a directory, or by one without; gives the messages."""
    model = ScriptedChat(script=rounds * [[("look", {"at": "a"})], "Done."])
    graph = create_react_agent(model, [look], checkpointer=saver)
    if directory is None:
        for _ in range(rounds):
            state = await play(mode, graph, MORE, thread(name))
    else:
        async with RecallResume("agent", local_dir=directory) as resume:
            graph = agent_for(resume, model, checkpointer=saver)
            for _ in range(rounds):
                state = await play(mode, graph, MORE, thread(name))
        check_inputs(model)
    return state["messages"]


both_databases = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@both_databases
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_old_thread_of_which_some_is_recorded(kind, mode, database, tmp_path):
    """80 messages in turns with and without records, more than are at hand when the agent is opened."""
    for rounds, directory in ((3, None), (4, tmp_path), (2, None), (9, tmp_path), (1, None), (1, tmp_path)):
        async with opened(kind, database, mode) as saver:
            messages = await converse(mode, saver, rounds, directory)
    assert len(messages) == 80
    check_records(tmp_path, messages)


@both_databases
@pytest.mark.parametrize("mode", ["stream", "astream"])
async def test_new_thread_of_an_old_agent(kind, mode, database, tmp_path):
    async with opened(kind, database, mode) as saver:
        first = await converse(mode, saver, 3, tmp_path, "old")
    async with opened(kind, database, mode) as saver:
        second = await converse(mode, saver, 3, tmp_path, "new")
    async with opened(kind, database, mode) as saver:
        third = await converse(mode, saver, 1, tmp_path, "old")
    assert third[: len(first)] == first
    check_records(tmp_path, [*first, *second, *third[len(first) :]])


@both_databases
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_thread_that_was_broken_off_amid_its_tools(kind, mode, database, tmp_path):
    async with opened(kind, database, mode) as saver:
        await converse(mode, saver, 1, tmp_path)
        graph = create_react_agent(ScriptedChat(script=[]), [look], checkpointer=saver)
        broken = [user("Look twice.", id="u"), reply("", "c1", "c2", id="a"), result("c2", "half", id="t")]
        await (graph.aupdate_state if mode == "ainvoke" else _as_async(graph.update_state))(
            thread(), {"messages": broken}
        )
    model = ScriptedChat(script=["Done."])
    async with opened(kind, database, mode) as saver, RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, checkpointer=saver), MORE, thread())
    check_inputs(model)
    sent = [message.text for message in model.inputs[0] if message.type == "tool"]
    assert sent == ["seen a", UNKNOWN, "half"]
    check_records(tmp_path, state["messages"])


def _as_async(function):
    async def call(*args):
        return function(*args)

    return call


@every_mode
async def test_thread_that_was_trimmed_amid_a_pair(mode, tmp_path):
    """The oldest messages are removed, a call among them and not its result."""
    saver = InMemorySaver()
    messages = await converse(mode, saver, 6, tmp_path)
    graph = create_react_agent(ScriptedChat(script=[]), [look], checkpointer=saver)
    graph.update_state(thread(), {"messages": [RemoveMessage(message.id) for message in messages[:2]]})
    model = ScriptedChat(script=[[("look", {"at": "b"})], "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, checkpointer=saver), MORE, thread())
    check_inputs(model)
    assert "seen a" in model.inputs[0][0].text  # the result without its call, as quoted text
    check_records(tmp_path, [*messages[:2], *state["messages"]])


@every_mode
async def test_messages_that_are_removed_while_the_agent_works(mode, tmp_path):
    """A trimming hook of the user's own, around ours: it removes from the thread at every step."""
    saver, model = InMemorySaver(), ScriptedChat(script=[[("look", {"at": str(n)})] for n in range(6)] + ["Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:

        def trim(state):
            resume.post_model_hook.invoke(state)
            return {"messages": [RemoveMessage(message.id) for message in state["messages"][:-3]]}

        hooks = {"pre_model_hook": resume.pre_model_hook, "post_model_hook": trim}
        graph = create_react_agent(model, [look], checkpointer=saver, **hooks)
        state = await play(mode, graph, GO, thread())
    check_inputs(model)
    turns = recorded(tmp_path)
    assert [turn.role for turn in turns] == ["user", *["assistant", "tool"] * 6, "assistant"]
    assert len(set(ids(turns))) == len(turns)
    assert set(ids(state["messages"])) <= set(ids(turns))


@every_mode
async def test_thread_whose_history_was_edited(mode, tmp_path):
    """A message is replaced, another put in between, the rest written anew: what is new is recorded, once."""
    saver = InMemorySaver()
    old = await converse(mode, saver, 2, tmp_path)
    graph = create_react_agent(ScriptedChat(script=[]), [look], checkpointer=saver)
    edited = [
        *[RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("Edited.", id=old[0].id)],
        *[AIMessage("Put in between.", id="between"), *old[4:], HumanMessage("An afterthought.", id="after")],
    ]
    graph.update_state(thread(), {"messages": edited})
    for _ in range(2):
        model = ScriptedChat(script=["Done."])
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            state = await play(mode, agent_for(resume, model, checkpointer=saver), MORE, thread())
        check_inputs(model)
    turns = recorded(tmp_path)
    assert ids(turns[: len(old)]) == ids(old)
    assert [turn.content.strip() for turn in turns[len(old) :]] == [
        *("Put in between.", "An afterthought.", "And now?", "Done.", "And now?", "Done.")
    ]
    assert len(set(ids(turns))) == len(turns)
    assert set(ids(state["messages"])) <= set(ids(turns))


@every_mode
async def test_thread_that_is_taken_up_at_an_earlier_point(mode, tmp_path):
    """Time travel: the thread goes on from an old checkpoint; both branches are recorded, what they share once."""
    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=["One.", "Two."]), [], checkpointer=saver)
        first = (await play(mode, graph, GO, thread()))["messages"]
        await play(mode, graph, MORE, thread())
        earlier = next(s for s in graph.get_state_history(thread()) if len(s.values.get("messages", ())) == 2)
    model = ScriptedChat(script=["Other."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, model, [], checkpointer=saver)
        state = await play(mode, graph, {"messages": [("user", "Or rather?")]}, earlier.config)
    check_inputs(model)
    assert ids(state["messages"])[:2] == ids(first)
    contents = [turn.content.strip() for turn in recorded(tmp_path)]
    assert contents == ["Go.", "One.", "And now?", "Two.", "Or rather?", "Other."]


def test_what_was_undone_and_redone_is_recorded_once(tmp_path):
    """Old messages leave the thread and come back behind new ones."""
    saver = InMemorySaver()
    with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=["One."]), [], checkpointer=saver)
        old = graph.invoke(GO, thread())["messages"]
        resume.record([HumanMessage(f"other {number}") for number in range(50)])
    with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=["Two.", "Three.", "Four."])
        graph = agent_for(resume, model, [], checkpointer=saver)
        graph.invoke(MORE, thread())
        graph.update_state(thread(), {"messages": [RemoveMessage(message.id) for message in old]})
        graph.invoke(MORE, thread())
        graph.invoke({"messages": [*old, ("user", "Once more?")]}, thread())
    check_inputs(model)
    turns = recorded(tmp_path)
    assert len(turns) == 2 + 50 + 6
    assert len(set(ids(turns))) == len(turns)


def test_result_that_only_the_records_have_is_shown_where_its_call_is_certain(tmp_path):
    """Some models count their calls from zero in every reply: then an id does not tell which of them was answered."""
    talk = [
        user("one"),
        reply("", "0"),
        result("0", "first"),
        reply("ok"),
        user("two"),
        reply("", "0", "c"),
        result("c"),
    ]
    with RecallResume("agent", local_dir=tmp_path) as resume:
        resume.record(talk)
    thread_has = [message for message in talk if message.type != "tool"]
    with RecallResume("agent", local_dir=tmp_path) as resume:
        sent = resume.with_briefing(thread_has)
        resume.record(sent)
    check_input(sent)
    assert [message.text for message in sent if message.type == "tool"] == [UNKNOWN, UNKNOWN, "found"]
    check_records(tmp_path, talk)


@pytest.mark.parametrize("same", [True, False], ids=["same result", "another result"])
@every_mode
async def test_checkpoint_that_lags_behind_the_records(same, mode, tmp_path):
    """The process died after the result was recorded and before it was in the thread: its tool runs again."""
    saver, kept = InMemorySaver(), []

    @tool
    def count() -> str:
        """Count the runs of this tool."""
        kept.append(pickle.dumps(dict(saver.storage)) if not kept else None)
        return "counted" if same else f"run {len(kept)}"

    def die(messages):
        if len(model.inputs) == 2:
            raise ConnectionResetError

    model = ScriptedChat(script=[[("count", {}), ("look", {"at": "a"})]], thinking=die)
    resume = RecallResume("agent", local_dir=tmp_path)
    with pytest.raises(ConnectionResetError):
        async with resume:
            await play(mode, agent_for(resume, model, [count, look], checkpointer=saver), GO, thread())
    assert [turn.role for turn in recorded(tmp_path)] == ["user", "assistant", "tool", "tool"]

    saver = _older(saver, kept[0])
    model = ScriptedChat(script=["Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, [count, look], checkpointer=saver), None, thread())
    assert len(kept) == 2
    check_inputs(model)
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "tool", "ai"]
    again = [] if same else ["run 2"]  # what happened a second time, and differently, is not hidden
    results = ["counted" if same else "run 1", "seen a", *again]
    assert [turn.content.strip() for turn in recorded(tmp_path)] == ["Go.", "", *results, "Done."]


def _older(saver, storage):
    """The saver as it was when this was its storage, without what tasks had written since."""
    saver.storage.clear()
    saver.storage.update(pickle.loads(storage))
    saver.writes.clear()
    return saver
