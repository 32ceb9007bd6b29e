"""A forked child has its parent's agent in hand and its lease is not the child's."""

from .conftest import Launch, Place
from .facts import Acknowledged, check_claims


def test_a_forked_child_never_works_with_the_lease_of_its_parent(place: Place, launch: Launch) -> None:
    """Forked while a thread of the parent is recording, so at all kinds of moments."""
    children = 6
    assert launch(place.job("forking", lives=children)).ended() == 0
    assert [event["code"] for event in place.journal.read("end")] == [0] * children
    events = place.journal.read()
    with place.client() as client:
        Acknowledged.of(events).check_saved(client, place.agent_id)
        assert len(check_claims(client, place.agent_id, events)) == 1
        for number in range(children):
            assert client.status(f"{place.agent_id}-child-{number}").turns == 1
        assert len(client.agents()) == children + 1


def test_a_child_can_use_the_store_though_a_thread_of_the_parent_was_busy_with_it(place: Place, launch: Launch) -> None:
    assert launch(place.job("forking_midway")).ended() == 0
    assert [event["code"] for event in place.journal.read("end")] == [0]
    with place.client() as client:
        assert [stat.key for stat in client.backend.store.list("")] == ["first/key", "second/key"]
