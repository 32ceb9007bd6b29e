"""RecallResume as a context manager, and its parts for a graph of one's own."""

import asyncio
import operator
import threading
from typing import Annotated

import pytest
from histories import HISTORIES, check_strict
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from polign_recall import Client, Invalid, LeaseHeld, LeaseLost, LeaseNotHeld, StoreDenied, WriteUnknown
from polign_recall.stores import MemoryStore, Outcome
from recall_langgraph import RecallResume, recall_tools
from running import MODES, WatchedStore, agent_for, ids, look, play, recorded
from scripted_chat import ScriptedChat
from typing_extensions import TypedDict

HELLO = HumanMessage("Hello.", id="h")


def earlier(directory, *, turns=3):
    """An agent with some turns of an earlier process."""
    with RecallResume("agent", local_dir=directory) as resume:
        resume.record([("user", f"turn {number}") for number in range(turns)])


# -- opening


def test_agent_is_held_inside_and_free_outside(tmp_path):
    resume = RecallResume("agent", local_dir=tmp_path, holder="me")
    with resume as entered, Client(local_dir=tmp_path) as client:
        assert entered is resume
        assert client.status("agent").holder == "me"
        with pytest.raises(LeaseHeld), RecallResume("agent", local_dir=tmp_path):
            pass
    with Client(local_dir=tmp_path) as client:
        assert not client.status("agent").held


def test_outside_every_use_says_what_to_do(tmp_path):
    resume = RecallResume("agent", local_dir=tmp_path)
    for use in (
        lambda: resume.agent,
        lambda: resume.briefing,
        lambda: resume.record([HELLO]),
        lambda: resume.with_briefing([HELLO]),
        lambda: resume.pre_model_hook.invoke({"messages": [HELLO]}),
        lambda: recall_tools(resume)[1].invoke({"text": "x"}),
    ):
        with pytest.raises(LeaseNotHeld, match="with RecallResume"):
            use()
    with resume, pytest.raises(Invalid, match="open already"):
        resume.__enter__()
    with resume:
        assert resume.agent.lease_held


def test_wrong_arguments_are_named_on_entering(tmp_path):
    for wrong in ({"token_budget": 10}, {"lease_ttl": 1}, {"wait": -1}):
        with pytest.raises(Invalid), RecallResume("agent", local_dir=tmp_path, **wrong):
            pass
    with pytest.raises(Invalid), RecallResume("../x/" * 300, local_dir=tmp_path):
        pass
    with pytest.raises(Invalid), RecallResume("agent", env={}):
        pass


def test_place_may_come_from_the_environment(tmp_path):
    with RecallResume("agent", env={"POLIGN_STORE": str(tmp_path)}) as resume:
        resume.record([HELLO])
    assert ids(recorded(tmp_path)) == ["h"]


def test_client_of_the_caller_stays_open(tmp_path):
    with Client(local_dir=tmp_path) as client:
        for _ in range(2):
            with RecallResume("agent", client=client) as resume:
                resume.record([("user", "Hello.")])
        assert client.status("agent").turns == 2


