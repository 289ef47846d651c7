"""From rows to records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from tuner.layout import Configuration, Layout
from tuner.states import AttemptState, StudyState, TrialState
from tuner.store.records import AttemptRecord, EventRecord, StudyRecord, TrialRecord
from tuner.store.tables import AttemptRow, EventRow, MeasurementRow, StudyRow, TrialRow
from tuner.trial import EnergySource, FailureKind, Measurement, Source

_MEASUREMENT_FIELDS = tuple(field.name for field in fields(Measurement))


def study_record(row: StudyRow) -> StudyRecord:
    """A study."""
    plain = {field.name: getattr(row, field.name) for field in fields(StudyRecord)}
    return StudyRecord(**plain | {"state": StudyState(row.state)})


def trial_record(row: TrialRow) -> TrialRecord:
    """A trial, with its attempts summed up."""
    attempts: Sequence[AttemptRow] = row.attempts
    measured = next((a.measurement for a in attempts if a.measurement is not None), None)
    return TrialRecord(
        number=row.number,
        configuration=Configuration(Layout(row.dp, row.tp, row.pp, row.microbatch), row.frequency_mhz),
        repeat=row.repeat,
        state=TrialState(row.state),
        failure_kind=_failure(row.failure_kind),
        message=row.message,
        origin=row.origin,
        sampler_attrs=row.sampler_attrs,
        attempts=len(attempts),
        gpu_seconds=sum(attempt.gpu_seconds for attempt in attempts),
        measurement=None if measured is None else measurement(measured),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def attempt_record(row: AttemptRow) -> AttemptRecord:
    """An attempt."""
    plain = {field.name: getattr(row, field.name) for field in fields(AttemptRecord)}
    return AttemptRecord(**plain | {"state": AttemptState(row.state), "failure_kind": _failure(row.failure_kind)})


def event_record(row: EventRow) -> EventRecord:
    """An event."""
    return EventRecord(**{field.name: getattr(row, field.name) for field in fields(EventRecord)})


def measurement(row: MeasurementRow) -> Measurement:
    """A measurement."""
    plain = {name: getattr(row, name) for name in _MEASUREMENT_FIELDS}
    special = {
        "source": Source(row.source),
        "energy_source": None if row.energy_source is None else EnergySource(row.energy_source),
        "flags": tuple(row.flags),
    }
    return Measurement(**plain | special)


def measurement_row(attempt_id: int, measured: Measurement) -> MeasurementRow:
    """A measurement, to be stored."""
    plain = {name: getattr(measured, name) for name in _MEASUREMENT_FIELDS}
    return MeasurementRow(attempt_id=attempt_id, **plain | {"flags": list(measured.flags)})


def _failure(kind: str | None) -> FailureKind | None:
    return None if kind is None else FailureKind(kind)
