"""Pairing repair of histories with damage anywhere in them: its four promises, one by one, for every provider."""

import copy

from damaged import damaged_histories, whole_histories
from histories import check_strict
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import AIMessage, ToolMessage
from providers import check_anthropic, check_google, check_input, check_openai_chat, check_openai_responses
from recall_langgraph.messages import is_well_formed, model_input
from recall_langgraph.pairing import UNKNOWN, UNREADABLE

BRIEFING = "You are resumed.\n\nGoal: ship it."

# How long an example takes says more about the machine than about the code.
examples = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


# -- on every provider, anywhere in the history


@examples
@given(history=damaged_histories())
def test_input_is_well_paired_whatever_was_damaged(history):
    check_strict(model_input(history, BRIEFING))
    check_strict(model_input(history))


@examples
@given(history=damaged_histories())
def test_openai_chat_completions(history):
    check_openai_chat(model_input(history, BRIEFING))


@examples
@given(history=damaged_histories())
def test_openai_responses(history):
    check_openai_responses(model_input(history, BRIEFING))


@examples
@given(history=damaged_histories())
def test_anthropic(history):
    check_anthropic(model_input(history, BRIEFING))


@examples
@given(history=damaged_histories())
def test_google(history):
    check_google(model_input(history, BRIEFING))


@examples
@given(history=whole_histories())
def test_whole_history_is_sent_as_it_is(history):
    assert model_input(history) == history


# -- arrived results kept, missing ones shown as unknown


@examples
@given(history=damaged_histories())
def test_arrived_results_are_kept_and_missing_ones_shown_as_unknown(history):
    shown = {m.tool_call_id: m.content for m in model_input(history) if isinstance(m, ToolMessage)}
    for call_id, (arrived, readable) in _calls_made_once(history).items():
        if arrived is None:
            assert shown[call_id] == (UNKNOWN if readable else UNREADABLE)
        else:
            assert shown[call_id] == arrived.content


@examples
@given(history=damaged_histories())
def test_result_without_its_call_is_kept_as_quoted_text(history):
    called = {c["id"] for m in history if isinstance(m, AIMessage) for c in (*m.tool_calls, *m.invalid_tool_calls)}
    shown = "".join(message.text for message in model_input(history) if message.type == "human")
    for message in history:
        if isinstance(message, ToolMessage) and message.tool_call_id not in called:
            assert str(message.text) in shown


def _calls_made_once(history):
    """By call id: the first result that came after the call, and whether the call could be read."""
    calls = {}
    for at, message in enumerate(history):
        if not isinstance(message, AIMessage):
            continue
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            after = [m for m in history[at:] if isinstance(m, ToolMessage) and m.tool_call_id == call["id"]]
            readable = call in message.tool_calls
            calls.setdefault(call["id"], []).append((after[0] if after else None, readable))
    return {call_id: found[0] for call_id, found in calls.items() if len(found) == 1}


# -- stored turns untouched, twice gives the same


@examples
@given(history=damaged_histories())
def test_stored_messages_are_untouched(history):
    before = copy.deepcopy(history)
    model_input(history, BRIEFING)
    assert history == before


@examples
@given(history=damaged_histories())
def test_repairing_twice_gives_the_same(history):
    for briefing in ("", BRIEFING):
        once = model_input(history, briefing)
        assert model_input(once, briefing) == once
        assert model_input(history, briefing) == once


@examples
@given(history=damaged_histories())
def test_short_cut_is_never_taken_for_a_damaged_history(history):
    if is_well_formed(history):
        check_input(history)