async def test_takeover_and_wait(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as first:
        async with RecallResume("agent", local_dir=tmp_path, takeover=True) as second:
            epoch = second.agent.epoch
            assert epoch == first.context.epoch + 1
            with pytest.raises(LeaseLost):
                first.record([HELLO])
            waiting = RecallResume("agent", local_dir=tmp_path, wait=60)
            opening = asyncio.create_task(waiting.__aenter__())
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await opening
        assert waiting.agent.epoch == epoch + 1
        await waiting.__aexit__(None, None, None)


async def test_cancelled_entry_does_not_keep_the_agent(tmp_path):
    with RecallResume("agent", local_dir=tmp_path):
        opening = asyncio.create_task(RecallResume("agent", local_dir=tmp_path, wait=60).__aenter__())
        await asyncio.sleep(0.05)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    # Its thread still gets the agent, and hands it on.
    with Client(local_dir=tmp_path) as client:
        for _ in range(600):
            status = client.status("agent")
            if status.epoch == 2 and not status.held:
                break
            await asyncio.sleep(0.1)
        assert (status.epoch, status.held) == (2, False)


# -- leaving


def test_error_of_the_body_is_kept_and_the_agent_released(tmp_path):
    def work():
        with RecallResume("agent", local_dir=tmp_path) as resume:
            resume.pre_model_hook.invoke({"messages": [HELLO]})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert ids(recorded(tmp_path)) == ["h"]
    with Client(local_dir=tmp_path) as client:
        assert not client.status("agent").held


@pytest.mark.parametrize("body_fails", [False, True])
async def test_what_could_not_be_written_is_told_on_leaving(body_fails, tmp_path):
    store = WatchedStore(tmp_path)

    def full(key):
        raise StoreDenied("may not write")

    async def work():
        async with RecallResume("agent", store=store) as resume:
            store.before_create = full
            await resume.pre_model_hook.ainvoke({"messages": [HELLO]})
            if body_fails:
                raise KeyError("mine")

    with pytest.raises(KeyError if body_fails else StoreDenied) as error:
        await work()
    assert not body_fails or "may not write" in error.value.__notes__[0]


def test_loss_in_the_body_is_not_masked(tmp_path):
    with Client(local_dir=tmp_path) as client:

        def work():
            with RecallResume("agent", local_dir=tmp_path) as resume:
                resume.record([HELLO])
                client.resume("agent", takeover=True, holder="thief").close()
                resume.record([("user", "Too late.")])

        with pytest.raises(LeaseLost) as lost:
            work()
    assert lost.value.by == "thief"
    assert ids(recorded(tmp_path)) == ["h"]


@pytest.mark.parametrize("hook", ["pre_model_hook", "post_model_hook"])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_known_loss_stops_a_step_that_brings_nothing_new(hook, mode, tmp_path):
    with Client(local_dir=tmp_path) as client, RecallResume("agent", local_dir=tmp_path) as resume:
        resume.record([HELLO])
        client.resume("agent", takeover=True).close()
        with pytest.raises(LeaseLost):
            resume.agent.milestone("too late")
        with pytest.raises(LeaseLost):
            await play(mode, getattr(resume, hook), {"messages": [HELLO]})


def test_error_that_was_told_is_not_told_again_on_leaving(tmp_path):
    store = WatchedStore(tmp_path)

    def full(key):
        raise StoreDenied("may not write")

    with RecallResume("agent", store=store) as resume:
        store.before_create = full
        with pytest.raises(StoreDenied):
            resume.record([HELLO])
        store.before_create = lambda key: None


class SilentStore(MemoryStore):
    """Takes writes and gives no answer, while `silent`."""

    silent = False

    def create(self, key, data):
        return Outcome.UNKNOWN if self.silent else super().create(key, data)


def test_what_may_have_been_saved_is_not_recorded_again(monkeypatch):
    monkeypatch.setattr("polign_recall.chain.protocol.ATTEMPTS", 1)
    store = SilentStore()
    with RecallResume("agent", store=store) as resume:
        store.silent = True
        resume.agent._chain.deadline = 0  # past the time for which the writer waits for an answer
        with pytest.raises(WriteUnknown):
            resume.record([HELLO])
        store.silent = False
        resume.record([HELLO])
        resume.record([HumanMessage("More.", id="m")])  # resolves the one before it first
        assert [turn.message_id for turn in resume.agent.turns()] == ["h", "m"]


# -- a graph of one's own


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage]


def own_graph(resume, model):
    graph = StateGraph(State)
    graph.add_node("briefing", resume.briefing_node)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    graph.add_node("record", resume.record_node)
    for one, other in [(START, "briefing"), ("briefing", "model"), ("model", "record"), ("record", END)]:
        graph.add_edge(one, other)
    return graph.compile()


