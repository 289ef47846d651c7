"""What users do with studies: create, read, steer, delete."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, func, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, selectinload

from tuner.errors import Conflict, FieldProblem, InvalidInput, NotFound
from tuner.states import StudyEvent, StudyState, TrialEvent, TrialState
from tuner.store.engine import reading, write
from tuner.store.journal import change_study, change_trial, record, utc_now
from tuner.store.mapping import attempt_record, event_record, study_record, trial_record
from tuner.store.records import AttemptRecord, EventRecord, NewStudy, StudyRecord, TrialRecord
from tuner.store.tables import AttemptRow, EventRow, StudyRow, TrialRow

_DELETABLE = (
    StudyState.queued,
    StudyState.paused,
    StudyState.completed,
    StudyState.stopped,
    StudyState.cancelled,
    StudyState.failed,
)
# A browser may send any number; PostgreSQL refuses what is no 32-bit integer.
_LAST_ID = 2**31 - 1
_CURSOR_TIME = "%Y%m%dT%H%M%S.%f"


class Repository:
    """The store as users see it.

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

    def create_study(self, new: NewStudy) -> tuple[StudyRecord, bool]:
        """Create a study, or get the one of that name where its spec is the same.

        Returns:
            The study, and whether it was created.

        Raises:
            Conflict: The name is taken by a study with another spec; the differences are listed.
        """
        try:
            return write(self.engine, lambda session: self._create(session, new))
        except IntegrityError:
            # Somebody created it between our look and our insert: now it can be seen.
            return write(self.engine, lambda session: self._create(session, new))

    def study(self, key: str, project: str = "default") -> StudyRecord:
        """A study by its id or name.

        Raises:
            NotFound: There is none.
        """
        with reading(self.engine) as session:
            return study_record(_study(session, key, project))

    def find_study(self, name: str, project: str = "default") -> StudyRecord | None:
        """A study by its name, ``None`` where there is none."""
        with reading(self.engine) as session:
            row = session.scalar(select(StudyRow).where(StudyRow.project == project, StudyRow.name == name))
            return None if row is None else study_record(row)

    def studies(
        self, project: str = "default", state: StudyState | None = None, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[StudyRecord], str | None]:
        """A page of studies, newest first, and the cursor of the next.

        Raises:
            InvalidInput: A cursor that no page gave.
        """
        query = select(StudyRow).where(StudyRow.project == project)
        if state is not None:
            query = query.where(StudyRow.state == state)
        query = query.order_by(StudyRow.created_at.desc(), StudyRow.id.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(_is_after(cursor))
        with reading(self.engine) as session:
            rows = [study_record(row) for row in session.scalars(query)]
        return rows[:limit], _cursor(rows[limit - 1]) if len(rows) > limit else None

    def act(self, key: str, event: StudyEvent, project: str = "default") -> StudyRecord:
        """Pause, resume, stop or cancel a study; one that nobody works on need not wait for a dispatcher to end.

        Raises:
            NotFound: There is none.
            Conflict: Its state does not allow it.
        """

        def work(session: Session) -> StudyRecord:
            row = _study(session, key, project, for_update=True)
            now = self._now()
            change_study(session, row, event, "on request", now)
            if row.state in (StudyState.stopping, StudyState.cancelling) and _is_idle(session, row, now):
                stop_queued_trials(session, row, now)
                change_study(session, row, StudyEvent.settle, "on request", now)
            session.flush()
            return study_record(row)

        return write(self.engine, work)

    def delete_study(self, key: str, project: str = "default") -> None:
        """Delete a study with its trials; its events stay, as the audit trail.

        Raises:
            NotFound: There is none.
            Conflict: It is being worked on.
        """

        def work(session: Session) -> None:
            row = _study(session, key, project, for_update=True)
            now = self._now()
            leased = row.lease_expires_at is not None and row.lease_expires_at > now
            if row.state not in _DELETABLE or (leased and not StudyState(row.state).is_final):
                raise Conflict(f"study {row.name} is {row.state} and being worked on; stop or cancel it first")
            record(session, row, "study.deleted", now)
            session.flush()
            session.execute(delete(StudyRow).where(StudyRow.id == row.id))

        write(self.engine, work)

    def trials(self, study_id: str, after_number: int = -1, limit: int | None = None) -> list[TrialRecord]:
        """Trials of a study by number."""
        with reading(self.engine) as session:
            return read_trials(session, study_id, after_number, limit)

    def attempts(self, study_id: str, number: int) -> list[AttemptRecord]:
        """Attempts of one trial, in order."""
        query = (
            select(AttemptRow)
            .join(TrialRow)
            .where(TrialRow.study_id == study_id, TrialRow.number == number)
            .order_by(AttemptRow.number)
        )
        with reading(self.engine) as session:
            return [attempt_record(row) for row in session.scalars(query)]

    def events(self, after: int, study_id: str | None = None, limit: int = 200) -> list[EventRecord]:
        """Events with a higher id, of one study or of all, in order."""
        query = select(EventRow).where(EventRow.id > min(after, _LAST_ID)).order_by(EventRow.id).limit(limit)
        if study_id is not None:
            query = query.where(EventRow.study_id == study_id)
        with reading(self.engine) as session:
            return [event_record(row) for row in session.scalars(query)]

    def last_event_id(self) -> int:
        """Id of the newest event, 0 where there is none."""
        with reading(self.engine) as session:
            return session.scalar(select(func.max(EventRow.id))) or 0

    def live_owners(self) -> int:
        """Dispatchers that hold a study at this moment."""
        query = select(func.count(StudyRow.lease_owner.distinct())).where(StudyRow.lease_expires_at > self._now())
        with reading(self.engine) as session:
            return session.scalar(query) or 0

    def _create(self, session: Session, new: NewStudy) -> tuple[StudyRecord, bool]:
        known = session.scalar(select(StudyRow).where(StudyRow.project == new.project, StudyRow.name == new.name))
        if known is not None:
            if known.spec_digest != new.spec_digest:
                differences = spec_differences(known.spec, new.spec)
                raise Conflict(f"a study named {new.name} exists with another spec", differences)
            return study_record(known), False
        now = self._now()
        row = StudyRow(
            id=f"st_{secrets.token_hex(8)}",
            project=new.project,
            name=new.name,
            spec=new.spec,
            spec_digest=new.spec_digest,
            state=StudyState.queued,
            revision=0,
            job_fingerprint=new.job_fingerprint,
            hardware_fingerprint=new.hardware_fingerprint,
            active_s=0.0,
            lease_token=0,
            created_at=now,
            updated_at=now,
        )
        session.add(row)
        record(session, row, "study.created", now)
        session.flush()
        return study_record(row), True


def _cursor(last: StudyRecord) -> str:
    """Where a page ends: by what pages are ordered by, so that it holds when that very study is deleted."""
    return f"{last.created_at:{_CURSOR_TIME}}-{last.id}"


def _is_after(cursor: str) -> ColumnElement[bool]:
    moment, _, last_id = cursor.partition("-")
    try:
        created_at = datetime.strptime(moment, _CURSOR_TIME).replace(tzinfo=UTC)
    except ValueError:
        created_at = None
    if created_at is None or not _can_be_a_key(last_id):
        raise InvalidInput.of("cursor", cursor, "must be the next of the page before")
    return tuple_(StudyRow.created_at, StudyRow.id) < tuple_(created_at, last_id)


def _can_be_a_key(text: str) -> bool:
    """Whether an id or name can be so; what cannot is not even asked for, as the databases differ in what they take."""
    return text.isascii() and text.isprintable()


def read_trials(session: Session, study_id: str, after_number: int = -1, limit: int | None = None) -> list[TrialRecord]:
    """Trials of a study by number, with attempts and measurements in two more queries however many there are."""
    query = (
        select(TrialRow)
        .where(TrialRow.study_id == study_id, TrialRow.number > after_number)
        .order_by(TrialRow.number)
        .limit(limit)
        .options(selectinload(TrialRow.attempts).selectinload(AttemptRow.measurement))
    )
    return [trial_record(row) for row in session.scalars(query)]


def stop_queued_trials(session: Session, study: StudyRow, now: datetime) -> None:
    """Stop every trial of a study that has not started."""
    query = select(TrialRow).where(TrialRow.study_id == study.id, TrialRow.state == TrialState.queued)
    for trial in session.scalars(query.order_by(TrialRow.number)):
        change_trial(session, study, trial, TrialEvent.stop, now)


def _is_idle(session: Session, study: StudyRow, now: datetime) -> bool:
    """Whether no dispatcher holds the study, and none left a trial running."""
    if study.lease_expires_at is not None and study.lease_expires_at > now:
        return False
    running = select(TrialRow.id).where(TrialRow.study_id == study.id, TrialRow.state == TrialState.running)
    return session.scalar(running.limit(1)) is None


def spec_differences(old: dict[str, Any], new: dict[str, Any]) -> tuple[FieldProblem, ...]:
    """Where two study documents differ, field by field; the name is not compared."""
    before, after = dict(_flat(old)), dict(_flat(new))
    return tuple(
        FieldProblem(
            field, after.get(field), f"is {_short(before.get(field))} there and {_short(after.get(field))} here"
        )
        for field in sorted(before.keys() | after.keys())
        if field != "name" and before.get(field) != after.get(field)
    )


def _flat(value: Any, path: str = "") -> Sequence[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [item for key, inner in value.items() for item in _flat(inner, f"{path}.{key}" if path else key)]
    return [(path, value)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _study(session: Session, key: str, project: str, *, for_update: bool = False) -> StudyRow:
    query = select(StudyRow).where(StudyRow.project == project)
    if for_update:
        query = query.with_for_update()
    row = None
    if _can_be_a_key(key):
        row = session.scalar(query.where(StudyRow.id == key)) or session.scalar(query.where(StudyRow.name == key))
    if row is None:
        raise NotFound(f"there is no study {key!r}")
    return row
