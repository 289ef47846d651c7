"""What the store hands out and takes in: plain frozen records, never rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuner.layout import Configuration
from tuner.states import AttemptState, StudyState, TrialState
from tuner.trial import FailureKind, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStudy:
    """A study to be created.

    Args:
        name: Unique within the project.
        spec: The study document, every default filled in.
        spec_digest: Hash of it without the name.
        job_fingerprint: Hash of what is trained.
        hardware_fingerprint: Hash of what it runs on.
        project: Whose study it is.
    """

    name: str
    spec: dict[str, Any]
    spec_digest: str
    job_fingerprint: str
    hardware_fingerprint: str
    project: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A study as stored; ``active_s`` is the wall time it was worked on."""

    id: str
    project: str
    name: str
    spec: dict[str, Any]
    spec_digest: str
    state: StudyState
    state_reason: str | None
    revision: int
    job_fingerprint: str
    hardware_fingerprint: str
    reference_step_time_s: float | None
    reference_energy_j: float | None
    active_s: float
    lease_token: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A trial as stored, with the measurement of the attempt that completed it.

    ``attempts`` counts the tries so far, ``gpu_seconds`` sums what they were charged.
    """

    number: int
    configuration: Configuration
    repeat: int
    state: TrialState
    failure_kind: FailureKind | None
    message: str | None
    origin: str
    sampler_attrs: dict[str, Any]
    attempts: int
    gpu_seconds: float
    measurement: Measurement | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One try at a trial."""

    id: int
    number: int
    lease_token: int
    launch_name: str
    new_launch: bool
    state: AttemptState
    failure_kind: FailureKind | None
    message: str | None
    log_tail: str | None
    launch_s: float | None
    gpu_seconds: float
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something that happened to a study; ids only grow."""

    id: int
    study_id: str
    study_name: str
    revision: int
    kind: str
    at: datetime
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A dispatcher's claim on a study. The token fences: a write under an older one is refused."""

    study_id: str
    owner: str
    token: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Completed:
    """An attempt that yielded a measurement.

    Args:
        measurement: What was measured.
        launch_s: What opening the launch took, where this attempt opened it.
    """

    measurement: Measurement
    launch_s: float | None
