"""However a process ends, the next one gets in at once and has everything that was acknowledged."""

import signal

import pytest
from polign_recall.chain import Chain, agent_prefix, run

from .conftest import Launch, Place
from .facts import Acknowledged

ENDS = [
    ("left return", None, 0, True),
    ("left sys.exit", None, 3, True),
    ("left raise", None, 1, True),
    ("left signal", signal.SIGINT, -signal.SIGINT, True),
    ("unclosed return", None, 0, True),
    ("unclosed raise", None, 1, True),
    ("unclosed signal", signal.SIGINT, -signal.SIGINT, True),
    ("left os._exit", None, 4, False),
    ("left signal", signal.SIGTERM, -signal.SIGTERM, False),
    ("left signal", signal.SIGABRT, -signal.SIGABRT, False),
]
"""How the process ends, by which signal, its exit code, and whether it has the time to hand the lease back."""


@pytest.mark.parametrize(("how", "signum", "code", "released"), ENDS)
def test_the_next_one_gets_in_at_once(
    place: Place, launch: Launch, how: str, signum: int | None, code: int, released: bool
) -> None:
    first = launch(place.job("end", how=how))
    if signum is not None:
        place.await_event("ready", by=first)
        first.signal(signum)
    assert first.ended() == code
    with place.client() as client:
        left = run(Chain(agent_prefix(place.agent_id), place.agent_id).load(), client.backend.store)
        assert (left.kind == "release") is released
        assert not client.status(place.agent_id).held
        known = Acknowledged.of(place.journal.read())
        with client.resume(place.agent_id, wait=0) as agent:
            assert agent.epoch == 2
            known.check_opened(agent)
        known.check_saved(client, place.agent_id)
