"""What the processes of these tests run: `python -m processes.program JOB`, the job as JSON."""

import sys
from collections.abc import Callable

import msgspec

from . import holding, recording
from .jobs import Job

ROLES: dict[str, Callable[[Job], None]] = {
    role.__name__: role
    for role in (
        holding.end, holding.forking, holding.forking_midway, holding.guard, holding.hold, holding.hold_without_proc,
        holding.race, recording.killed_at_each_step, recording.killed_at_random, recording.record,
        recording.stopped_asleep, recording.stopped_at_each_step,
    )
}  # fmt: skip

if __name__ == "__main__":
    job = msgspec.json.decode(sys.argv[1], type=Job)
    ROLES[job.role](job)
