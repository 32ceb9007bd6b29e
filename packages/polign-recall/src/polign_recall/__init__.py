"""Polign Recall: an agent's work survives its process.

An agent writes its goal, plan, progress, decisions, pointers and turns to a store of yours as it works. A lease lets
one process at a time own an agent id. The next process starts from a briefing within a token budget.

    with Client(local_dir="./recall-data").resume("billing-migrator") as agent:
        print(agent.context.briefing)
        agent.update_working_state(goal="Move billing to the new API")
        agent.record_turn("user", "Carry on with the migration.")
"""

from .actions import Action, ActionEnd, ReconcileReport
from .agent import Context, ResumedAgent
from .backend import AgentStatus, DeleteReport
from .checking import PointerCheck
from .client import Client
from .errors import (
    AuthFailed,
    Closed,
    Corrupt,
    DataError,
    FormatTooNew,
    Invalid,
    LeaseError,
    LeaseHeld,
    LeaseLost,
    LeaseNotHeld,
    NotFound,
    RecallError,
    StoreDenied,
    StoreError,
    StoreUnavailable,
    StoreUnsupported,
    TooLarge,
    WriteUnknown,
)
from .records import (
    ActionEnded,
    ActionStarted,
    Call,
    Milestone,
    OutputStored,
    Pin,
    PlanStep,
    Pointer,
    PointerRemoved,
    Record,
    Turn,
    Unpin,
    WorkingState,
)
from .redact import redact
from .stores import open_store
from .tokens import TokenCounter, counter_for

__version__ = "0.1.0"

__all__ = [
    "Action", "ActionEnd", "ActionEnded", "ActionStarted", "AgentStatus", "AuthFailed", "Call", "Client",
    "Closed", "Context", "Corrupt", "DataError", "DeleteReport", "FormatTooNew", "Invalid", "LeaseError", "LeaseHeld",
    "LeaseLost", "LeaseNotHeld", "Milestone", "NotFound", "OutputStored", "Pin", "PlanStep", "Pointer",
    "PointerCheck", "PointerRemoved", "RecallError", "ReconcileReport", "Record", "ResumedAgent", "StoreDenied",
    "StoreError", "StoreUnavailable", "StoreUnsupported", "TokenCounter", "TooLarge", "Turn", "Unpin", "WorkingState",
    "WriteUnknown", "__version__", "counter_for", "open_store", "redact",
]  # fmt: skip
