"""Who may import whom, as ARCHITECTURE.md says."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "packages/polign-recall/src/polign_recall"
# From the ground up; a layer may import those before it, and itself.
LAYERS = [
    "secret_shapes", "redact", "errors", "stores", "chain", "text", "records", "checking", "checkers", "state",
    "actions", "tokens", "briefing", "outputs", "history", "cleaning", "preparing", "writer", "journal", "backend",
    "remote", "agent", "client",
]  # fmt: skip
ABOVE = {"__init__", "testing"}
MODULES = {"polign-recall": "polign_recall", "polign-db": "polign_db", "recall-langgraph": "recall_langgraph"}
MODULES["recall-livekit"] = "recall_livekit"


def imported(file: Path, package: str) -> Iterator[str]:
    """The modules that a file imports, by their full names."""
    parents = file.parts[:-1]
    where = parents[len(parents) - 1 - parents[::-1].index(package) :]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = list(where[: len(where) - node.level + 1]) if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "polign_recall" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("file", sorted(CORE.rglob("*.py")), ids=lambda file: str(file.relative_to(CORE)))
def test_a_layer_imports_only_those_below(file: Path) -> None:
    own = file.relative_to(CORE).parts[0].removesuffix(".py")
    if own in ABOVE:
        return
    assert own in LAYERS, f"{own} has no place in the layers of ARCHITECTURE.md"
    for module in imported(file, "polign_recall"):
        layer = layer_of(module)
        assert layer is None or LAYERS.index(layer) <= LAYERS.index(own), f"{own} imports {module}"


@pytest.mark.parametrize("name", MODULES)
def test_packages_import_the_core_and_not_one_another(name: str) -> None:
    allowed = {MODULES[name], "polign_recall"} if name != "polign-recall" else {"polign_recall"}
    for file in (ROOT / "packages" / name / "src").rglob("*.py"):
        for module in imported(file, MODULES[name]):
            root = module.split(".")[0]
            assert root not in set(MODULES.values()) - allowed, f"{file} imports {module}"


def test_every_file_of_the_core_is_in_the_table() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text()
    for file in CORE.glob("*.py"):
        assert file.name == "__init__.py" or f"`{file.name}`" in table
    for file in (CORE / "chain").glob("*.py"):
        assert file.name == "__init__.py" or f"`chain/{file.name}`" in table
