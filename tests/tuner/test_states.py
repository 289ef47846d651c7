from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import Conflict
from tuner.states import (
    STUDY_TRANSITIONS,
    TRIAL_TRANSITIONS,
    StudyEvent,
    StudyState,
    TrialEvent,
    TrialState,
    next_study_state,
    next_trial_state,
)


def test_nothing_happens_to_a_study_or_trial_that_has_ended() -> None:
    assert not {state for state, _ in STUDY_TRANSITIONS if state.is_final}
    assert not {state for state, _ in TRIAL_TRANSITIONS if state.is_final}


def test_every_state_that_is_not_final_can_reach_a_final_one() -> None:
    for state in StudyState:
        assert state.is_final or any(reached.is_final for reached in reachable(state)), state


def reachable(state: StudyState) -> set[StudyState]:
    found, frontier = set[StudyState](), {state}
    while frontier:
        found |= frontier
        frontier = {to for (origin, _), to in STUDY_TRANSITIONS.items() if origin in frontier} - found
    return found


@given(st.sampled_from(StudyState), st.sampled_from(StudyEvent))
def test_an_event_leads_where_the_table_says_or_is_refused_with_what_is_allowed(
    state: StudyState, event: StudyEvent
) -> None:
    if (state, event) in STUDY_TRANSITIONS:
        assert next_study_state(state, event) is STUDY_TRANSITIONS[state, event]
        return
    with pytest.raises(Conflict, match=f"a {state} study cannot {event}; it can"):
        next_study_state(state, event)


def test_a_refusal_names_the_events_that_are_allowed() -> None:
    with pytest.raises(Conflict, match="a paused study cannot pause; it can cancel, resume, stop"):
        next_study_state(StudyState.paused, StudyEvent.pause)
    with pytest.raises(Conflict, match="a completed study cannot resume; it can do nothing more"):
        next_study_state(StudyState.completed, StudyEvent.resume)


def test_a_lost_attempt_puts_the_trial_back_into_the_queue() -> None:
    assert next_trial_state(TrialState.running, TrialEvent.retry) is TrialState.queued


def test_a_trial_that_was_not_started_cannot_complete() -> None:
    with pytest.raises(Conflict, match="a queued trial cannot complete"):
        next_trial_state(TrialState.queued, TrialEvent.complete)
