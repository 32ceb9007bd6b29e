"""The scripted model of the demo: it migrates the shop as a careful language model would.

It is a function of one request. What is done and what comes next it works out from the messages alone: the
tool calls and results of this conversation and, when the agent was restarted, the briefing in front of the
user's message. It reads a module before it writes it, so that a write whose outcome nobody recorded is looked
at before it is repeated, and it keeps its plan current with `update_working_state`.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from scripted_openai import Reply, ToolCall

TASK = "MIGRATION.md"
TESTS = "run the tests"
UPDATE_EVERY = 3
"""Modules finished between two updates of the working state."""

MODULE = re.compile(r"\bshop/\w+\.py\b")
WROTE = re.compile(r"\bwrote (shop/\w+\.py)\b")
STEP_LINE = re.compile(rf"^[ \t]*\[(.)\] ({MODULE.pattern}|{TESTS})$", re.MULTILINE)
"""A step of a plan in a briefing, such as `[x] shop/orders.py`."""
OLD_IMPORT = re.compile(r"^from billing\.legacy import charge$", re.MULTILINE)
OLD_CALL = re.compile(r"\bcharge\(([^,()]+), ([^,()]+?)(, cents=True)?\)")


@dataclass(frozen=True)
class Step:
    """A tool call of this conversation and its result, or None when there is none yet."""

    name: str
    args: dict[str, Any]
    result: str | None


@dataclass(frozen=True)
class Known:
    """What the model knows from one request."""

    steps: list[Step]
    plan: dict[str, str]
    """Each step of the plan with its status, as last written down."""
    finished: frozenset[str]
    """The modules that need nothing more, written down as done or not."""

    def unfinished(self) -> list[str]:
        """The modules of the plan that are still to do, in order."""
        return [step for step in self.plan if MODULE.fullmatch(step) and step not in self.finished]

    def result_of(self, name: str, path: str | None = None) -> str | None:
        """The result of the last such call in this conversation, if there was one."""
        found = [s for s in self.steps if s.name == name and (path is None or s.args.get("path") == path)]
        return found[-1].result if found else None


def scripted_model(request: dict[str, Any]) -> Reply:
    """The model's answer to one request."""
    known = understand(request)
    return _start(known) or _keep_plan(known) or _migrate_next(known) or _finish(known)


def migrated(source: str) -> str:
    """A module moved from billing.legacy to billing.payments, as MIGRATION.md says."""

    def new_call(old: re.Match[str]) -> str:
        customer, amount, cents = old.groups()
        return f"pay({customer}, {amount})" if cents else f"pay({customer}, to_cents({amount}))"

    body = OLD_CALL.sub(new_call, source)
    names = "pay, to_cents" if "to_cents(" in body else "pay"
    return OLD_IMPORT.sub(f"from billing.payments import {names}", body)


def understand(request: dict[str, Any]) -> Known:
    """Reads the whole request: the conversation, and the briefing if there is one."""
    messages = request["messages"]
    steps = _steps(messages)
    told = "\n".join(_text(message) for message in messages if message["role"] == "user")
    plan = _plan(steps, told)
    marked = {step for step, status in plan.items() if status == "done"}
    return Known(steps, plan, frozenset(marked | set(WROTE.findall(told)) | _finished(steps)))


def _steps(messages: list[dict[str, Any]]) -> list[Step]:
    results = {m["tool_call_id"]: _text(m) for m in messages if m["role"] == "tool"}
    calls = [call for m in messages for call in m.get("tool_calls") or []]
    return [
        Step(call["function"]["name"], json.loads(call["function"]["arguments"]), results.get(call["id"]))
        for call in calls
    ]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _plan(steps: list[Step], told: str) -> dict[str, str]:
    """The plan as last written down: in this conversation, or else in the briefing."""
    for step in reversed(steps):
        if step.name == "update_working_state" and step.args.get("plan"):
            return {item["step"]: item["status"] for item in step.args["plan"]}
    return _briefed_plan(told)


