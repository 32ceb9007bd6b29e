"""Calls that an earlier process left without an outcome: found out, told to the model, never simply made again."""

from typing import Annotated

import pytest
from histories import check_strict
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolArg
from langgraph.checkpoint.memory import InMemorySaver
from polign_recall import ActionEnd, Invalid
from polign_recall.stores import MemoryStore
from recall_langgraph import RecallResume
from recall_langgraph.pairing import UNKNOWN
from running import GO, MODES, agent_for, play
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
Key = Annotated[str, InjectedToolArg]
THREAD = {"configurable": {"thread_id": "1"}}
CLASSES = {"look": "pure", "put": "idempotent", "send": "external", "charge": "external"}


class World:
    """What the tools do, and which of them dies: before its effect, after it, or never."""

    def __init__(self):
        self.effects = []
        self.dying = {}

    def act(self, name, to, key):
        if self.dying.get(name) == "before":
            raise KeyboardInterrupt
        self.effects.append((name, to, key))
        if self.dying.get(name) == "after":
            raise KeyboardInterrupt
        return f"{name} {to}: done"

    def tools(self):
        def look(to: str, idempotency_key: Key) -> str:
            """Look."""
            return self.act("look", to, idempotency_key)

        def put(to: str, idempotency_key: Key) -> str:
            """Put."""
            return self.act("put", to, idempotency_key)

        def send(to: str, idempotency_key: Key) -> str:
            """Send."""
            return self.act("send", to, idempotency_key)

        def charge(to: str, idempotency_key: Key) -> str:
            """Charge."""
            return self.act("charge", to, idempotency_key)

        return [look, put, send, charge]

    def find(self, action):
        """A resolver: the key is among the effects, or it did not happen."""
        found = any(action.key == key for _, _, key in self.effects)
        return ActionEnd("done", resolution="found") if found else ActionEnd("failed", error="nothing was done")


@pytest.fixture
def world():
    return World()


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def saver():
    return InMemorySaver()


def start(world, store, saver, script, **options):
    """Opens the agent in a new process's stead; gives it, its graph and its model."""
    resume = RecallResume("agent", store=store, **options)
    model = ScriptedChat(script=script)

    def graph():
        return agent_for(resume, model, resume.durable(world.tools(), classes=CLASSES), checkpointer=saver)

    return resume, graph, model


async def die(world, store, saver, name, where, mode="invoke"):
    """A process that dies in its tool."""
    world.dying = {name: where}
    resume, graph, _ = start(world, store, saver, [[(name, {"to": "x"})]])
    with pytest.raises(KeyboardInterrupt):
        async with resume:
            await play(mode, graph(), GO, THREAD)
    world.dying = {}


# -- without anybody who could tell


@pytest.mark.parametrize("where", ["before", "after"])
async def test_an_external_call_is_not_made_again_and_the_model_is_told(where, world, store, saver):
    await die(world, store, saver, "send", where)
    before = list(world.effects)
    resume, graph, model = start(world, store, saver, ["Done.", "Done."])
    with resume:
        [action] = resume.open_actions()
        state = graph().invoke(None, THREAD)
        graph().invoke({"messages": [("user", "And now?")]}, THREAD)
        assert [each.key for each in resume.open_actions()] == [action.key]
    told = state["messages"][2].content
    assert told.startswith("outcome unknown: this call was begun before")
    assert action.key in told
    assert world.effects == before
    check_strict(model.inputs[0])
    assert model.inputs[0][-1].content == told
    heading = "Actions that were begun; nobody knows what came of them, so find out before repeating one:"
    assert heading in model.inputs[0][0].text
    resume, graph, _ = start(world, store, saver, ["Done."])
    with resume:
        graph().invoke({"messages": [("user", "Well?")]}, THREAD)
        assert [each.key for each in resume.open_actions()] == [action.key]  # what the model was told is no outcome


@every_mode
async def test_a_call_of_the_models_own_after_that_is_another_action(mode, world, store, saver):
    await die(world, store, saver, "send", "before")
    resume, graph, _ = start(world, store, saver, [[("send", {"to": "x"})], "Done."])
    async with resume:
        [action] = resume.open_actions()
        await play(mode, graph(), None, THREAD)
    [(_, _, key)] = world.effects
    assert key != action.key


@pytest.mark.parametrize("where", ["before", "after"])
@every_mode
async def test_an_idempotent_call_goes_on_under_its_key(where, mode, world, store, saver):
    await die(world, store, saver, "put", where)
    resume, graph, _ = start(world, store, saver, ["Done."])
    async with resume:
        [action] = resume.open_actions()
        await play(mode, graph(), None, THREAD)
        assert resume.open_actions() == []
    assert {key for _, _, key in world.effects} == {action.key}


async def test_a_read_is_made_again(world, store, saver):
    await die(world, store, saver, "look", "after")
    resume, graph, _ = start(world, store, saver, ["Done."])
    with resume:
        assert resume.open_actions() == []
        assert graph().invoke(None, THREAD)["messages"][2].content == "look x: done"
    assert len(world.effects) == 2


# -- with a resolver


