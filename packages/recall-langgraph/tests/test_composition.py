"""RecallMiddleware beside LangChain's own middleware, in front of it and behind it in the list."""

import pytest
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from making import made_for, person_asked
from providers import check_input
from recall_langgraph import RecallResume
from running import GO, MODES, ids, look, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
in_both_orders = pytest.mark.parametrize("place", ["before", "after"])


def earlier(directory):
    """An agent with something in its briefing."""
    with RecallResume("agent", local_dir=directory) as resume:
        resume.agent.update_working_state(goal="needle")


def texts(messages):
    return [message.text.strip() for message in messages]


# -- summaries


@every_mode
@in_both_orders
@pytest.mark.parametrize("keep", [("messages", 1), ("messages", 4), ("tokens", 10)])
async def test_summary_is_not_recorded_and_what_it_stands_for_is(mode, place, keep, tmp_path):
    earlier(tmp_path)
    script = [[("look", {"at": "a"}), ("look", {"at": "b"})], [("look", {"at": "c"})], "One.", "Two.", "Three."]
    model = ScriptedChat(script=script)
    summaries = ScriptedChat(script=[f"summary {number}" for number in range(20)])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        summing = SummarizationMiddleware(summaries, trigger=("messages", 4), keep=keep)
        graph = made_for(resume, model, checkpointer=InMemorySaver(), **{place: [summing]})
        for said in (["Go."], ["More.", "Much more."], ["Even more."]):
            state = await play(mode, graph, {"messages": [("user", text) for text in said]}, thread())
        briefing = resume.briefing
    assert summaries.inputs
    assert state["messages"][0].text.startswith("Here is a summary")
    assert len(state["messages"]) < 12
    turns = recorded(tmp_path)
    assert [turn.content.strip() for turn in turns] == [
        *["Go.", "", "seen a", "seen b", "", "seen c", "One.", "More.", "Much more.", "Two.", "Even more.", "Three."]
    ]
    for messages in model.inputs:
        check_input(messages)
        assert messages[0].text.startswith(briefing)
        assert sum("needle" in message.text for message in messages) == 1


# -- a person in the loop


@tool
def send(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


DECISIONS = {
    "approve": ({"type": "approve"}, "sent to bob"),
    "edit": (
        {"type": "edit", "edited_action": {"name": "send", "args": {"to": "eve"}}},
        "sent to eve",
    ),
    "reject": ({"type": "reject", "message": "Not him."}, "Not him."),
}


@every_mode
@in_both_orders
@pytest.mark.parametrize("asking", ["batched", "per_call"])
@pytest.mark.parametrize("decision", DECISIONS)
async def test_pause_for_a_person_and_on_in_another_process(mode, place, asking, decision, tmp_path):
    saver = InMemorySaver()
    given, result = DECISIONS[decision]

    def graph_for(resume, script):
        person = person_asked(asking)
        model = ScriptedChat(script=script)
        return model, made_for(resume, model, [send, look], checkpointer=saver, **{place: [person]})

    async with RecallResume("agent", local_dir=tmp_path) as resume:
        _, graph = graph_for(resume, [[("look", {"at": "a"}), ("send", {"to": "bob"})]])
        state = await play(mode, graph, GO, thread())
        assert graph.get_state(thread()).next
    # The reply is durable while the person thinks.
    assert [turn.role for turn in recorded(tmp_path)][:2] == ["user", "assistant"]
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        model, graph = graph_for(resume, ["Done."])
        answer = {"decisions": [given]} if asking == "batched" else given
        state = await play(mode, graph, Command(resume=answer), thread())
    assert texts(state["messages"])[-1] == "Done."
    contents = [turn.content for turn in recorded(tmp_path)]
    assert len(contents) == 5
    assert result in contents[2] + contents[3]
    assert ids(recorded(tmp_path)) == ids(state["messages"])
    check_input(model.inputs[0])


# -- tools that are tried again


@every_mode
@in_both_orders
async def test_tool_that_is_tried_again_is_recorded_once(mode, place, tmp_path):
    tries = []

    @tool
    def flaky() -> str:
        """Fail twice."""
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return "up"

    retrying = ToolRetryMiddleware(max_retries=3, initial_delay=0)
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = made_for(resume, ScriptedChat(script=[[("flaky", {})], "Done."]), [flaky], **{place: [retrying]})
        state = await play(mode, graph, GO)
    assert len(tries) == 3
    assert [turn.content.strip() for turn in recorded(tmp_path)] == ["Go.", "", "up", "Done."]
    assert ids(recorded(tmp_path)) == ids(state["messages"])


# -- models that fail


class Failing(ScriptedChat):
    """Reads its input and fails."""

    def _next(self, messages):
        self.inputs.append(messages)
        raise ConnectionError("no model")


@every_mode
@in_both_orders
async def test_second_model_gets_the_same_input(mode, place, tmp_path):
    earlier(tmp_path)
    first, second = Failing(script=[]), ScriptedChat(script=[[("look", {"at": "a"})], "Done."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        graph = made_for(resume, first, **{place: [ModelFallbackMiddleware(second)]}, system_prompt="Be brief.")
        state = await play(mode, graph, GO)
        assert first.inputs[0][1].text == f"{resume.briefing}\n\nGo."
    assert first.inputs == second.inputs
    for messages in first.inputs:
        check_input(messages)
    assert ids(recorded(tmp_path)) == ids(state["messages"])
