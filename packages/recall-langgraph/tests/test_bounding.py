"""`max_context_tokens`: what the model is sent stays below it, however long the thread grows."""

import json
import subprocess
import sys
import threading

import pytest
from histories import anthropic_reply, check_strict, histories, reply, responses_reply, result, user
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents.middleware import SummarizationMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from making import made_for
from polign_recall import ActionEnd, Invalid, counter_for
from polign_recall.stores import MemoryStore
from providers import check_input
from recall_langgraph import RecallResume
from recall_langgraph.bounding import Window, choose, lost_request
from recall_langgraph.measuring import FRAME, Meter, share
from running import MODES, agent_for, ids, play, recorded, thread
from scripted_chat import ScriptedChat

every_mode = pytest.mark.parametrize("mode", MODES)
COUNTER = counter_for()
LIMIT, BUDGET = 3000, 600


def tokens(messages):
    """The tokens of an input, counted without anything that remembers or estimates."""
    total = 0
    for message in messages:
        calls = getattr(message, "tool_calls", [])
        total += FRAME * (1 + len(calls)) + COUNTER.count(message.text)
        total += sum(COUNTER.count(call["name"]) + COUNTER.count(json.dumps(call["args"])) for call in calls)
    return total


def bounded(directory, **more):
    return RecallResume("agent", local_dir=directory, token_budget=BUDGET, max_context_tokens=LIMIT, **more)


class Watch:
    """Checks every input as it comes, and counts how often its beginning changed."""

    def __init__(self, visible):
        self.visible = visible
        self.leading = []
        self.steps = 0

    def __call__(self, messages):
        self.steps += 1
        (check_input if self.steps % 50 == 1 else check_strict)(messages)
        assert tokens(messages) <= LIMIT
        assert any(self.visible() in message.text for message in messages if message.type == "human")
        opening = next(message for message in messages if message.type != "system")
        if not self.leading or self.leading[-1] != opening.content:
            self.leading.append(opening.content)


# -- long runs


@pytest.mark.parametrize("asked_again", [False, True], ids=["one request", "many requests"])
def test_thread_of_2000_steps(asked_again):
    """The hooks as create_react_agent calls them; the graph itself would take most of the time."""
    request = "Request 0: move the mountain."
    store = MemoryStore()
    with RecallResume("agent", store=store, token_budget=BUDGET, max_context_tokens=LIMIT) as resume:
        resume.agent.update_working_state(goal="needle")
        watch = Watch(lambda: request)
        messages = [SystemMessage("Be brief.", id="s"), HumanMessage(request, id="u0")]
        for step in range(2000):
            watch(resume.pre_model_hook.invoke({"messages": messages})["llm_input_messages"])
            calls = [f"c{step}-{number}" for number in range(1 + step % 3)]
            messages.append(reply(f"Step {step}.", *calls, id=f"a{step}"))
            resume.post_model_hook.invoke({"messages": messages})
            messages += [result(each, f"found {each} " * (step % 17), id=f"t{each}") for each in calls]
            if asked_again and step % 40 == 39:
                request = f"Request {step}: and the next one."
                messages += [AIMessage("Done.", id=f"d{step}"), HumanMessage(request, id=f"u{step}")]
        resume.record(messages)
        assert ids(resume.agent.turns()) == ids(messages[1:])
    assert watch.steps == 2000
    assert 2 < len(watch.leading) < 2000 / 8
    assert all("needle" in opening for opening in watch.leading[1:])


@every_mode
async def test_create_agent_over_many_cuts(mode, tmp_path):
    steps = 60
    script = [[("look", {"at": f"place {number} " * 20})] for number in range(steps)]
    watch = Watch(lambda: "Go far.")
    model = ScriptedChat(script=[*script, "Done."], thinking=watch)
    async with bounded(tmp_path) as resume:
        graph = made_for(resume, model, system_prompt="Be brief.", checkpointer=InMemorySaver())
        state = await play(mode, graph, {"messages": [("user", "Go far.")]}, thread())
        assert all(sent[0].text == "Be brief." for sent in model.inputs)
    assert len(state["messages"]) == 2 * steps + 2
    assert state["messages"][0].text == "Go far."
    assert ids(recorded(tmp_path)) == ids(state["messages"])
    assert 2 < len(watch.leading) < steps / 4


