"""LangGraph agents that pick up where they stopped, from their own records.

    from recall_langgraph import RecallMiddleware, RecallResume, recall_tools

Names are loaded when they are first used, so that the import itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .middleware import RecallMiddleware
    from .resume import RecallResume
    from .tools import recall_tools

__version__ = "0.1.0"
__all__ = ["RecallMiddleware", "RecallResume", "__version__", "recall_tools"]

_HOMES = {"RecallMiddleware": "middleware", "RecallResume": "resume", "recall_tools": "tools"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
