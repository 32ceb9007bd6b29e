"""Agents of the real create_agent with RecallMiddleware, and what tests of them share."""

from typing import Any

from langchain.agents import create_agent
from recall_langgraph import RecallMiddleware
from running import look


def made_for(resume, model, tools=(look,), *, before=(), after=(), classes=None, **more: Any):
    """The real create_agent; `before` and `after` are the middleware in front of and behind ours in the list."""
    ours = RecallMiddleware(resume) if classes is None else RecallMiddleware(resume, classes=classes)
    return create_agent(model, list(tools), middleware=[*before, ours, *after], **more)