@every_mode
async def test_create_react_agent_over_many_cuts(mode, tmp_path):
    script = [[("look", {"at": f"place {number} " * 20})] for number in range(60)]
    watch = Watch(lambda: "Go far.")
    async with bounded(tmp_path) as resume:
        graph = agent_for(resume, ScriptedChat(script=[*script, "Done."], thinking=watch))
        given = {"messages": [("user", "Go far.")]}
        state = await play(mode, graph, given, {"recursion_limit": 1000})
    assert ids(recorded(tmp_path)) == ids(state["messages"])
    assert 2 < len(watch.leading) < 60 / 4


def test_restored_thread_goes_on_below_the_limit(tmp_path):
    """The process that made the cut is gone; the thread comes back whole."""
    said = []
    for _ in range(4):
        with (
            SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
            bounded(tmp_path / "records") as resume,
        ):
            watch = Watch(lambda: said[-1])
            script = [part for number in range(10) for part in ([("look", {"at": f"{number} " * 150})], "Next.")]
            graph = made_for(resume, ScriptedChat(script=script, thinking=watch), checkpointer=saver)
            for _ in range(10):
                said.append(f"Request {len(said)}.")
                state = graph.invoke({"messages": [("user", said[-1])]}, thread())
            assert len(watch.leading) < watch.steps / 2
    assert len(state["messages"]) == 4 * 40
    assert ids(recorded(tmp_path / "records")) == ids(state["messages"])


@every_mode
async def test_beside_summaries(mode, tmp_path):
    """Both shorten the thread; neither loses a record, and the input stays below the limit."""
    summaries = ScriptedChat(script=[f"Summary {number}." for number in range(20)])
    summing = SummarizationMiddleware(summaries, trigger=("messages", 40), keep=("messages", 30))
    script = [[("look", {"at": f"place {number} " * 30})] for number in range(60)]
    watch = Watch(lambda: "")
    async with bounded(tmp_path) as resume:
        model = ScriptedChat(script=[*script, "Done."], thinking=watch)
        graph = made_for(resume, model, before=[summing], checkpointer=InMemorySaver())
        await play(mode, graph, {"messages": [("user", "Go far.")]}, thread())
    assert summaries.inputs
    assert [turn.role for turn in recorded(tmp_path)] == ["user", *(["assistant", "tool"] * 60), "assistant"]
    assert len(watch.leading) < 30


def test_threads_of_one_agent_are_cut_apart(tmp_path):
    with bounded(tmp_path) as resume:
        saver = InMemorySaver()
        watches = {}

        workers = []
        for name in (
            "left",
            "right",
            "up",
        ):  # made here: LangChain silences warnings while it makes tools, for all threads
            watches[name] = watch = Watch(lambda name=name: f"Go {name}.")
            script = [[("look", {"at": f"{name} " * 150})] for _ in range(30)]
            graph = made_for(resume, ScriptedChat(script=[*script, "Done."], thinking=watch), checkpointer=saver)
            said = {"messages": [("user", f"Go {name}.")]}
            workers.append(threading.Thread(target=graph.invoke, args=(said, thread(name))))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for watch in watches.values():
        assert watch.steps == 31
        assert 2 < len(watch.leading) < 10
    assert len(recorded(tmp_path)) == 3 * 62


# -- what stands for the messages that were cut


