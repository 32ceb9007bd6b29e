"""The tools with which a model keeps its records."""

import re
import threading

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolNode
from polign_recall import Client, LeaseLost, counter_for
from recall_langgraph import RecallResume, recall_tools
from running import GO, MODES, WatchedStore, agent_for, play, recorded
from scripted_chat import ScriptedChat


@pytest.fixture
def resume(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        yield resume


def tools_of(resume):
    return {tool.name: tool for tool in recall_tools(resume)}


def called(tool, **args):
    """The ToolMessage of a call, as the graph's tool node gets it."""
    return tool.invoke({"type": "tool_call", "id": "c", "name": tool.name, "args": args})


def test_working_state_changes_only_where_it_is_given(resume):
    update = tools_of(resume)["update_working_state"]
    plan = [{"step": "read", "status": "done"}, {"step": "write", "status": "doing"}]
    fields = {"goal": "Ship it.", "plan": plan, "progress": "half", "focus": "tests"}
    lists = {"decisions": ["use SQL"], "open_questions": ["when?"], "notes": "n"}
    assert called(update, **fields, **lists).content == "saved"
    called(update, progress="nearly", decisions=["use SQL", "no ORM"], notes=None)
    state = resume.agent.working_state
    assert (state.goal, state.progress, state.focus, state.notes) == ("Ship it.", "nearly", "tests", "n")
    assert [(step.step, step.status) for step in state.plan] == [("read", "done"), ("write", "doing")]
    assert (state.decisions, state.open_questions) == (["use SQL", "no ORM"], ["when?"])


def test_milestones_and_pointers(resume):
    tools = tools_of(resume)
    called(tools["milestone"], text="half done")
    called(tools["set_pointer"], name="work", kind="git_ref", target="main", note="clean")
    context = resume.agent.refresh()
    assert [stone.text for stone in context.milestones] == ["half done"]
    assert [(p.name, p.kind, p.target, p.note) for p in context.pointers] == [("work", "git_ref", "main", "clean")]


@pytest.mark.parametrize("text", ["a" * 20_000, "é€😀" * 4_000, "short", ""])
def test_output_is_read_in_pieces_that_join_to_the_whole(text, resume):
    fetch = tools_of(resume)["fetch_output"]
    ref = resume.agent.store_output(text)
    pieces, start = [], 0
    for _ in range(10):
        piece = called(fetch, ref=ref, start=start).content
        rest = re.search(r"\n\[continues: fetch_output\(ref='(.+)', start=(\d+)\)\]$", piece)
        pieces.append(piece[: rest.start()] if rest else piece)
        assert len(pieces[-1]) <= 8_000
        if not rest:
            break
        assert rest[1] == ref
        start = int(rest[2])
    assert "".join(pieces) == (text or "(nothing at or after byte 0)")


def test_output_may_be_read_from_anywhere(resume):
    fetch = tools_of(resume)["fetch_output"]
    ref = resume.agent.store_output("éèà")
    assert called(fetch, ref=ref, start=1, length=2).content.startswith("\N{REPLACEMENT CHARACTER}è\n[continues")
    assert called(fetch, ref=ref, start=100).content == "(nothing at or after byte 100)"


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("fetch_output", {"ref": "out-" + "0" * 32}, "there is no output"),
        ("fetch_output", {"ref": "../secret"}, "not a reference"),
        ("fetch_output", {"ref": "out-" + "0" * 32, "start": -1}, "0 or more"),
        ("milestone", {"text": " "}, "not empty"),
        ("milestone", {"text": "x" * 200_000}, "at most"),
        ("set_pointer", {"name": "", "kind": "git_ref", "target": "main"}, "not empty"),
        ("update_working_state", {}, "no field"),
    ],
)
def test_mistakes_come_back_as_text(name, args, says, resume):
    answer = called(tools_of(resume)[name], **args)
    assert answer.status == "error"
    assert says in answer.content


def test_binary_output_is_refused_as_text(resume):
    ref = resume.agent.store_output(b"\x89PNG\0\0")
    answer = called(tools_of(resume)["fetch_output"], ref=ref)
    assert (answer.status, "not text" in answer.content) == ("error", True)


@pytest.mark.parametrize("mode", MODES)
async def test_model_gets_its_mistake_and_does_better(mode, tmp_path):
    async with RecallResume("agent", local_dir=tmp_path) as resume:
        script = [
            [("milestone", {"text": ""}), ("update_working_state", {"plan": "no list"})],
            [("milestone", {"text": "better"})],
            "Done.",
        ]
        model = ScriptedChat(script=script)
        await play(mode, agent_for(resume, model, recall_tools(resume)), GO)
    empty, no_list = model.inputs[1][-2:]
    assert "not empty" in empty.content
    assert "valid list" in no_list.content
    assert [turn.status for turn in recorded(tmp_path)][2:] == ["error", "error", None, None, None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("handle", [None, True])
async def test_loss_in_a_tool_stops_the_run(mode, handle, tmp_path):
    """Also where the tool node turns errors into text: then it stops before the model is asked again."""
    with Client(local_dir=tmp_path) as client:

        @tool
        def steal(text: str) -> str:
            """Take the agent over, then try to note something."""
            client.resume("agent", takeover=True).close()
            return tools_of(resume)["milestone"].invoke({"text": text})

        model = ScriptedChat(script=[[("steal", {"text": "mine"})], "Done."])
        resume = RecallResume("agent", local_dir=tmp_path)

        async def work():
            async with resume:
                tools = [steal] if handle is None else ToolNode([steal], handle_tool_errors=handle)
                await play(mode, agent_for(resume, model, tools), GO)

        with pytest.raises(LeaseLost):
            await work()
        assert len(model.inputs) == 1
        assert client.resume("agent", defer_lease=True).context.milestones == []


async def test_async_tools_leave_the_store_to_other_threads(tmp_path):
    store = WatchedStore(tmp_path)
    async with RecallResume("agent", store=store) as resume:
        tools = tools_of(resume)
        await tools["update_working_state"].ainvoke({"goal": "g"})
        await tools["milestone"].ainvoke({"text": "m"})
        await tools["set_pointer"].ainvoke({"name": "n", "kind": "object", "target": "t"})
        await resume.arecord([HumanMessage("word " * 20_000)])
        ref = resume.agent.recent_turns()[-1].output_ref
        assert (await tools["fetch_output"].ainvoke({"ref": ref, "length": 4})).startswith("word")
    assert store.threads
    assert threading.get_ident() not in store.threads


def test_tools_cost_few_tokens(resume):
    schema = str([convert_to_openai_tool(tool) for tool in recall_tools(resume)])
    assert counter_for().count(schema) < 600
