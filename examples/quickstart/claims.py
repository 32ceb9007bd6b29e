"""What the demo says at its end, each with what was found against it on the disk and at the server."""

from dataclasses import dataclass

from agent_runs import Run, Workplace
from scripted_model import TASK


@dataclass(frozen=True)
class Claim:
    """Something that must hold, and what was found against it: nothing, if it holds."""

    text: str
    problems: list[str]


def claims_of(place: Workplace, epoch: int) -> list[Claim]:
    """Everything that must hold at the end; `epoch` is the agent's, as its records have it."""
    project, runs = place.project, place.runs
    calls = sum(run.paths("write_file").total() for run in runs)
    lost = calls - len(project.modules())
    unheard = f", {lost} of them cut off by a kill before it did anything" if lost > 0 else ""
    unsure = sum(len(run.read_again()) for run in runs)
    checked = f"; {unsure} read again, as no record told how the write ended" if unsure else ""
    tests = [] if project.tests_pass() else ["the project's tests do not pass"]
    epochs = [] if epoch == len(runs) else [f"the epoch is {epoch} after {len(runs)} processes"]
    return [
        Claim(f"each of the {len(project.modules())} modules was moved once", _wrong_writes(place)),
        Claim(f"no write was repeated ({calls} write_file calls{unheard})", _touched(place)),
        Claim(f"it did not start over: no second listing, goal or plan{checked}", _started_over(runs)),
        Claim(f"the other {len(project.others())} files are the same, byte for byte", project.strays()),
        Claim("the project's own tests pass now", tests),
        Claim(f"one owner after the other: epoch {epoch} after {len(runs)} processes", epochs),
    ]


def _wrong_writes(place: Workplace) -> list[str]:
    """Modules that were never moved or written twice, and writes that were nobody's task.

    A module is written once if it was not moved yet when the run that moved it began, if that run called
    `write_file` for it once, and if no later run did. A call that died with its process before it had any
    effect is no write; the disk, looked at between the runs, tells the two apart.
    """
    modules, moved = set(place.project.modules()), place.project.moved()
    problems = [f"{path} was never moved" for path in sorted(modules - moved)]
    for number, run in enumerate(place.runs, start=1):
        for path, times in run.paths("write_file").items():
            if path not in modules:
                problems.append(f"process {number} wrote {path}, which is not part of the task")
            if path in run.before:
                problems.append(f"process {number} wrote {path} again")
            if times > 1:
                problems.append(f"process {number} wrote {path} {times} times")
    return problems


def _touched(place: Workplace) -> list[str]:
    """Modules whose inode or time on disk is not the one that was seen when a later process began."""
    now = place.project.stamps()
    return [
        f"{path} was written after process {number} began"
        for number, run in enumerate(place.runs, start=1)
        for path, stamp in run.before.items()
        if now.get(path) != stamp
    ]


def _started_over(runs: list[Run]) -> list[str]:
    """Work that a resumed process did although the records told it what it needed to know.

    Of the modules that are moved it may read one: the one whose write was under way when the process died.
    """
    problems = []
    for number, run in enumerate(runs[1:], start=2):
        if run.calls("list_files") or run.paths("read_file")[TASK]:
            problems.append(f"process {number} looked at the task from the beginning")
        if any("goal" in call.args for call in run.calls("update_working_state")):
            problems.append(f"process {number} set the goal again")
        if len(run.read_again()) > 1:
            problems.append(f"process {number} read again: {', '.join(run.read_again())}")
    return problems