def test_briefing_tells_what_was_cut_and_not_what_is_kept(tmp_path):
    with bounded(tmp_path) as resume:
        messages = [HumanMessage("Start.", id="u")]
        for step in range(200):
            messages += [reply(f"<{step}>" * 3, f"c{step}", id=f"a{step}"), result(f"c{step}", id=f"t{step}")]
            resume.record(messages)
            sent = resume.with_briefing(messages)
            if len(sent) < len(messages):
                break
        assert sent[0].text.endswith("\n\nStart.")
        kept = sent[1].text
        before = f"<{step - len(sent) // 2}>"
        assert before in sent[0].text
        assert kept not in sent[0].text
        resume.record(sent)
        resume.record([HumanMessage(sent[0].text)])
    assert not [turn for turn in recorded(tmp_path) if "go on with the work" in str(turn.content)]


def test_thread_that_fits_is_left_alone(tmp_path):
    messages = [user(id="1"), reply("", "a", id="2"), result("a", id="3")]
    with bounded(tmp_path) as resume, RecallResume("other", local_dir=tmp_path) as other:
        assert resume.with_briefing(messages) == other.with_briefing(messages)


@every_mode
async def test_giant_result_is_shown_in_short_with_where_the_rest_is(mode, tmp_path):
    @tool
    def dump(size: int) -> str:
        """Give a lot."""
        return "line of text\n" * size

    async with bounded(tmp_path) as resume:
        watch = Watch(lambda: "Go.")
        script = [[("dump", {"size": 9000}), ("dump", {"size": 1}), ("dump", {"size": 4000})], "Done."]
        model = ScriptedChat(script=script, thinking=watch)
        state = await play(mode, made_for(resume, model, [dump]), {"messages": [("user", "Go.")]})
        giant, small, _ = shown = model.inputs[1][-3:]
        assert small.content == "line of text\n"
        ref = giant.content.split("fetch_output(ref='")[1].split("'")[0]
        assert resume.agent.fetch_output(ref).decode() == state["messages"][2].content
    assert all("line of text" in message.content for message in shown)
    assert len(state["messages"][2].content) == 9000 * 13


def test_giant_request_is_shown_in_short(tmp_path):
    with bounded(tmp_path) as resume:
        (sent,) = resume.with_briefing([HumanMessage("word " * 10_000, id="u")])
        assert tokens([sent]) <= LIMIT
        assert "of 50,000 characters are shown]" in sent.text


