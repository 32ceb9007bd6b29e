"""RecallMiddleware(classes=...): the journal around every tool call of the real create_agent."""

from typing import Annotated

import pytest
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolArg, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt
from making import made_for, person_asked
from polign_recall import ActionEnd, Client, Invalid, LeaseLost
from providers import check_input
from pydantic import BaseModel
from recall_langgraph import RecallResume
from running import GO, MODES, ids, look, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
in_both_orders = pytest.mark.parametrize("place", ["before", "after"])
Key = Annotated[str, InjectedToolArg]


def actions(directory):
    """All actions of an agent, by what was recorded: (tool, class, key, how it ended)."""
    begun, ends = {}, {}
    with Client(local_dir=directory) as client, client.resume("agent", defer_lease=True) as agent:
        for record in agent._records():
            if type(record).__name__ == "ActionStarted":
                begun.setdefault(record.seq, []).append(record)
            if type(record).__name__ == "ActionEnded":
                ends.setdefault(record.seq, []).append(record.status)
    firsts = ((seq, tries[0], {each.key for each in tries}) for seq, tries in begun.items())
    return [(first.tool, first.class_, keys, ends.get(seq, [])) for seq, first, keys in firsts]


class Died(BaseException):
    """Stands for the end of the process: nothing of this library's gets to catch it."""


# -- around a call


@every_mode
async def test_intent_is_durable_before_the_effect_and_the_outcome_after(mode, tmp_path):
    during = []

    @tool
    def send(to: str, idempotency_key: Key) -> str:
        """Send a mail."""
        with Client(local_dir=tmp_path) as client, client.resume("agent", defer_lease=True) as other:
            during.append(([turn.role for turn in other.turns()], other.pending_actions(), idempotency_key))
        return f"sent to {to}"

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        classes = {"send": "external", "look": "pure"}
        script = [[("send", {"to": "bob", "idempotency_key": "forged"}), ("look", {"at": "a"})], "Done."]
        model = ScriptedChat(script=script)
        state = await play(mode, made_for(resume, model, [send, look], classes=classes), GO)
        assert resume.open_actions() == []
    ((roles, pending, key),) = during
    (action,) = [each for each in pending if each.tool == "send"]
    assert roles == ["user", "assistant"]
    assert (action.class_, action.args["to"], action.key) == ("external", "bob", key)
    assert action.call_id == state["messages"][1].tool_calls[0]["id"]
    assert sorted((name, class_, ends) for name, class_, _, ends in actions(tmp_path)) == [
        ("look", "pure", ["done"]),
        ("send", "external", ["done"]),
    ]
    assert [message.text.strip() for message in state["messages"]] == ["Go.", "", "sent to bob", "seen a", "Done."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


@every_mode
async def test_failures_close_the_action(mode, tmp_path):
    @tool
    def refuse() -> str:
        """Refuse."""
        raise ToolException("no")

    refuse.handle_tool_error = True

    @tool
    def crash() -> str:
        """Crash."""
        raise RuntimeError("broken")

    classes = {"refuse": "external", "crash": "external"}
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("refuse", {})], [("crash", {})]])
        with pytest.raises(RuntimeError, match="broken"):
            await play(mode, made_for(resume, model, [refuse, crash], classes=classes), GO)
    assert [(name, ends) for name, _, _, ends in actions(tmp_path)] == [("refuse", ["failed"]), ("crash", ["failed"])]


@every_mode
async def test_commands_are_passed_on_and_recorded(mode, tmp_path):
    @tool
    def hand_over(runtime: ToolRuntime) -> Command:
        """Say it with a command."""
        return Command(update={"messages": [ToolMessage("handed over", tool_call_id=runtime.tool_call_id)]})

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("hand_over", {})], "Done."])
        graph = made_for(resume, model, [hand_over], classes={"hand_over": "idempotent"})
        state = await play(mode, graph, GO)
    assert [message.text.strip() for message in state["messages"]] == ["Go.", "", "handed over", "Done."]
    assert [ends for *_, ends in actions(tmp_path)] == [["done"]]


# -- tools without a class


