"""SIGKILL at any point: nothing that was acknowledged is lost, nothing is there twice, and the next process starts at
once. More than 200 processes are killed here.
"""

import random
import re
import signal
from pathlib import Path

from .conftest import Launch, Place, new_place
from .facts import Acknowledged, check_claims, check_disk, check_outside

STEPS = 80
"""Changes to the directory in the life of a recording process until it has recorded a few times and folded twice."""
FOLD_STEPS = 20
"""Changes to the directory in one folding: history and snapshot written, linked and synced, and the deletions."""
ENDLESS = 1_000
"""More records than any of these processes lives to make."""


def check_survived(place: Place, launch: Launch, *, kills: int) -> None:
    """The end of each test: whatever was acknowledged is there, and one process that lives on has tidied up."""
    assert launch(place.job("record")).ended() == 0
    events = place.journal.read()
    known = Acknowledged.of(events)
    assert len(known.turns) >= kills // 2  # there was something to lose
    with place.client() as client:
        known.check_saved(client, place.agent_id)
        claims = check_claims(client, place.agent_id, events)
        check_outside(client, place.agent_id, starts=len(claims), turns=len(known.turns))
        entries = client.status(place.agent_id).seq
    check_disk(place.directory / "agents" / place.agent_id, claims=len(claims), entries=entries, kills=kills)


def test_killed_after_each_step(tmp_path: Path, launch: Launch) -> None:
    """With both ways to write a file; the odd and the even steps at once, by two agents."""
    options = [{"named_files": named, "at_step": first} for named in (False, True) for first in (0, 1)]
    places = [new_place(tmp_path, f"agent-{number}") for number in range(len(options))]
    programs = [
        launch(place.job("killed_at_each_step", lives=STEPS // 2, stride=2, count=ENDLESS, **options))
        for place, options in zip(places, options, strict=True)
    ]
    assert [program.ended() for program in programs] == [0] * len(programs)
    for place in places:
        assert [event["code"] for event in place.journal.read("end")] == [-signal.SIGKILL] * (STEPS // 2)
        check_survived(place, launch, kills=STEPS // 2)


def test_killed_after_each_step_of_folding(tmp_path: Path, launch: Launch) -> None:
    places = [new_place(tmp_path, f"agent-{number}") for number in range(2)]
    job = {"lives": FOLD_STEPS, "at_step": 1, "threads": "recall-fold", "count": ENDLESS}
    programs = [
        launch(place.job("killed_at_each_step", named_files=bool(number), **job)) for number, place in enumerate(places)
    ]
    assert [program.ended() for program in programs] == [0, 0]
    for place in places:
        assert [event["code"] for event in place.journal.read("end")] == [-signal.SIGKILL] * FOLD_STEPS
        after = "\n".join(event["after"] for event in place.journal.read("breakpoint"))
        for step in (r"link \d{20}-\d{20}", r"link \d{20}\.snap", r"unlink \d{20}", r"write", r"fsync"):
            assert re.search(f"^{step}$", after, re.MULTILINE), after
        check_survived(place, launch, kills=FOLD_STEPS)


def test_killed_at_random_moments_while_others_read(place: Place, launch: Launch) -> None:
    kills = 40
    program = launch(place.job("killed_at_random", lives=kills, count=ENDLESS))
    with place.client() as client:
        while program.process.poll() is None:
            known = Acknowledged.of(place.journal.read())
            if known.turns:
                known.check_saved(client, place.agent_id)
                assert client.status(place.agent_id).turns >= len(known.turns)
    assert program.ended() == 0
    assert [event["code"] for event in place.journal.read("end")] == [-signal.SIGKILL] * kills
    check_survived(place, launch, kills=kills)


def test_killed_and_started_again_as_a_new_program(place: Place, launch: Launch) -> None:
    """Every other one kills itself, and is a zombie when the next one starts. The others may not even be dead yet."""
    programs = []
    for life in range(8):
        if life % 2:
            programs.append(launch(place.job("record", at_step=random.randrange(10, STEPS), count=ENDLESS, wait=30)))
            programs[-1].await_death()
        else:
            programs.append(launch(place.job("record", count=ENDLESS)))
            place.await_event("turns", by=programs[-1])
            programs[-1].signal(signal.SIGKILL)
    assert {program.ended() for program in programs} == {-signal.SIGKILL}
    check_survived(place, launch, kills=len(programs))