def test_what_was_found_out_meanwhile_is_in_the_briefing(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        resume.agent.begin_action("send", "external", {"to": "bob"})
    messages = [HumanMessage("word " * 700, id=str(number)) for number in range(10)]
    with bounded(tmp_path) as resume:
        before = resume.with_briefing(messages)[0].text
        assert resume.with_briefing(messages)[0].text == before
        resume.settle({"send": lambda action: ActionEnd("done")})
        assert "nobody knows what came of them" in before
        assert "nobody knows what came of them" not in resume.with_briefing(messages)[0].text


@every_mode
@pytest.mark.parametrize("text", ["", "I write. " * 2000], ids=["arguments", "both"])
async def test_giant_call_is_shown_in_short(mode, text, tmp_path):
    class Wordy(ScriptedChat):
        def _reply(self, number, part):
            return super()._reply(number, part).model_copy(update={"content": text} if number == 0 else {})

    @tool
    def write(path: str, lines: list[str]) -> str:
        """Write a file."""
        return f"{len(lines)} lines in {path}"

    async with bounded(tmp_path) as resume:
        watch = Watch(lambda: "Go.")
        script = [[("write", {"path": "a", "lines": ["line of text"] * 9000})], "Done."]
        model = Wordy(script=script, thinking=watch, disable_streaming=True)
        state = await play(mode, made_for(resume, model, [write]), {"messages": [("user", "Go.")]})
    assert state["messages"][2].text == "9000 lines in a"
    assert len(state["messages"][1].tool_calls[0]["args"]["lines"]) == 9000
    check_input(model.inputs[1])
    (call,) = model.inputs[1][1].tool_calls
    assert call["args"]["path"] == "a"
    assert "more" in call["args"]["lines"][-1]


@pytest.mark.parametrize("made", [anthropic_reply, responses_reply])
def test_blocks_that_repeat_a_call_are_shortened_with_it(made):
    giant = made("a")
    giant.tool_calls[0]["args"] = {"text": "word " * 5000}
    for block in giant.content:
        if "input" in block:
            block["input"] = giant.tool_calls[0]["args"]
        if "arguments" in block:
            block["arguments"] = json.dumps(giant.tool_calls[0]["args"])
    meter = Meter(COUNTER)
    short = meter.in_short(giant, 500, None)
    assert meter.one(short) <= 500
    check_input([user(), short, result("a")])
    for request in (
        ChatAnthropic(model="claude-sonnet-4-5", api_key="unused")._get_request_payload([user(), short, result("a")]),
        ChatOpenAI(model="gpt-4.1", api_key="unused", use_responses_api=True)._get_request_payload(
            [user(), short, result("a")]
        ),
    ):
        assert len(str(request)) < 5000


# -- the parts


@given(history=histories, room=st.integers(0, 200))
@settings(deadline=None)  # the first count loads a vocabulary
def test_choice_keeps_pairs_and_the_request(history, room):
    for number, message in enumerate(history):
        message.id = str(number)
    meter = Meter(COUNTER)
    start = choose(history, room, meter)
    kept = history[start:]
    gone = {call["id"] for m in history[:start] if m.type == "ai" for call in (*m.tool_calls, *m.invalid_tool_calls)}
    own = {call["id"] for m in kept if m.type == "ai" for call in (*m.tool_calls, *m.invalid_tool_calls)}
    for message in kept:
        if message.type == "tool" and message.tool_call_id in gone:
            assert message.tool_call_id in own
    asked = [message for message in history if message.type == "human"]
    assert not asked or asked[-1] in [*kept, *lost_request(history, start)]


@given(history=histories, limit=st.integers(2 * 20, 400))
@settings(deadline=None)  # the first count loads a vocabulary
def test_any_history_becomes_well_formed_and_is_cut_the_same_way_again(history, limit):
    for number, message in enumerate(history):
        message.id = str(number)
    window = Window(limit, 20, COUNTER, lambda ids: "You are resumed.", dict)
    once = window.model_input(history, "", {})
    check_strict(once)
    assert window.model_input(history, "", {}) == once
    assert Window(limit, 20, COUNTER, lambda ids: "You are resumed.", dict).model_input(history, "", {}) == once


def test_meter_counts_text_and_arguments():
    meter = Meter(COUNTER)
    call = AIMessage("", id="1", tool_calls=[{"id": "c", "name": "write", "args": {"text": "word " * 500}}])
    assert 500 < meter.one(call) < 530
    assert meter.one(HumanMessage("word " * 500, id="2")) in range(500, 510)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    assert meter.one(HumanMessage([{"type": "text", "text": "see"}, picture], id="3")) < 10
    assert meter.one(HumanMessage("word " * 5, id="2")) < 12  # edited, under the same id


def test_no_vocabulary_is_loaded_while_the_bytes_are_few(tmp_path):
    code = f"""
import sys
from langchain_core.messages import HumanMessage
from recall_langgraph import RecallResume
with RecallResume("agent", local_dir={str(tmp_path)!r}, max_context_tokens=20_000) as resume:
    resume.with_briefing([HumanMessage("word " * 1000, id="1")])
print("tiktoken" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["False"]


@given(costs=st.lists(st.integers(0, 50), max_size=6), room=st.integers(0, 100))
def test_share_uses_the_room(costs, room):
    most = share(costs, room)
    assert sum(min(cost, most) for cost in costs) <= room
    assert sum(costs) <= room or sum(min(cost, most + 1) for cost in costs) > room


@pytest.mark.parametrize("limit", [2 * BUDGET - 1, 0, -1, True, "many", 1e9])
def test_limits_that_cannot_be_kept_are_refused(limit, tmp_path):
    resume = RecallResume("agent", local_dir=tmp_path, token_budget=BUDGET, max_context_tokens=limit)
    with pytest.raises(Invalid, match="max_context_tokens"):
        resume.__enter__()
    with RecallResume("agent", local_dir=tmp_path):  # it was handed back
        pass
