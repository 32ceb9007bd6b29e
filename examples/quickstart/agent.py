"""An agent that migrates a code base. Kill it at any moment; run it again and it carries on.

    python agent.py PROJECT

What has to be done is in the project's MIGRATION.md; what the agent knows is kept in ./recall-data.
"""

import os
import subprocess
import sys
from pathlib import Path

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from recall_langgraph import RecallResume, recall_tools

PROJECT = Path(sys.argv[1] if len(sys.argv) > 1 else "project").resolve()


def inside(path: str) -> Path | None:
    """The file that the model means, or None when it is outside the project."""
    file = (PROJECT / path).resolve()
    return file if file.is_relative_to(PROJECT) else None


def list_files() -> str:
    """Lists the project's files, one a line."""
    files = sorted(file for file in PROJECT.rglob("*") if file.suffix in (".py", ".md"))
    return "\n".join(file.relative_to(PROJECT).as_posix() for file in files)


def read_file(path: str) -> str:
    """Reads a file of the project."""
    file = inside(path)
    if file is None or not file.is_file():
        return f"error: there is no file {path} in the project"
    return file.read_text(encoding="utf-8")


def write_file(path: str, content: str) -> str:
    """Writes a file of the project, whole or not at all."""
    file = inside(path)
    if file is None:
        return f"error: {path} is outside the project"
    part = file.with_name(file.name + ".part")
    part.write_text(content, encoding="utf-8")
    os.replace(part, file)
    return f"wrote {path} ({len(content)} characters)"


def run_tests() -> str:
    """Runs the project's tests."""
    command = [sys.executable, "-B", "-m", "unittest", "discover", "-t", ".", "tests"]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    return ("the tests pass\n" if run.returncode == 0 else "the tests FAIL\n") + run.stderr[-4000:]


with RecallResume("billing-migrator", local_dir="./recall-data") as resume:
    agent = create_react_agent(
        ChatOpenAI(model="gpt-4.1"),
        tools=[list_files, read_file, write_file, run_tests, *recall_tools(resume)],
        prompt="You migrate a code base as its MIGRATION.md says. "
        "Keep your working state current with update_working_state when your plan changes.",
        pre_model_hook=resume.pre_model_hook,
        post_model_hook=resume.post_model_hook,
    )
    result = agent.invoke({"messages": [("user", "Carry on with the migration.")]})
    print(result["messages"][-1].content)
