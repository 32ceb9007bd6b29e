"""Kills a working agent with SIGKILL, runs it again, and shows that it carries on and does nothing twice.

    python kill_and_resume.py [--kill-after N] [--kills K] [--delay SECONDS] [--keep]

The agent is agent.py, as it stands. Only its model is played by a script, on a server at 127.0.0.1: no key is
needed and nothing leaves the machine. The exit code is 0 only if all that is said at the end was found true.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import textwrap
from pathlib import Path

from agent_runs import Run, Workplace
from claims import Claim, claims_of
from migration_project import Project
from polign_recall import Client
from scripted_model import scripted_model
from scripted_openai import ScriptedOpenAI

AGENT_ID = "billing-migrator"
THINKING = 0.03
"""Seconds the scripted model takes for a reply, so that a kill may also land while the agent waits for it."""
SHOWN_LINES = 16
"""Lines of the briefing that are printed."""


class Stopped(Exception):
    """The demo cannot go on; the text says why."""


def main() -> int:
    """Runs the demo; 0 if every claim holds."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="kill-and-resume-"))
    holds = False
    try:
        with ScriptedOpenAI(scripted_model, thinking=THINKING) as server:
            place = Workplace(folder, Project.copied_to(folder / "project"), server)
            holds = _demo(place, options.kill_after, options.kills, options.delay)
    except Stopped as reason:
        print(f"\nFAILED: {reason}")
    if options.keep or not holds:
        print(f"\nThe workspace is kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 0 if holds else 1


def _demo(place: Workplace, kill_after: int, kills: int, delay: float) -> bool:
    _show_task(place)
    for _ in range(kills):
        _say(f"\n$ python agent.py project      (process {len(place.runs) + 1})")
        run = place.run(kill_after, delay)
        _show_work(run)
        if run.returncode != -signal.SIGKILL:
            raise Stopped(f"the agent ended before it was killed (exit code {run.returncode}):\n{run.output}")
        _say(f"  KILLED with SIGKILL, pid {run.pid}: {len(place.project.moved())} modules are moved on disk.")
        _show_records(place)
    _say(f"\n$ python agent.py project      (process {len(place.runs) + 1})")
    run = place.run()
    _show_work(run)
    if run.returncode != 0:
        raise Stopped(f"the agent failed (exit code {run.returncode}):\n{run.output}")
    _say(f'  It ends with: "{run.output.strip().splitlines()[-1]}"')
    with Client(local_dir=str(place.records)) as client:
        return _show_claims(claims_of(place, client.status(AGENT_ID).epoch))


def _show_task(place: Workplace) -> None:
    project = place.project
    if project.tests_pass():
        raise Stopped("the project's tests pass before the migration, so they prove nothing")
    _say(f"The task: move {len(project.modules())} modules from billing.legacy to billing.payments.")
    _say(f"  {len(project.others())} other files must stay as they are. The tests fail now, as they should.")
    _say(f"  Workspace: {place.folder}")
    _say(f"  Model: a script, served at {place.server.url}")


def _show_work(run: Run) -> None:
    if run.calls("list_files"):
        _say("  It looks around, reads the task and writes down its goal and plan.")
    updates = len(run.calls("update_working_state"))
    _say(f"  {len(run.exchanges)} model calls, {updates} updates of its working state. Modules moved:")
    names = ", ".join(path.removeprefix("shop/") for path in run.moved)
    _say(textwrap.indent(textwrap.fill(names or "none", 100), "    "))
    if run.calls("run_tests"):
        _say("  It runs the project's tests.")


def _show_records(place: Workplace) -> None:
    with Client(local_dir=str(place.records)) as client:
        status, briefing = client.status(AGENT_ID), client.briefing(AGENT_ID)
    lines = [line for line in briefing.splitlines() if line.strip()]
    _say(f"\n  What the next process starts from (epoch {status.epoch}, {status.turns} turns recorded):")
    for line in lines[:SHOWN_LINES]:
        _say("    | " + (line if len(line) <= 100 else line[:96] + " ..."))
    _say(f"    | ... {len(lines) - SHOWN_LINES} more lines")


def _show_claims(claims: list[Claim]) -> bool:
    _say("\nWhat was found:")
    for claim in claims:
        _say(f"  {'ok  ' if not claim.problems else 'FAIL'} {claim.text}")
        for problem in claim.problems:
            _say(f"         {problem}")
    return not any(claim.problems for claim in claims)


def _say(text: str) -> None:
    print(text, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kill a working agent, run it again, see that it carries on.")
    parser.add_argument("--kill-after", type=int, default=5, metavar="N", help="modules moved before a kill (5)")
    parser.add_argument("--kills", type=int, default=1, metavar="K", help="how often it is killed (1)")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="wait before a kill (0)")
    parser.add_argument("--keep", action="store_true", help="keep the workspace")
    options = parser.parse_args()
    if options.kill_after < 1 or options.kills < 1 or options.kill_after * options.kills > 11:
        parser.error("there are 12 modules: N times K must be from 1 to 11")
    return options


if __name__ == "__main__":
    sys.exit(main())
