"""Every code block of the documentation runs.

The blocks of a page run in order in one empty folder: Python each in a process of its own, shell with `sh -e`. A model
is played by the quickstart's scripted server, which just answers. `./dev` itself is what CI runs, so not run here.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "packages/*/*.md", "examples/**/*.md", "bench/*.md")
    for page in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^```(python|sh|bash|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES_WITH_CODE = [page for page in PAGES if BLOCK.search((ROOT / page).read_text())]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    scripted = load(ROOT / "examples/quickstart/scripted_openai.py")

    def answer(request: dict[str, Any]) -> Any:
        return scripted.Reply(text="Done.")

    with scripted.ScriptedOpenAI(answer) as server:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        yield {**os.environ, "PATH": path, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": server.url}


def test_the_main_pages_have_code() -> None:
    assert {"README.md", "packages/polign-recall/README.md", "packages/recall-langgraph/README.md"} <= set(
        PAGES_WITH_CODE
    )


@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_code_blocks_run(page: str, tmp_path: Path, environment: dict[str, str]) -> None:
    for number, (language, code) in enumerate(BLOCK.findall((ROOT / page).read_text()), 1):
        if language == "python":
            # The one warning that LangGraph gives for create_react_agent is its business.
            command = [sys.executable, "-W", "error", "-W", "ignore:create_react_agent", "-c", code]
        else:
            lines = [line for line in code.splitlines() if not line.startswith("./dev")]
            command = ["sh", "-ec", "\n".join(lines)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"block {number} of {page}:\n{code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
