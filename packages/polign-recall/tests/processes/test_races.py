"""Several processes want one agent at the same time: one gets it, the others are told who has it, or wait for it."""

from datetime import datetime

from .conftest import Launch, Place
from .facts import check_claims, check_one_after_another

RACES = 100


def test_two_race_for_one_agent(place: Place, launch: Launch) -> None:
    ttl = 60.0
    assert launch(place.job("race", lives=RACES, ttl=ttl)).ended() == 0
    won = {event["race"]: event for event in place.journal.read("won")}
    refused = {event["race"]: event for event in place.journal.read("refused")}
    assert len(place.journal.read("won")) == len(place.journal.read("refused")) == RACES
    assert won.keys() == refused.keys() == set(range(RACES))
    for race, winner in won.items():
        told = refused[race]
        assert told["pid"] != winner["pid"]
        assert told["holder"] == winner["holder"]
        assert datetime.fromisoformat(told["since"]).tzinfo is not None
        assert 0 < told["expires_in"] <= ttl + 1  # the lease is given a second of grace
    with place.client() as client:
        claims = check_claims(client, place.agent_id, [won[race] | {"event": "open"} for race in range(1, RACES, 2)])
        assert len(claims) == RACES // 2


def test_four_wait_and_get_it_in_turn(place: Place, launch: Launch) -> None:
    guards = [launch(place.job("guard", wait=60, count=10)) for _ in range(4)]
    assert [guard.ended() for guard in guards] == [0] * 4
    opened = place.journal.read("open")
    assert [event["epoch"] for event in opened] == [1, 2, 3, 4]
    assert {event["pid"] for event in opened} == {guard.process.pid for guard in guards}
    assert len(place.journal.read("held")) == 40
    with place.client() as client:
        check_one_after_another(client, place.agent_id, place.journal.read())
