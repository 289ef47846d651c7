"""What a dispatcher does with the studies it holds: every write is fenced by its lease."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, and_, func, or_, select, update
from sqlalchemy.orm import Session

from tuner.errors import Conflict, LeaseLost, NotFound
from tuner.layout import Configuration
from tuner.owner import is_gone
from tuner.states import AttemptState, StudyEvent, StudyState, TrialEvent, TrialState
from tuner.store.engine import reading, write
from tuner.store.journal import change_study, change_trial, record, utc_now
from tuner.store.mapping import attempt_record, measurement_row, study_record, trial_record
from tuner.store.records import AttemptRecord, Completed, Lease, StudyRecord, TrialRecord
from tuner.store.repository import read_trials, stop_queued_trials
from tuner.store.tables import AttemptRow, StudyRow, TrialRow
from tuner.trial import FailureKind, TrialFailure

# Far more than chance would kill over one trial, and few enough to end.
MAX_ORPHANED = 20
_WORKABLE = (StudyState.queued, StudyState.running, StudyState.stopping, StudyState.cancelling)
_ATTEMPT_STATES = {
    TrialEvent.complete: AttemptState.complete,
    TrialEvent.refute: AttemptState.infeasible,
    TrialEvent.fail: AttemptState.failed,
    TrialEvent.retry: AttemptState.lost,
    TrialEvent.give_up: AttemptState.lost,
    TrialEvent.stop: AttemptState.stopped,
}


class Ownership:
    """The store as dispatchers see it.

    Args:
        engine: The database, at the right revision.
        now: The clock.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime] = utc_now) -> None:
        self.engine = engine
        self._now = now

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def claim(self, owner: str, ttl: timedelta, exclude: Collection[str] = (), only: str | None = None) -> Lease | None:
        """Claim the oldest study that has work and that nobody holds, or only a process of this machine that is gone.

        Args:
            owner: Who claims.
            ttl: How long the claim lasts without being renewed.
            exclude: Ids of studies not to claim.
            only: Id of the only study to claim.

        Returns:
            The lease, or ``None`` where there is nothing to claim.
        """
        now = self._now()
        # A paused study is claimed only to put trials of a dead dispatcher back into its queue.
        orphaned = select(TrialRow.id).where(TrialRow.study_id == StudyRow.id, TrialRow.state == TrialState.running)
        query = (
            select(StudyRow)
            .where(
                or_(
                    StudyRow.state.in_(_WORKABLE),
                    and_(StudyRow.state == StudyState.paused, orphaned.exists()),
                ),
                or_(
                    StudyRow.lease_expires_at.is_(None),
                    StudyRow.lease_expires_at <= now,
                    StudyRow.lease_owner.in_(self._gone_owners()),
                ),
                StudyRow.id.not_in(list(exclude)),
            )
            .order_by(StudyRow.created_at, StudyRow.id)
            .limit(1)
        )
        if only is not None:
            query = query.where(StudyRow.id == only)
        with reading(self.engine) as session:
            if session.scalar(query) is None:
                return None

        def work(session: Session) -> Lease | None:
            row = session.scalar(query.with_for_update(skip_locked=True))
            if row is None:
                return None
            row.lease_owner, row.lease_token, row.lease_expires_at = owner, row.lease_token + 1, now + ttl
            return Lease(study_id=row.id, owner=owner, token=row.lease_token, expires_at=now + ttl)

        return write(self.engine, work)

    def _gone_owners(self) -> list[str]:
        """Owners that died on this machine: their leases need not run out first."""
        query = select(StudyRow.lease_owner).where(StudyRow.lease_owner.is_not(None)).distinct()
        with reading(self.engine) as session:
            return [owner for owner in session.scalars(query) if owner is not None and is_gone(owner)]

    def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        """Hold on to a study.

        Raises:
            LeaseLost: Another dispatcher took it over.
        """

        def work(session: Session) -> Lease:
            row = _held(session, lease)
            row.lease_expires_at = self._now() + ttl
            return Lease(study_id=lease.study_id, owner=lease.owner, token=lease.token, expires_at=row.lease_expires_at)

        return write(self.engine, work)

    def release(self, lease: Lease) -> None:
        """Let go of a study; one that is lost already is none of our business."""

        def work(session: Session) -> None:
            held = and_(StudyRow.id == lease.study_id, StudyRow.lease_token == lease.token)
            session.execute(update(StudyRow).where(held).values(lease_owner=None, lease_expires_at=None))

        write(self.engine, work)

    def study(self, lease: Lease) -> StudyRecord:
        """The study, as it is now.

        Raises:
            LeaseLost: Another dispatcher took it over, or it is gone.
        """
        with reading(self.engine) as session:
            return study_record(_held(session, lease, lock=False))

    def trials(self, lease: Lease) -> list[TrialRecord]:
        """All trials of the study, by number.

        Raises:
            LeaseLost: Another dispatcher took the study over.
        """
        with reading(self.engine) as session:
            _held(session, lease, lock=False)
            return read_trials(session, lease.study_id)

    def apply(self, lease: Lease, event: StudyEvent, reason: str | None = None) -> StudyRecord:
        """Move the study by its state table.

        Raises:
            LeaseLost: Another dispatcher took it over.
            Conflict: Its state does not allow the event.
        """

        def work(session: Session) -> StudyRecord:
            row = _held(session, lease)
            change_study(session, row, event, reason, self._now())
            session.flush()
            return study_record(row)

        return write(self.engine, work)

    def set_waiting(self, lease: Lease, reason: str | None) -> None:
        """Say what the study waits for, or that it waits no longer.

        Raises:
            LeaseLost: Another dispatcher took it over.
        """

        def work(session: Session) -> None:
            row = _held(session, lease)
            row.state_reason = reason
            record(
                session, row, "study.waiting" if reason else f"study.{row.state}", self._now(), reason=row.state_reason
            )

        write(self.engine, work)

    def add_active_time(self, lease: Lease, seconds: float) -> None:
        """Add to the wall time that the study was worked on.

        Raises:
            LeaseLost: Another dispatcher took it over.
        """

        def work(session: Session) -> None:
            _held(session, lease).active_s += seconds

        write(self.engine, work)

    def requeue_orphans(self, lease: Lease) -> int:
        """Put the trials that a former dispatcher left running back into the queue.

        A lost attempt is charged nothing: nobody knows how long it ran. A trial that has seen too many dispatchers die
        is given up: it may be what kills them.

        Returns:
            How many there were.

        Raises:
            LeaseLost: Another dispatcher took the study over.
        """

        def work(session: Session) -> int:
            row, now = _held(session, lease), self._now()
            query = (
                select(AttemptRow)
                .join(TrialRow)
                .where(
                    TrialRow.study_id == lease.study_id,
                    AttemptRow.state == AttemptState.running,
                    AttemptRow.lease_token < lease.token,
                )
                .order_by(TrialRow.number)
            )
            orphans = list(session.scalars(query))
            for attempt in orphans:
                attempt.state, attempt.ended_at = AttemptState.lost, now
                attempt.message = "the dispatcher that ran it was replaced"
                trial, event = attempt.trial, TrialEvent.retry
                if sum(known.state == AttemptState.lost for known in trial.attempts) >= MAX_ORPHANED:
                    trial.failure_kind, event = FailureKind.crashed, TrialEvent.give_up
                    trial.message = f"{MAX_ORPHANED} dispatchers died while they ran it"
                change_trial(session, row, trial, event, now)
            return len(orphans)

        return write(self.engine, work)

    def stop_trials(self, lease: Lease) -> None:
        """Stop every queued trial.

        Raises:
            LeaseLost: Another dispatcher took the study over.
        """

        def work(session: Session) -> None:
            stop_queued_trials(session, _held(session, lease), self._now())

        write(self.engine, work)

    def add_trial(
        self,
        lease: Lease,
        configuration: Configuration,
        origin: str,
        sampler_attrs: dict[str, Any],
        repeat: int = 0,
    ) -> TrialRecord:
        """Queue the next trial; its number follows the last one's.

        Raises:
            LeaseLost: Another dispatcher took the study over.
        """

        def work(session: Session) -> TrialRecord:
            study, now = _held(session, lease), self._now()
            last = session.scalar(select(func.max(TrialRow.number)).where(TrialRow.study_id == study.id))
            layout = configuration.layout
            trial = TrialRow(
                study_id=study.id,
                number=0 if last is None else last + 1,
                configuration_key=str(configuration),
                repeat=repeat,
                dp=layout.dp,
                tp=layout.tp,
                pp=layout.pp,
                microbatch=layout.microbatch,
                frequency_mhz=configuration.frequency_mhz,
                state=TrialState.queued,
                origin=origin,
                sampler_attrs=sampler_attrs,
                created_at=now,
                attempts=[],
            )
            session.add(trial)
            record(session, study, "trial.queued", now, trial=trial.number)
            session.flush()
            return trial_record(trial)

        return write(self.engine, work)

    def start_attempt(self, lease: Lease, number: int, launch_name: str, new_launch: bool) -> AttemptRecord:
        """Start an attempt at a queued trial.

        Raises:
            LeaseLost: Another dispatcher took the study over.
            NotFound: The study has no such trial.
            Conflict: The trial is not queued.
        """

        def work(session: Session) -> AttemptRecord:
            study, now = _held(session, lease), self._now()
            trial = _trial(session, study, number)
            attempt = AttemptRow(
                trial=trial,
                number=len(trial.attempts) + 1,
                lease_token=lease.token,
                launch_name=launch_name,
                new_launch=new_launch,
                state=AttemptState.running,
                gpu_seconds=0.0,
                started_at=now,
            )
            session.add(attempt)
            change_trial(session, study, trial, TrialEvent.start, now)
            session.flush()
            return attempt_record(attempt)

        return write(self.engine, work)

    def finish_attempt(
        self,
        lease: Lease,
        attempt_id: int,
        outcome: Completed | TrialFailure,
        gpu_seconds: float,
        event: TrialEvent,
        reference: tuple[float, float | None] | None = None,
    ) -> TrialRecord:
        """Store what an attempt came to: measurement, attempt, trial, revision and event in one transaction.

        Args:
            lease: The claim.
            attempt_id: The attempt.
            outcome: What it came to.
            gpu_seconds: What it is charged.
            event: What it means for the trial.
            reference: Reference point, seconds and joules, that it fixes where none is fixed yet; it never moves.

        Raises:
            LeaseLost: Another dispatcher took the study over; nothing was stored.
            NotFound: The study has no such attempt.
            Conflict: The attempt has ended already.
        """

        def work(session: Session) -> TrialRecord:
            study, now = _held(session, lease), self._now()
            attempt = _running(session, study, attempt_id)
            trial = attempt.trial
            attempt.state, attempt.ended_at, attempt.gpu_seconds = _ATTEMPT_STATES[event], now, gpu_seconds
            if isinstance(outcome, Completed):
                attempt.launch_s = outcome.launch_s
                attempt.measurement = measurement_row(attempt_id, outcome.measurement)
            else:
                attempt.failure_kind, attempt.message = outcome.kind, outcome.message
                attempt.log_tail = outcome.log_tail or None
                if event is not TrialEvent.retry:
                    trial.failure_kind, trial.message = outcome.kind, outcome.message
            if reference is not None and study.reference_step_time_s is None:
                study.reference_step_time_s, study.reference_energy_j = reference
            change_trial(session, study, trial, event, now)
            session.flush()
            return trial_record(trial)

        return write(self.engine, work)


def _held(session: Session, lease: Lease, *, lock: bool = True) -> StudyRow:
    """The study's row, locked, where the lease still holds."""
    query = select(StudyRow).where(
        StudyRow.id == lease.study_id, StudyRow.lease_token == lease.token, StudyRow.lease_owner == lease.owner
    )
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise LeaseLost(f"study {lease.study_id} is no longer held by {lease.owner} (token {lease.token})")
    return row


def _trial(session: Session, study: StudyRow, number: int) -> TrialRow:
    row = session.scalar(select(TrialRow).where(TrialRow.study_id == study.id, TrialRow.number == number))
    if row is None:
        raise NotFound(f"study {study.name} has no trial {number}")
    return row


def _running(session: Session, study: StudyRow, attempt_id: int) -> AttemptRow:
    query = select(AttemptRow).join(TrialRow).where(TrialRow.study_id == study.id, AttemptRow.id == attempt_id)
    row = session.scalar(query)
    if row is None:
        raise NotFound(f"study {study.name} has no attempt {attempt_id}")
    if row.state != AttemptState.running:
        raise Conflict(f"attempt {row.number} at trial {row.trial.number} of study {study.name} is {row.state} already")
    return row
