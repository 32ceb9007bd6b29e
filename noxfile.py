"""Everything a developer or CI needs, by name: `nox -s NAME`, or `./dev nox -s NAME` from a bare checkout.

Most sessions run in the environment that nox itself runs in, the one made from requirements.lock. `lowest`
and `build` make their own, since what they check is an environment that looks different.
"""

import sys
from pathlib import Path

import nox

nox.needs_version = ">=2026.2.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests"]

ROOT = Path(__file__).parent
PACKAGES = ("polign-recall", "polign-db", "recall-langgraph", "recall-livekit")
CORE_TESTS = "packages/polign-recall/tests"
KILL_TESTS = "packages/recall-langgraph/tests/test_kills.py"


def run_module(session: nox.Session, *args: str, **env: str) -> None:
    """Run `python -m ARGS` with nox's own interpreter: no environment need be activated."""
    session.run(sys.executable, "-m", *args, env=env, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test that CI runs."""
    run_module(session, "pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Rules and format."""
    run_module(session, "ruff", "check", ".")
    run_module(session, "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the packages' types strictly (mypy's settings are in pyproject.toml)."""
    run_module(session, "mypy")


@nox.session
def sim(session: nox.Session) -> None:
    """Simulate the chain; `nox -s sim -- 20000` runs that many seeds."""
    seeds = {"RECALL_SIM_SEEDS": session.posargs[0]} if session.posargs else {}
    run_module(session, "pytest", f"{CORE_TESTS}/sim", "-q", "-n", "auto", **seeds)


@nox.session
def kills(session: nox.Session) -> None:
    """Kill agents amid their tools, in 200 runs; `nox -s kills -- 1000` makes so many."""
    runs = session.posargs[0] if session.posargs else "200"
    run_module(session, "pytest", KILL_TESTS, "-q", "-n", "auto", RECALL_KILL_RUNS=runs)


@nox.session
def conformance(session: nox.Session) -> None:
    """Run the stores' conformance suite against every store."""
    run_module(session, "pytest", "-m", "conformance", "-n", "auto", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Run the code blocks of the README and of docs/."""
    run_module(session, "pytest", "tests/test_docs.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and size; see bench/README.md."""
    session.run(sys.executable, "bench/run.py", *session.posargs, external=True)


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Test the core, the server and LangGraph with the lowest versions that the packages say they work with."""
    tested = PACKAGES[:3]
    floors = str(Path(session.create_tmp()) / "floors.txt")
    compiled = ["pip", "compile", "--quiet", "--upgrade", "--no-deps", "--resolution=lowest-direct"]
    ours = (f"--no-emit-package={name}" for name in PACKAGES)
    sources = (f"packages/{name}/pyproject.toml" for name in tested)
    session.run("uv", *compiled, "--all-extras", *ours, "--output-file", floors, *sources)
    editables = (part for name in tested for part in ("-e", f"packages/{name}"))
    groups = (part for name in ("test", "langgraph", "stores") for part in ("--group", name))
    session.install(*editables, *groups, "--constraint", floors)
    # The providers' older converters trip over each other's blocks: only today's are held to every history.
    converters = [f"packages/recall-langgraph/tests/test_{name}.py::test_" for name in ("messages", "pairing")]
    newest_only = (f"--deselect={path}{name}" for path in converters for name in ("google", "openai_responses"))
    blocks = "packages/recall-langgraph/tests/test_bounding.py::test_blocks_that_repeat_a_call_are_shortened_with_it"
    newest_only = (*newest_only, f"--deselect={blocks}[responses_reply]")
    # schemathesis asks for newer libraries than the server does.
    newest_only = (*newest_only, "--ignore=packages/polign-db/tests/server/test_openapi.py")
    paths = (f"packages/{name}/tests" for name in tested)
    session.run("pytest", *paths, *newest_only, "-n", "auto", *session.posargs)


@nox.session(venv_backend="uv")
def build(session: nox.Session) -> None:
    """Build every wheel, install them outside the workspace, import each and run the commands."""
    dist = Path(session.create_tmp()) / "dist"
    session.run("uv", "build", "--quiet", "--all-packages", "--wheel", "--clear", "--out-dir", str(dist))
    session.install(*(str(wheel) for wheel in sorted(dist.glob("*.whl"))))
    session.chdir(dist)
    for name in PACKAGES:
        module = name.replace("-", "_")
        typed = f"importlib.resources.files({module!r}).joinpath('py.typed').is_file()"
        session.run("python", "-c", f"import importlib.resources, {module}; assert {typed}")
    for command in ("polign", "polign-server"):
        session.run(command, "--version")


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve anew, up to the date in pyproject.toml, and write requirements.lock (hashes, no addresses)."""
    run_module(session, "uv", "lock", "--quiet", "--upgrade")
    export = "export --quiet --locked --all-groups --no-emit-workspace --no-header --no-annotate"
    run_module(session, "uv", *export.split(), "--output-file", "requirements.lock")