def _briefed_plan(told: str) -> dict[str, str]:
    """The plan that a briefing tells, if there is one. Its own lines come before the turns that it quotes."""
    plan: dict[str, str] = {}
    for mark, step in STEP_LINE.findall(told):
        plan.setdefault(step, {"x": "done", ">": "doing"}.get(mark, "todo"))
    return plan


def _finished(steps: list[Step]) -> set[str]:
    """The modules of which this conversation shows that they were written, or need no change."""
    finished = set()
    for step in steps:
        if step.name == "write_file" and step.result and WROTE.match(step.result):
            finished.add(step.args["path"])
        if step.name == "read_file" and step.result and _needs_nothing(step.args["path"], step.result):
            finished.add(step.args["path"])
    return finished


def _needs_nothing(path: str, source: str) -> bool:
    return bool(MODULE.fullmatch(path)) and not OLD_IMPORT.search(source) and not source.startswith("error")


def _start(known: Known) -> Reply | None:
    """Finds out what the task is and writes down the plan, unless there is one."""
    if known.plan:
        return None
    listing = known.result_of("list_files")
    if listing is None:
        return _call("I will see what there is.", "list_files")
    if known.result_of("read_file", TASK) is None:
        return _call(f"{TASK} says what to do.", "read_file", path=TASK)
    modules = [path for path in MODULE.findall(listing) if not path.endswith("__init__.py")]
    return _call(
        "I know what to do, and write down the plan.",
        "update_working_state",
        goal="Move every module in shop/ from billing.legacy to billing.payments, as MIGRATION.md says.",
        plan=_as_plan(dict.fromkeys([*modules, TESTS], "todo")),
        focus=modules[0],
        decisions=["Read each module before writing it; leave alone what does not import billing.legacy."],
    )


def _keep_plan(known: Known) -> Reply | None:
    """Brings the written plan up to date after every few modules, and after the last one."""
    behind = [step for step in known.plan if step in known.finished and known.plan[step] != "done"]
    left = known.unfinished()
    if not behind or (left and len(behind) < UPDATE_EVERY):
        return None
    plan = {step: "done" if step in known.finished else known.plan[step] for step in known.plan}
    following = left[0] if left else TESTS
    plan[following] = "doing"
    return _call(
        f"{len(known.finished)} modules are finished; next is {following}.",
        "update_working_state",
        plan=_as_plan(plan),
        progress=f"{len(known.finished)} of {len(known.finished) + len(left)} modules are finished.",
        focus=following,
    )


def _migrate_next(known: Known) -> Reply | None:
    """Reads the next module, or writes it when it has been read."""
    left = known.unfinished()
    if not left:
        return None
    path = left[0]
    last = next((s for s in reversed(known.steps) if s.args.get("path") == path), None)
    if last is None or last.result is None:
        return _call(f"Next is {path}.", "read_file", path=path)
    if last.name != "read_file" or last.result.startswith("error"):
        return Reply(f"I cannot go on with {path}: {last.result}")
    return _call(f"{path} uses the old call.", "write_file", path=path, content=migrated(last.result))


def _finish(known: Known) -> Reply:
    """Runs the tests, writes down that all is done, and says so."""
    if known.plan.get(TESTS) == "done":
        return Reply("The migration is done: every module in shop/ is moved, and the tests pass.")
    tests = known.result_of("run_tests")
    if tests is None:
        return _call("All modules are finished; now the tests.", "run_tests")
    if not tests.startswith("the tests pass"):
        return Reply(f"Every module is moved, but the tests do not pass:\n{tests}")
    plan = dict.fromkeys(known.plan, "done")
    return _call("The tests pass.", "update_working_state", plan=_as_plan(plan), progress="All is done.", focus="")


def _as_plan(plan: dict[str, str]) -> list[dict[str, str]]:
    return [{"step": step, "status": status} for step, status in plan.items()]


def _call(text: str, name: str, **args: Any) -> Reply:
    return Reply(text, (ToolCall(name, args),))