@every_mode
async def test_tool_without_a_class_is_refused_before_the_model_is_asked(mode, tmp_path):
    model = ScriptedChat(script=["Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        with pytest.raises(Invalid, match="the tool look has no class"):
            await play(mode, made_for(resume, model, classes={}), GO)
        with pytest.raises(Invalid, match="pure, idempotent or external, not 'safe'"):
            await play(mode, made_for(resume, model, classes={"look": "safe"}), GO)
    assert not model.inputs


@every_mode
async def test_tools_that_there_are_not_and_our_own_need_no_class(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("dream", {}), ("milestone", {"text": "m"})], "Done."])
        state = await play(mode, made_for(resume, model, [], classes={}), GO)
    assert "not a valid tool" in state["messages"][2].text
    assert state["messages"][3].text == "saved"
    assert actions(tmp_path) == []


@every_mode
@pytest.mark.parametrize("classes", [None, {"look": "external"}])
async def test_tools_that_are_durable_already_keep_one_journal(mode, classes, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        tools = resume.durable([look], classes={"look": "external"})
        state = await play(
            mode, made_for(resume, ScriptedChat(script=[[("look", {"at": "a"})], "Done."]), tools, classes=classes), GO
        )
    assert state["messages"][2].text == "seen a"
    assert [ends for *_, ends in actions(tmp_path)] == [["done"]]


@every_mode
async def test_structured_output_needs_no_class(mode, tmp_path):
    class Weather(BaseModel):
        """The weather."""

        degrees: int

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("look", {"at": "a"})], [("Weather", {"degrees": 20})]])
        graph = made_for(resume, model, classes={"look": "pure"}, response_format=ToolStrategy(Weather))
        state = await play(mode, graph, GO)
    assert state["structured_response"] == Weather(degrees=20)
    assert [name for name, *_ in actions(tmp_path)] == ["look"]


# -- tries


@every_mode
@in_both_orders
async def test_a_retry_uses_the_same_key(mode, place, tmp_path):
    keys = []

    @tool
    def flaky(idempotency_key: Key) -> str:
        """Fail twice."""
        keys.append(idempotency_key)
        if len(keys) % 3:
            raise ConnectionError("down")
        return "up"

    retrying = ToolRetryMiddleware(max_retries=3, initial_delay=0)
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("flaky", {})], [("flaky", {})], "Done."])
        graph = made_for(resume, model, [flaky], classes={"flaky": "external"}, **{place: [retrying]})
        state = await play(mode, graph, GO)
    assert [len(set(keys[:3])), len(set(keys[3:])), len(set(keys))] == [1, 1, 2]  # two calls, two keys
    assert [(used, ends[-1]) for _, _, used, ends in actions(tmp_path)] == [({keys[0]}, "done"), ({keys[3]}, "done")]
    assert [turn.content.strip() for turn in recorded(tmp_path)] == ["Go.", "", "up", "", "up", "Done."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


# -- pauses


@every_mode
async def test_interrupt_in_a_tool_gives_the_action_up_until_it_is_answered(mode, tmp_path):
    keys = []

    @tool
    def ask(idempotency_key: Key) -> str:
        """Ask a person."""
        keys.append(idempotency_key)
        return interrupt("May I?")

    saver = InMemorySaver()
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = made_for(
            resume, ScriptedChat(script=[[("ask", {})]]), [ask], classes={"ask": "external"}, checkpointer=saver
        )
        await play(mode, graph, GO, thread())
        assert [ends for *_, ends in actions(tmp_path)] == [["abandoned"]]
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        assert resume.open_actions() == []
        model = ScriptedChat(script=["Thanks."])
        graph = made_for(resume, model, [ask], classes={"ask": "external"}, checkpointer=saver)
        state = await play(mode, graph, Command(resume="Yes."), thread())
    assert [message.text.strip() for message in state["messages"]] == ["Go.", "", "Yes.", "Thanks."]
    assert len(set(keys)) == 1
    assert [ends for *_, ends in actions(tmp_path)] == [["abandoned", "done"]]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


@every_mode
@in_both_orders
@pytest.mark.parametrize("asking", ["batched", "per_call"])
async def test_approved_call_runs_once_with_the_arguments_of_the_person(mode, place, asking, tmp_path):
    sent = []

    @tool
    def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    saver = InMemorySaver()
    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "eve"}}}
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        person = person_asked(asking)
        model = ScriptedChat(script=[[("send", {"to": "bob"})], "Done."])
        classes = {"send": "external"}
        graph = made_for(resume, model, [send], classes=classes, checkpointer=saver, **{place: [person]})
        await play(mode, graph, GO, thread())
        assert not sent
        answer = {"decisions": [edit]} if asking == "batched" else edit
        state = await play(mode, graph, Command(resume=answer), thread())
    assert sent == ["eve"]
    assert [ends[-1] for *_, ends in actions(tmp_path)] == ["done"]
    assert len(recorded(tmp_path)) == 4
    assert ids(recorded(tmp_path)) == ids(state["messages"])


