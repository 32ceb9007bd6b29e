"""Long runs: what a turn costs does not grow, and the leading block of the model's input stays the same bytes."""

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from providers import check_input
from recall_langgraph import RecallResume
from running import GO, WatchedStore, agent_for, check_records, recorded, thread
from scripted_chat import AnsweringChat, ScriptedChat

ROUNDS = 260


@tool
def read(page: int) -> str:
    """Read a page of about 1 kB, each another."""
    return f"page {page}: " + " ".join(f"word{page * 1000 + number}" for number in range(100))


def test_bytes_per_turn_and_the_leading_block_stay_the_same(tmp_path):
    with RecallResume("agent", local_dir=tmp_path) as resume:
        resume.record([("user", f"An earlier turn, number {number}.") for number in range(50)])
    store, written = WatchedStore(tmp_path), []

    def answer(messages):
        written.append(sum(store.created))
        number = len(written)
        return [("read", {"page": number})] if number < ROUNDS else "Done."

    model = AnsweringChat(answer=answer)
    with RecallResume("agent", store=store) as resume:
        state = agent_for(resume, model, [read]).invoke(GO, {"recursion_limit": 10 * ROUNDS})
        briefing = resume.briefing
    half = ROUNDS // 2  # in either half older turns are folded some times, which writes the same amount for each
    early, late = written[half - 1] - written[0], written[-1] - written[half - 1]
    assert late < 1.5 * early, (early, late)
    assert {messages[0].text for messages in model.inputs} == {f"{briefing}\n\nGo."}
    for messages in (model.inputs[0], model.inputs[-1]):
        check_input(messages)
    assert len(recorded(tmp_path)) == 50 + len(state["messages"])


def test_hundred_restarts_in_one_thread_record_each_message_once(tmp_path):
    saver, leading = InMemorySaver(), []
    for number in range(100):
        model = ScriptedChat(script=[f"Answer {number}."])
        with RecallResume("agent", local_dir=tmp_path) as resume:
            graph = agent_for(resume, model, [], checkpointer=saver)
            state = graph.invoke({"messages": [("user", f"Question {number}?")]}, thread())
            leading.append(len(model.inputs[0][0].text))
        check_input(model.inputs[0])
    check_records(tmp_path, state["messages"])
    assert max(leading[60:]) < 1.2 * min(leading[60:])  # a briefing does not feed on briefings
