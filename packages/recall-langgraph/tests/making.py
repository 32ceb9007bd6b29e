"""Agents of the real create_agent with RecallMiddleware, and what tests of them share."""

import inspect
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from recall_langgraph import RecallMiddleware
from running import look


def made_for(resume, model, tools=(look,), *, before=(), after=(), classes=None, **more: Any):
    """The real create_agent; `before` and `after` are the middleware in front of and behind ours in the list."""
    ours = RecallMiddleware(resume) if classes is None else RecallMiddleware(resume, classes=classes)
    return create_agent(model, list(tools), middleware=[*before, ours, *after], **more)


def person_asked(how):
    """A person who decides on every call of `send`: asked about all of a reply at once, "batched", or "per_call"."""
    if how == "batched":  # the only way of older versions, and still what is done without a word
        return HumanInTheLoopMiddleware({"send": True})
    if "interrupt_mode" not in inspect.signature(HumanInTheLoopMiddleware).parameters:
        pytest.skip("this langchain asks about all of a reply at once")
    return HumanInTheLoopMiddleware({"send": True}, interrupt_mode=how)