@pytest.mark.parametrize("mode", MODES)
async def test_nodes_in_a_graph_of_ones_own(mode, tmp_path):
    earlier(tmp_path)
    model = ScriptedChat(script=["Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, own_graph(resume, model), {"messages": [("user", "Go.")]})
        assert model.inputs[0][0].text == f"{resume.briefing}\n\nGo."
    assert [message.text.strip() for message in state["messages"]] == ["Go.", "Done."]
    assert ids(recorded(tmp_path))[3:] == ids(state["messages"])


@pytest.mark.parametrize("mode", MODES)
async def test_parallel_branches_record_once(mode, tmp_path):
    class Counted(State):
        done: Annotated[list[str], operator.add]

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = StateGraph(Counted)
        graph.add_node("talk", lambda state: {"messages": [AIMessage("Done.")]})
        graph.add_edge(START, "talk")
        for branch in "abcd":
            graph.add_node(branch, resume.record_node)
            graph.add_edge("talk", branch)
        state = await play(mode, graph.compile(), {"messages": [("user", "Go.")]})
    assert ids(recorded(tmp_path)) == ids(state["messages"])


def test_briefing_is_never_recorded_back(tmp_path):
    earlier(tmp_path)
    with RecallResume("agent", local_dir=tmp_path) as resume:
        sent = resume.with_briefing([SystemMessage("rules"), HELLO])
        assert sent[1].text == f"{resume.briefing}\n\nHello."
        assert resume.with_briefing(sent) == sent
        resume.record([*sent, AIMessage("Hi.", id="a")])
        resume.record(resume.with_briefing([AIMessage("Welcome.", id="w")]))
        resume.record(resume.with_briefing([]))
    new = recorded(tmp_path)[3:]
    assert [(turn.role, turn.content) for turn in new] == [
        *[("user", "Hello."), ("assistant", "Hi."), ("assistant", "Welcome.")]
    ]


def test_what_was_made_up_for_the_model_is_never_recorded(tmp_path):
    earlier(tmp_path)
    with RecallResume("agent", local_dir=tmp_path) as resume:
        for history in HISTORIES.values():
            sent = resume.with_briefing(history)
            check_strict(sent)
            resume.record(sent)
    contents = [str(turn.content) for turn in recorded(tmp_path)]
    assert not [text for text in contents if "outcome unknown" in text or "go on from there" in text]


def test_messages_without_an_id_are_given_one_and_recorded_once(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        messages = [HumanMessage("Hello."), AIMessage("Hi.")]
        resume.record(messages)
        resume.record([*messages, HumanMessage("Bye.")])
        resume.record([("user", "Again."), {"role": "assistant", "content": "Yes."}])
    assert [turn.content for turn in recorded(tmp_path)] == ["Hello.", "Hi.", "Bye.", "Again.", "Yes."]


def test_history_is_read_only_for_what_may_be_older(tmp_path):
    earlier(tmp_path, turns=100)
    store = WatchedStore(tmp_path)

    def read():
        return [key for name, key in store.calls if name == "list" and "history" in key]

    with RecallResume("agent", store=store) as resume:
        state = agent_for(resume, ScriptedChat(script=[[("look", {"at": "a"})], "Done."])).invoke(
            {"messages": [SystemMessage("rules"), ("user", "Go.")]}
        )
        resume.record([AIMessage("alone", id="x")])
        assert not read()
        turns = list(resume.agent.turns())
        old = [AIMessage(turn.content, id=turn.message_id) for turn in turns[:3]]
        store.calls.clear()
        resume.record([*old, ("user", "More.")])
        assert len(read()) == 1
        resume.record([*old, *state["messages"], ("user", "Even more.")])
        assert len(read()) == 1
    assert len(recorded(tmp_path)) == 100 + 4 + 3


def test_large_histories_are_read_off_the_loop():
    async def main():
        store = MemoryStore()
        async with RecallResume("agent", store=store) as resume:
            loop = threading.get_ident()
            inside = []
            prepare = resume.agent.prepare_turn
            resume.agent.prepare_turn = lambda *a, **k: inside.append(threading.get_ident()) or prepare(*a, **k)
            await resume.arecord([HELLO])
            await resume.pre_model_hook.ainvoke({"messages": [AIMessage("x")]})
            assert loop not in inside
            assert len(inside) == 2

    asyncio.run(main())


def test_tools_of_the_agent_are_usable_beside_the_users_own(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        model = ScriptedChat(script=[[("update_working_state", {"goal": "Ship it."}), ("look", {"at": "a"})], "Done."])
        agent_for(resume, model, [look, *recall_tools(resume)]).invoke({"messages": [("user", "Go.")]})
        assert resume.agent.working_state.goal == "Ship it."
