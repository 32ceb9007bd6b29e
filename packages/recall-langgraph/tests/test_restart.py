"""Processes that are killed with SIGKILL, and the next one that carries on."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from histories import check_strict
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from providers import check_inputs
from recall_langgraph import RecallResume
from recall_langgraph.pairing import UNKNOWN
from running import GO, agent_for, check_records, ids, recorded
from scripted_chat import ScriptedChat

THREAD = {"configurable": {"thread_id": "1"}}


@tool
def act() -> str:
    """Act."""
    return "acted"


@pytest.fixture(scope="module", params=["sync", "async"])
def mode(request):
    return request.param


@pytest.fixture(scope="module", params=["tool", "first-model", "second-model"])
def death(request, mode, tmp_path_factory):
    """Where an agent died, and the directory it left behind."""
    directory = tmp_path_factory.mktemp("died")
    script = Path(__file__).with_name("dying_agent.py")
    command = [sys.executable, str(script), str(directory), request.param, mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return request.param, directory


@pytest.fixture
def where(death):
    return death[0]


@pytest.fixture
def directory(death, tmp_path):
    shutil.copytree(death[1], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_next_process_carries_on_from_the_briefing(where, directory):
    before = recorded(directory / "records")
    with RecallResume("agent", local_dir=directory / "records") as resume:
        model = ScriptedChat(script=[[("act", {})], "Done."])
        state = agent_for(resume, model, [act]).invoke(GO)
        leading = f"{resume.briefing}\n\nGo." if before else "Go."
        unanswered = [call.name for call in resume.context.unanswered_calls]
    for messages in model.inputs:
        check_strict(messages)
        assert messages[0].text == leading
    # A result that the model was just being sent may or may not have been written yet; a reply always was.
    open_calls = [call.name for call in before[-1].calls] if before else []
    assert unanswered == open_calls
    assert where != "tool" or open_calls == ["act"]
    assert ids(recorded(directory / "records")) == [*ids(before), *ids(state["messages"])]


@pytest.mark.parametrize("given", [None, {"messages": [("user", "Go on.")]}], ids=["continued", "asked"])
def test_next_process_carries_on_in_the_restored_thread(directory, given):
    before = recorded(directory / "records")
    with (
        SqliteSaver.from_conn_string(str(directory / "threads.db")) as saver,
        RecallResume("agent", local_dir=directory / "records") as resume,
    ):
        model = ScriptedChat(script=["Done.", "Done."])
        state = agent_for(resume, model, [act], checkpointer=saver).invoke(given, THREAD)
    for messages in model.inputs:
        check_strict(messages)
    turns = recorded(directory / "records")
    assert ids(turns[: len(before)]) == ids(before)
    assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
    assert ids(turns) == ids(state["messages"])


@pytest.mark.parametrize("given", [None, {"messages": [("user", "Go on.")]}], ids=["continued", "asked"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_process_killed_by_one_of_two_tools_that_run_at_once(given, mode, tmp_path):
    script = Path(__file__).with_name("dying_agent.py")
    command = [sys.executable, str(script), str(tmp_path), "sibling", mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr

    @tool
    def crash() -> str:
        """Not die any more."""
        return "survived"

    with (
        SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
        RecallResume("agent", local_dir=tmp_path / "records") as resume,
    ):
        model = ScriptedChat(script=["Done."])
        state = agent_for(resume, model, [act, crash], checkpointer=saver).invoke(given, THREAD)
    check_inputs(model)
    check_records(tmp_path / "records", state["messages"])
    results = [message.text for message in model.inputs[0] if message.type == "tool"]
    assert results == (["acted", "survived"] if given is None else [UNKNOWN, UNKNOWN])
