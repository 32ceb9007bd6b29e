"""The quickstart, run for real: a killed agent carries on; its scripted server speaks the protocol."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

QUICKSTART = Path(__file__).resolve().parent.parent / "examples" / "quickstart"
sys.path.insert(0, str(QUICKSTART))

from agent_runs import Run, Workplace  # noqa: E402
from claims import claims_of  # noqa: E402
from migration_project import ORIGINAL, Project  # noqa: E402
from scripted_model import migrated, scripted_model  # noqa: E402
from scripted_openai import Exchange, Reply, ScriptedOpenAI, ToolCall  # noqa: E402

RUN_LIMIT = 400.0


def kill_and_resume(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(QUICKSTART / "kill_and_resume.py"), *options]
    environment = {**os.environ, "TMPDIR": str(place)}
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT, env=environment)


@pytest.mark.parametrize(
    ("options", "processes"),
    [
        ([], 2),
        (["--kill-after", "1", "--keep"], 2),
        (["--kill-after", "11"], 2),
        (["--kill-after", "4", "--kills", "2", "--delay", "0.05"], 3),
    ],
    ids=["as documented", "first module", "last module", "killed twice"],
)
def test_the_killed_agent_carries_on_and_does_nothing_twice(tmp_path: Path, options: list[str], processes: int) -> None:
    done = kill_and_resume(tmp_path, *options)
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert done.stdout.count("KILLED with SIGKILL") == processes - 1, shown
    assert f"epoch {processes} after {processes} processes" in done.stdout, shown
    assert done.stdout.count("\n  ok ") == 6, shown
    assert "FAIL" not in done.stdout
    kept = list(tmp_path.glob("kill-and-resume-*"))
    assert len(kept) == ("--keep" in options)
    for place in kept:
        assert f"The workspace is kept: {place}" in done.stdout
        assert "import pay" in (place / "project" / "shop" / "orders.py").read_text()
        assert (place / "recall-data").is_dir()


@pytest.mark.parametrize("options", [["--kill-after", "0"], ["--kill-after", "6", "--kills", "2"]])
def test_a_kill_that_could_not_land_is_refused(tmp_path: Path, options: list[str]) -> None:
    done = kill_and_resume(tmp_path, *options)
    assert done.returncode == 2
    assert "N times K must be from 1 to 11" in done.stderr


def exchanges(*calls: ToolCall) -> list[Exchange]:
    return [Exchange({}, Reply(calls=(call,))) for call in calls]


def write(path: str) -> ToolCall:
    return ToolCall("write_file", {"path": path, "content": ""})


@pytest.fixture
def finished(tmp_path: Path) -> Workplace:
    """A migration that two processes did as they should: the first five modules, then the others."""
    place = Workplace(tmp_path, Project.copied_to(tmp_path / "project"), ScriptedOpenAI(scripted_model))
    modules = place.project.modules()
    for part in (modules[:5], modules[5:]):
        before = place.project.stamps()
        for path in part:
            file = place.project.folder / path
            file.write_text(migrated(file.read_text()))
        place.runs.append(Run(1, 0, "", before, part, exchanges(*map(write, part))))
    return place


def write_again_on_disk(place: Workplace) -> None:
    file = place.project.folder / place.project.modules()[0]
    part = file.with_suffix(".part")
    part.write_text(file.read_text())
    part.replace(file)


def undo(place: Workplace) -> None:
    path = place.project.modules()[-1]
    (place.project.folder / path).write_text((ORIGINAL / path).read_text())


DAMAGES = {
    "written again": lambda place: place.runs[1].exchanges.extend(exchanges(write(place.project.modules()[0]))),
    "written twice": lambda place: place.runs[1].exchanges.extend(exchanges(write(place.project.modules()[-1]))),
    "written elsewhere": lambda place: place.runs[0].exchanges.extend(exchanges(write("vendor/kiosk.py"))),
    "written again on disk": write_again_on_disk,
    "never moved": undo,
    "listed again": lambda place: place.runs[1].exchanges.extend(exchanges(ToolCall("list_files", {}))),
    "planned again": lambda place: place.runs[1].exchanges.extend(
        exchanges(ToolCall("update_working_state", {"goal": "Move it."}))
    ),
    "read again": lambda place: place.runs[1].exchanges.extend(
        exchanges(*(ToolCall("read_file", {"path": path}) for path in place.project.modules()[:2]))
    ),
    "another file changed": lambda place: (place.project.folder / "vendor/kiosk.py").write_text("# ours now\n"),
    "another file added": lambda place: (place.project.folder / "shop/orders.py.part").write_text(""),
    "another file removed": lambda place: (place.project.folder / "MIGRATION.md").unlink(),
}


def test_the_claims_hold_for_a_migration_as_it_should_be(finished: Workplace) -> None:
    assert [claim.problems for claim in claims_of(finished, epoch=2)] == [[]] * 6


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_each_claim_is_lost_when_it_is_not_true(finished: Workplace, damage: Any) -> None:
    damage(finished)
    assert any(claim.problems for claim in claims_of(finished, epoch=2))


def test_another_epoch_than_processes_is_a_problem(finished: Workplace) -> None:
    assert claims_of(finished, epoch=3)[-1].problems == ["the epoch is 3 after 2 processes"]


def test_a_model_that_ignores_the_briefing_is_found_out(tmp_path: Path) -> None:
    def forgetful(request: dict[str, Any]) -> Reply:
        messages = [m if m["role"] != "user" else {**m, "content": "Go on."} for m in request["messages"]]
        return scripted_model({**request, "messages": messages})

    with ScriptedOpenAI(forgetful) as server:
        place = Workplace(tmp_path, Project.copied_to(tmp_path / "project"), server)
        killed, resumed = place.run(kill_after=4), place.run()
    assert killed.returncode == -signal.SIGKILL, killed.output
    assert resumed.returncode == 0, resumed.output
    problems = [problem for claim in claims_of(place, epoch=2) for problem in claim.problems]
    assert "process 2 looked at the task from the beginning" in problems
    assert "process 2 set the goal again" in problems
    assert any(problem.startswith("process 2 read again: shop/deposits.py") for problem in problems)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
def say(text: str) -> str:
    """Says a text."""
    return text


REPLY = Reply("Two things at once: ünï", (ToolCall("add", {"a": 2, "b": 3}), ToolCall("say", {"text": "é" * 60})))
EXPECTED_CALLS = [("add", {"a": 2, "b": 3}), ("say", {"text": "é" * 60})]


def two_steps(request: dict[str, Any]) -> Reply:
    """Calls the tools, then tells their results; nothing but the request decides."""
    names = {offered["function"]["name"] for offered in request["tools"]}
    assert names == {"add", "say"}
    results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
    return Reply("results: " + ", ".join(results)) if results else REPLY


def chat(server: ScriptedOpenAI, **settings: Any) -> Any:
    model = ChatOpenAI(model="gpt-4.1", base_url=server.url, api_key="none", max_retries=0, **settings)
    return model.bind_tools([add, say])


def assert_is_the_reply(message: AIMessage) -> None:
    assert message.text == REPLY.text
    assert [(call["name"], call["args"]) for call in message.tool_calls] == EXPECTED_CALLS
    assert len({call["id"] for call in message.tool_calls}) == 2
    assert message.response_metadata["finish_reason"] == "tool_calls"


def test_chat_openai_invokes_the_scripted_model_with_tools() -> None:
    with ScriptedOpenAI(two_steps) as server:
        question = HumanMessage("Go on.")
        message = chat(server).invoke([question])
        assert_is_the_reply(message)
        usage = message.usage_metadata
        assert usage["input_tokens"] > 0
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        results = [(add if call["name"] == "add" else say).invoke(call) for call in message.tool_calls]
        answer = chat(server).invoke([question, message, *results])
        assert answer.text == f"results: 5, {'é' * 60}"
        assert answer.response_metadata["finish_reason"] == "stop"
        assert [exchange.reply.text for exchange in server.exchanges] == [REPLY.text, answer.text]


async def test_chat_openai_invokes_it_asynchronously() -> None:
    with ScriptedOpenAI(two_steps) as server:
        assert_is_the_reply(await chat(server).ainvoke("Go on."))


def test_chat_openai_streams_from_it_in_pieces() -> None:
    with ScriptedOpenAI(two_steps) as server:
        chunks = list(chat(server, stream_usage=True).stream("Go on."))
    assert len(chunks) > 5
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert_is_the_reply(whole)
    assert whole.usage_metadata["output_tokens"] > 0


async def test_chat_openai_streams_from_it_asynchronously() -> None:
    with ScriptedOpenAI(two_steps) as server:
        chunks = [chunk async for chunk in chat(server).astream("Go on.")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert_is_the_reply(whole)
    assert whole.usage_metadata is None  # it was not asked for


def test_a_request_that_is_not_understood_is_an_error_with_a_reason() -> None:
    with ScriptedOpenAI(scripted_model) as server:
        model = ChatOpenAI(model="gpt-4.1", base_url=server.url, api_key="none", max_retries=0)
        wrong = [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function"}]}]
        with pytest.raises(Exception, match="the request is not understood") as raised:
            model.root_client.chat.completions.create(model="gpt-4.1", messages=wrong)
        assert raised.value.status_code == 400


def test_the_scripted_model_rewrites_calls_and_nothing_else() -> None:
    source = (QUICKSTART / "project" / "shop" / "repairs.py").read_text()
    expected = source.replace("from billing.legacy import charge", "from billing.payments import pay, to_cents")
    expected = expected.replace("charge(customer, parts_cents, cents=True)", "pay(customer, parts_cents)")
    expected = expected.replace("charge(customer, labour)", "pay(customer, to_cents(labour))")
    assert migrated(source) == expected
    assert migrated(expected) == expected