# -- processes that died, and those that were taken over


@every_mode
async def test_zombie_does_not_run_journalled_tools(mode, tmp_path):
    ran = []

    @tool
    def act() -> str:
        """Act on the world."""
        ran.append(1)
        return "ok"

    def lose_it(messages):
        Client(local_dir=tmp_path).resume("agent", takeover=True).close()

    model = ScriptedChat(script=[[("act", {})], "Done."], thinking=lose_it)
    with pytest.raises(LeaseLost):
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            await play(mode, made_for(resume, model, [act], classes={"act": "external"}), GO)
    assert (ran, len(model.inputs), actions(tmp_path)) == ([], 1, [])


@every_mode
async def test_holder_that_was_taken_over_between_two_tools_runs_only_the_first(mode, tmp_path):
    ran = []

    @tool
    def act(number: int) -> str:
        """Act on the world; the first time, another process takes the agent over meanwhile."""
        ran.append(number)
        Client(local_dir=tmp_path).resume("agent", takeover=True).close()
        return "ok"

    model = ScriptedChat(script=[[("act", {"number": 1})], [("act", {"number": 2})]])
    with pytest.raises(LeaseLost):
        async with RecallResume("agent", local_dir=tmp_path) as resume:
            await play(mode, made_for(resume, model, [act], classes={"act": "external"}), GO)
    assert ran == [1]
    assert [ends for *_, ends in actions(tmp_path)] == [[]]


def death_in(act, class_, directory, saver):
    """A run that ends amid the tool."""
    model = ScriptedChat(script=[[("act", {"at": "x"})]])
    with RecallResume("agent", local_dir=directory) as resume:
        graph = made_for(resume, model, [act], classes={"act": class_}, checkpointer=saver)
        with pytest.raises(Died):
            graph.invoke(GO, thread(), durability="sync" if saver else None)


@pytest.mark.parametrize(
    ("class_", "resolver", "times", "told"),
    [
        ("external", None, 1, "outcome unknown"),
        ("external", lambda action: ActionEnd("done", "it was done"), 1, "it was done"),
        ("external", lambda action: ActionEnd("failed"), 2, "acted"),
        ("external", lambda action: None, 1, "outcome unknown"),
        ("idempotent", None, 2, "acted"),
        ("pure", None, 2, "acted"),
    ],
)
@every_mode
async def test_restored_thread_after_a_death_amid_the_tool(mode, class_, resolver, times, told, tmp_path):
    keys = []

    @tool
    def act(at: str, idempotency_key: Key) -> str:
        """Act on the world, and die the first time."""
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise Died
        return "acted"

    saver = InMemorySaver()
    death_in(act, class_, tmp_path, saver)
    async with RecallResume("agent", local_dir=tmp_path, resolvers={"act": resolver} if resolver else None) as resume:
        model = ScriptedChat(script=["Done."])
        graph = made_for(resume, model, [act], classes={"act": class_}, checkpointer=saver)
        state = await play(mode, graph, None, thread())
    assert len(keys) == times
    assert class_ == "pure" or len(set(keys)) == 1
    assert told in state["messages"][2].text
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    check_input(model.inputs[0])
    assert ids(recorded(tmp_path)) == ids(state["messages"])


def test_new_run_settles_before_the_model_is_asked(tmp_path):
    @tool
    def act(at: str) -> str:
        """Act on the world, and die."""
        raise Died

    death_in(act, "external", tmp_path, None)
    down = [True]

    def resolver(action):
        if down:
            raise ConnectionError("try later")
        return ActionEnd("done", "it was done")

    with RecallResume("agent", local_dir=tmp_path, resolvers={"act": resolver}) as resume:
        model = ScriptedChat(script=["Hm.", "Done."])
        graph = made_for(resume, model, [act], classes={"act": "external"})
        graph.invoke(GO)
        assert "nobody knows what came of them" in model.inputs[0][0].text
        down.clear()
        graph.invoke(GO)
        assert "nobody knows what came of them" not in model.inputs[1][0].text
        assert "it was done" in model.inputs[1][0].text
