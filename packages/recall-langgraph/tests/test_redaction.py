"""What a tool printed stays in the graph's messages and does not reach the store."""

import pytest
from langchain_core.tools import tool
from recall_langgraph import RecallResume
from running import GO, MODES, agent_for, play, recorded
from scripted_chat import ScriptedChat

SECRET = "gh" + "p_" + "a1B2" * 9


@tool
def show_env(name: str) -> str:
    """Print a variable."""
    return f"{name}={SECRET}"


def stored(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("mode", MODES)
async def test_the_message_keeps_the_key_and_the_store_never_has_it(mode, tmp_path):
    model = ScriptedChat(script=[[("show_env", {"name": SECRET})], f"It is {SECRET}."])
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        state = await play(mode, agent_for(resume, model, tools=[show_env]), GO)
    assert state["messages"][2].content == f"{SECRET}={SECRET}"
    assert state["messages"][1].tool_calls[0]["args"] == {"name": SECRET}
    assert SECRET in model.inputs[1][-1].text
    marker = "[redacted: github-token]"
    turns = recorded(tmp_path)
    assert turns[1].calls[0].args == {"name": marker}
    assert [turn.content for turn in turns[2:]] == [f"{marker}={marker}", f"It is {marker}."]
    assert SECRET.encode() not in stored(tmp_path)


def test_it_can_be_switched_off_or_replaced(tmp_path):
    with RecallResume("off", local_dir=tmp_path / "off", redact=None) as resume:
        resume.record([("user", SECRET)])
    assert SECRET.encode() in stored(tmp_path / "off")
    with RecallResume("own", local_dir=tmp_path / "own", redact=lambda text: text.replace("Ann", "A")) as resume:
        resume.record([("user", "Ann")])
    assert recorded(tmp_path / "own", "own")[0].content == "A"
