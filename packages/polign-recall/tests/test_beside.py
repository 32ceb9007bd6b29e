"""A briefing for a model that is shown some of the turns anyway."""

import pytest
from polign_recall.writer import FOLD_AFTER


@pytest.fixture
def agent(client):
    with client.resume("a", token_budget=1000) as agent:
        agent.update_working_state(goal="needle")
        yield agent


def record(agent, count):
    agent.submit(*(agent.prepare_turn("user", f"<turn {n}>", message_id=f"m{n}") for n in range(count))).result()


def test_turns_that_are_shown_elsewhere_are_left_out(agent):
    record(agent, 10)
    context = agent.context
    briefing = agent.briefing_beside({"m8", "m9", "never recorded"})
    assert "needle" in briefing
    assert "Last turns (8 of 8, oldest first)" in briefing
    assert "<turn 7>" in briefing
    assert "<turn 8>" not in briefing
    assert agent.context is context


@pytest.mark.parametrize("folded", [False, True])
def test_turns_that_are_not_at_hand_are_read_from_history(folded, agent):
    record(agent, 300)
    for number in range(2 * FOLD_AFTER if folded else 0):
        agent.milestone(f"stone {number}")
    briefing = agent.briefing_beside({f"m{number}" for number in range(100, 300)})
    assert "<turn 99>" in briefing
    assert "<turn 100>" not in briefing
    assert "of 100, oldest first" in briefing


def test_nothing_is_left(agent):
    record(agent, 3)
    briefing = agent.briefing_beside({"m0", "m1", "m2"})
    assert "needle" in briefing
    assert "turn" not in briefing.split("needle")[1]


def test_it_stays_within_the_budget(agent):
    agent.submit(*(agent.prepare_turn("user", f"word {n} " * 200, message_id=f"m{n}") for n in range(100))).result()
    briefing = agent.briefing_beside({"m99"})
    assert agent.context.counter.count(briefing) <= 1000
