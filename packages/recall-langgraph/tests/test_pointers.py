"""Pointers that the model sets are checked when the agent is resumed."""

import subprocess

import pytest
from polign_recall import PointerCheck
from polign_recall.checkers import check_git_ref
from recall_langgraph import RecallResume, recall_tools
from running import GO, MODES, agent_for, play
from scripted_chat import ScriptedChat


@pytest.fixture
def clone(tmp_path):
    path = tmp_path / "shop"
    path.mkdir()
    git(path, "init", "-q", "-b", "work")
    git(path, "commit", "-q", "--allow-empty", "-m", "begun")
    return path


def git(clone, *command):
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    run = subprocess.run(
        ["git", "-C", str(clone), *who, *command], capture_output=True, text=True, timeout=60, check=True
    )
    return run.stdout.strip()


@pytest.mark.parametrize("mode", MODES)
async def test_a_model_is_told_what_became_of_its_pointers(mode, clone, tmp_path):
    async def work(reply):
        resume = RecallResume("agent", local_dir=tmp_path / "records", checkers={"git_ref": check_git_ref})
        async with resume:
            model = ScriptedChat(script=[*reply, "Done."])
            await play(mode, agent_for(resume, model, recall_tools(resume)), GO)
            return resume.context.pointer_checks, model.inputs[0]

    pointer = {"name": "branch", "kind": "git_ref", "target": f"{clone}@work"}
    checks, _ = await work([[("set_pointer", pointer)]])
    assert checks == {}

    seen = git(clone, "rev-parse", "work")
    checks, first = await work([])
    assert checks == {"branch": PointerCheck("same", seen)}
    assert f"[same] branch (git_ref): {clone}@work" in str(first)

    git(clone, "commit", "-q", "--allow-empty", "-m", "by somebody else")
    moved = git(clone, "rev-parse", "work")
    checks, first = await work([])
    assert checks == {"branch": PointerCheck("changed", moved)}
    assert f"[changed, now {moved}] branch (git_ref)" in str(first)
