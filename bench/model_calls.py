"""What keeping an agent's work adds to a model call: `python bench/model_calls.py`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt import create_react_agent
from measuring import TURN_TEXT, Bar, Case, Report, Series, interleaved, main, scratch, table
from polign_recall.records import ActionClass
from recall_langgraph import RecallResume

CALLS = 200
"""Model calls of one run: all but the last ask for a tool."""
ROUNDS = 9

warnings.filterwarnings("ignore", message="create_react_agent has been moved")


class ScriptedModel(BaseChatModel):
    """Asks for one tool call after another and then says that it is done; decides by the messages it is sent."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedModel:
        """The script knows its tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        number = sum(isinstance(message, AIMessage) for message in messages) + 1
        call = {"id": f"call-{number}", "name": "convert", "args": {"invoice": number}}
        reply = AIMessage(TURN_TEXT, tool_calls=[call] if number < CALLS else [])
        return ChatResult(generations=[ChatGeneration(message=reply)])


@tool
def convert(invoice: int) -> str:
    """Convert an invoice."""
    return TURN_TEXT


def run(tools: Sequence[BaseTool] = (convert,), **options: Any) -> None:
    """One run of an agent: CALLS model calls and their tools."""
    agent = create_react_agent(ScriptedModel(), tools, **options)
    config: Any = {"recursion_limit": 5 * CALLS, "configurable": {"thread_id": "bench"}}
    agent.invoke({"messages": [("user", "Convert the invoices.")]}, config)


def in_memory() -> None:
    """Checkpoints in memory: gone with the process."""
    run(checkpointer=InMemorySaver())


def in_sqlite(path: Path) -> None:
    """Checkpoints in an SQLite file."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        run(checkpointer=saver)


def with_hooks_that_do_nothing() -> None:
    """No persistence, and the two steps more that a graph with hooks takes for each model call."""
    run(pre_model_hook=lambda state: {"llm_input_messages": state["messages"]}, post_model_hook=lambda state: {})


def in_a_directory(path: Path) -> None:
    """Ours: a new agent each time, on a directory, from opening to leaving."""
    with RecallResume("bench", local_dir=str(path)) as resume:
        run(pre_model_hook=resume.pre_model_hook, post_model_hook=resume.post_model_hook)


def journalled(path: Path, class_: ActionClass) -> None:
    """The same with each call of the tool written down before it and after."""
    with RecallResume("bench", local_dir=str(path)) as resume:
        tools = resume.durable([convert], classes={"convert": class_})
        run(tools, pre_model_hook=resume.pre_model_hook, post_model_hook=resume.post_model_hook)


def measure() -> Report:
    """Measure whole runs side by side."""
    with scratch() as path:
        numbers = count(1)
        cases = {
            "nothing": run,
            "InMemorySaver": in_memory,
            "SqliteSaver, a file on the same disk": lambda: in_sqlite(path / f"{next(numbers)}.sqlite"),
            "two hooks that do nothing": with_hooks_that_do_nothing,
            "RecallResume, a directory on the same disk": lambda: in_a_directory(path / str(next(numbers))),
            "the same, its tool journalled as idempotent": lambda: journalled(path / str(next(numbers)), "idempotent"),
            "the same, its tool journalled as external": lambda: journalled(path / str(next(numbers)), "external"),
        }
        runs = interleaved({name: Case(case) for name, case in cases.items()}, ROUNDS)
    series = [Series(one.case, "ms per model call", [took / CALLS for took in one.samples]) for one in runs]
    rows = [
        [one.case, f"{one.median:.2f} ms", f"{one.above(series[0]):.2f} ms", f"{one.ratio(series[0]):.2f}"]
        for one in series
    ]
    heading = ["what keeps the work", "per model call", "added", "times nothing"]
    saver, plain, external = (series[number].above(series[0]) for number in (1, 4, 6))
    bars = [
        Bar("time that RecallResume adds to a model call", plain, 2, "ms"),
        Bar("the same, times what InMemorySaver adds", plain / saver, 0.67, "x"),
        Bar("time that is added with a journalled tool, external", external, 4, "ms"),
        Bar("the same, times what InMemorySaver adds", external / saver, 1.33, "x"),
    ]
    return Report("model_calls", table(heading, rows), bars, series)


if __name__ == "__main__":
    main(measure)
