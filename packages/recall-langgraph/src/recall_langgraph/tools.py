"""Tools that let the model keep its own records: working state, milestones, pointers, stored outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeAlias

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from polign_recall import DataError, Invalid
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict  # pydantic asks for this one below Python 3.12

from .resume import RecallResume

PIECE = 8000
"""Characters of an output that one call gives at most: about 2,000 tokens of English, as for a recorded turn."""


# None may be given, and is not worth its tokens in the schema.
_Text: TypeAlias = str | SkipJsonSchema[None]
_Texts: TypeAlias = list[str] | SkipJsonSchema[None]


class _Step(TypedDict):
    step: str
    status: Literal["todo", "doing", "done"]


def recall_tools(resume: RecallResume) -> list[BaseTool]:
    """`update_working_state`, `milestone`, `set_pointer` and `fetch_output`, for a model that keeps its records.

    What they write is durable when they return. Arguments that cannot be used, or an output that is not there, come
    back as the tool's text, with status "error", so that the model can do better. LeaseError and StoreError are
    raised: the run must stop.
    """

    def update_working_state(
        goal: _Text = None,
        plan: list[_Step] | SkipJsonSchema[None] = None,
        progress: _Text = None,
        focus: _Text = None,
        decisions: _Texts = None,
        open_questions: _Texts = None,
        notes: _Text = None,
    ) -> str:
        """Save what you are doing, to go on from after a restart. Only the fields given change; each is replaced."""
        resume.agent.update_working_state(
            goal=goal,
            plan=[dict(step) for step in plan] if plan is not None else None,
            progress=progress,
            focus=focus,
            decisions=decisions,
            open_questions=open_questions,
            notes=notes,
        )
        return "saved"

    def milestone(text: str) -> str:
        """Note something that is finished."""
        resume.agent.milestone(text)
        return "saved"

    def set_pointer(name: str, kind: str, target: str, note: str = "") -> str:
        """Note where work lives. kind: git_ref, object, environment, external, process, or your own word."""
        resume.agent.set_pointer(name, kind, target, note)
        return "saved"

    def fetch_output(ref: str, start: int = 0, length: int = PIECE) -> str:
        """Read a stored output, from byte start, at most length characters."""
        return _piece(resume, ref, start, min(max(length, 1), PIECE))

    return [_tool(function) for function in (update_working_state, milestone, set_pointer, fetch_output)]


def _piece(resume: RecallResume, ref: str, start: int, length: int) -> str:
    """The text of an output from byte `start`, and how to get what follows. A character is at most 4 bytes."""
    data = resume.agent.fetch_output(ref, start=start, length=4 * length + 1)
    if b"\0" in data:
        raise Invalid(f"{ref} is not text, and cannot be shown")
    # Escaped, bytes that are no character (a start amid one) keep their count.
    text = data.decode(errors="surrogateescape")[:length]
    read = text.encode(errors="surrogateescape")
    shown = read.decode(errors="replace")
    if len(read) == len(data):
        return shown or f"(nothing at or after byte {start})"
    return f"{shown}\n[continues: fetch_output(ref={ref!r}, start={start + len(read)})]"


def _tool(function: Callable[..., str]) -> BaseTool:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> str:
        try:
            return function(*args, **kwargs)
        except DataError as error:
            raise ToolException(str(error)) from error

    @wraps(function)
    async def arun(*args: Any, **kwargs: Any) -> str:
        return await asyncio.to_thread(run, *args, **kwargs)

    return StructuredTool.from_function(run, coroutine=arun, handle_tool_error=True)
