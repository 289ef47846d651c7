"""Changing a study: every change counts its revision up and leaves an event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, func, literal, select
from sqlalchemy.orm import Session

from tuner.states import StudyEvent, StudyState, TrialEvent, TrialState, next_study_state, next_trial_state
from tuner.store.tables import EventRow, StudyRow, TrialRow

# Any number will do, as long as no other application on the same server picks it.
_ONE_AT_A_TIME = select(func.pg_advisory_xact_lock(literal(0x70617265_65766E74, BigInteger)))


def utc_now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


def record(session: Session, study: StudyRow, kind: str, now: datetime, **payload: Any) -> None:
    """Count the study's revision up and leave an event."""
    if session.get_bind().dialect.name == "postgresql":
        # Ids are drawn before the commit: without this, an event could come to light after one with a higher id, and
        # whoever reads on from the last id would never see it. Taken after the study's row, so that nobody waits round.
        session.execute(_ONE_AT_A_TIME)
    study.revision += 1
    study.updated_at = now
    session.add(
        EventRow(study_id=study.id, study_name=study.name, revision=study.revision, kind=kind, at=now, payload=payload)
    )


def change_study(session: Session, study: StudyRow, event: StudyEvent, reason: str | None, now: datetime) -> None:
    """Move a study by its state table.

    Raises:
        Conflict: The state does not allow the event.
    """
    state = next_study_state(StudyState(study.state), event)
    study.state, study.state_reason = state, reason
    if state is StudyState.running and study.started_at is None:
        study.started_at = now
    if state.is_final:
        study.ended_at = now
    record(session, study, f"study.{state}", now, reason=study.state_reason)


def change_trial(session: Session, study: StudyRow, trial: TrialRow, event: TrialEvent, now: datetime) -> None:
    """Move a trial by its state table.

    Raises:
        Conflict: The state does not allow the event.
    """
    state = next_trial_state(TrialState(trial.state), event)
    trial.state = state
    if state is TrialState.running and trial.started_at is None:
        trial.started_at = now
    if state.is_final:
        trial.ended_at = now
    name = "requeued" if event is TrialEvent.retry else state.value
    record(session, study, f"trial.{name}", now, trial=trial.number, failure_kind=trial.failure_kind)