@pytest.mark.parametrize("where", ["before", "after"])
@every_mode
async def test_a_resolver_is_asked_on_entering(where, mode, world, store, saver):
    await die(world, store, saver, "send", where)
    resume, graph, model = start(world, store, saver, ["Done."], resolvers={"send": world.find})
    async with resume:
        assert resume.open_actions() == []
        known = "done, found" if where == "after" else "failed, nothing was done"
        assert f'send({{"to":"x"}}): {known}' in resume.briefing
        state = await play(mode, graph(), None, THREAD)
        assert model.inputs[0][0].text == f"{resume.briefing}\n\nGo."
    assert len(world.effects) == 1
    assert state["messages"][2].content == ("done, found" if where == "after" else "send x: done")


async def test_settle_asks_again_and_makes_the_briefing_anew(world, store, saver):
    await die(world, store, saver, "charge", "after")
    down = [True]

    def ask(action):
        if down[0]:
            raise ConnectionError("down")
        return ActionEnd("done", result={"receipt": 7})

    resume, graph, model = start(world, store, saver, ["Done."], resolvers={"charge": ask})
    async with resume:
        [action] = resume.open_actions()
        old = resume.briefing
        assert (await resume.asettle()).open == [action]
        assert resume.briefing == old
        down[0] = False
        report = await resume.asettle()
        assert [(each.key, each.status) for each in report.closed] == [(action.key, "done")]
        assert 'charge({"to":"x"}): done: {"receipt":7}' in resume.briefing
        state = await graph().ainvoke(None, THREAD)
        assert model.inputs[0][0].text == f"{resume.briefing}\n\nGo."
    assert model.inputs[0][-1].text == state["messages"][2].content == '{"receipt": 7}'
    assert world.effects == [("charge", "x", action.key)]


async def test_settle_takes_resolvers_of_its_own(world, store, saver):
    await die(world, store, saver, "charge", "after")
    with RecallResume("agent", store=store, resolvers={"send": world.find}) as resume:
        assert [each.tool for each in resume.settle().open] == ["charge"]
        assert [each.status for each in resume.settle({"charge": world.find}).closed] == ["done"]


async def test_a_resolver_that_answers_with_something_else_is_refused_and_the_agent_handed_back(world, store, saver):
    await die(world, store, saver, "charge", "after")
    with pytest.raises(Invalid, match="an ActionEnd or None"):
        RecallResume("agent", store=store, resolvers={"charge": lambda action: True}).__enter__()
    with RecallResume("agent", store=store) as resume:
        assert [each.tool for each in resume.open_actions()] == ["charge"]


# -- a restored thread in which a result is missing


async def test_the_model_is_shown_an_outcome_that_is_on_record(world, store, saver):
    await die(world, store, saver, "send", "after")
    resume, graph, model = start(world, store, saver, ["Done."], resolvers={"send": world.find})
    with resume:
        graph().invoke({"messages": [("user", "What came of it?")]}, THREAD)
    check_strict(model.inputs[0])
    [result] = [each for each in model.inputs[0] if each.type == "tool"]
    assert result.content == "done, found"


async def test_the_model_is_told_where_no_outcome_is_on_record(world, store, saver):
    await die(world, store, saver, "send", "after")
    resume, graph, model = start(world, store, saver, ["Done."])
    with resume:
        graph().invoke({"messages": [("user", "What came of it?")]}, THREAD)
    [result] = [each for each in model.inputs[0] if each.type == "tool"]
    assert result.content == UNKNOWN


@pytest.mark.parametrize("given", [None, {"messages": [("user", "Go on.")]}], ids=["continued", "asked"])
def test_a_result_that_got_lost_is_the_recorded_one(given, world, store, saver):
    """The process died between the end of the action and the checkpoint with the result."""
    resume, graph, _ = start(world, store, saver, [[("send", {"to": "x"})], "Done."])
    with resume:
        graph().invoke(GO, THREAD, interrupt_before=["tools"])
        [call] = graph().get_state(THREAD).values["messages"][-1].tool_calls
        send = resume.durable(world.tools(), classes=CLASSES)[2]
        assert send.invoke({**call, "type": "tool_call"}).content == "send x: done"
    resume, graph, model = start(world, store, saver, ["Done."])
    with resume:
        graph().invoke(given, THREAD)
    [result] = [each for each in model.inputs[0] if each.type == "tool"]
    assert result.content == "send x: done"
    assert len(world.effects) == 1


@every_mode
async def test_a_call_whose_result_was_recorded_but_not_checkpointed_is_not_made_again(mode, world, store, saver):
    resume, graph, _ = start(world, store, saver, [[("send", {"to": "x"})], "Done."])
    async with resume:
        await play(mode, graph(), GO, THREAD)
    resume, graph, _ = start(world, store, saver, ["Done."])
    async with resume:
        [old] = [state.config for state in graph().get_state_history(THREAD) if state.next == ("tools",)]
        state = await play(mode, graph(), None, old)
    assert state["messages"][2].content == "send x: done"
    assert len(world.effects) == 1


async def test_a_result_that_only_the_thread_has_ends_the_action(world, store, saver):
    await die(world, store, saver, "send", "after")
    resume, graph, _ = start(world, store, saver, ["Done."])
    with resume:
        [action] = resume.open_actions()
        [call] = graph().get_state(THREAD).values["messages"][-1].tool_calls
        other = ToolMessage("sent", name="send", tool_call_id="of another call")
        result = ToolMessage("sent", name="send", tool_call_id=call["id"])
        graph().update_state(THREAD, {"messages": [other, result]}, as_node="tools")
        assert resume.open_actions() == [action]
        graph().invoke(None, THREAD)
        assert resume.open_actions() == []
        assert resume.agent.ended_actions() == []
    assert len(world.effects) == 1
