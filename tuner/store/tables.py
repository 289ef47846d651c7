"""The tables. Their rows never leave this package."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, DateTime, ForeignKey, Index, MetaData, String, Text, UniqueConstraint
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, validates
from sqlalchemy.types import TypeDecorator

from tuner.states import AttemptState, StudyState, TrialState

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no zone, so it is put back on reading; a naive value is refused on writing."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored moment needs a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """With its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def storable(text: str | None) -> str | None:
    """Text from anywhere, such as a crashed process's log, with U+FFFD for what PostgreSQL or UTF-8 cannot hold."""
    if text is None:
        return None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


class Base(DeclarativeBase):
    """All tables."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {datetime: UtcDateTime(), dict[str, Any]: JSON(), list[str]: JSON()}  # noqa: RUF012


def one_of(column: str, states: type[StrEnum]) -> CheckConstraint:
    """A check instead of a native enum, whose type names collide with other applications' on PostgreSQL."""
    values = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({values})", name=column)


class StudyRow(Base):
    """A study and its lease."""

    __tablename__ = "study"
    __table_args__ = (
        UniqueConstraint("project", "name"),
        Index(None, "job_fingerprint", "hardware_fingerprint"),
        Index(None, "created_at", "id"),
        Index(None, "state"),
        one_of("state", StudyState),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    project: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(100))
    spec: Mapped[dict[str, Any]]
    spec_digest: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(20))
    state_reason: Mapped[str | None] = mapped_column(Text)
    revision: Mapped[int]
    job_fingerprint: Mapped[str] = mapped_column(String(64))
    hardware_fingerprint: Mapped[str] = mapped_column(String(64))
    reference_step_time_s: Mapped[float | None]
    reference_energy_j: Mapped[float | None]
    active_s: Mapped[float]
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_token: Mapped[int]
    lease_expires_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    @validates("state_reason")
    def _storable(self, _: str, value: str | None) -> str | None:
        return storable(value)


class TrialRow(Base):
    """One configuration of a study, to be measured once."""

    __tablename__ = "trial"
    __table_args__ = (
        UniqueConstraint("study_id", "number"),
        UniqueConstraint("study_id", "configuration_key", "repeat"),
        one_of("state", TrialState),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    number: Mapped[int]
    configuration_key: Mapped[str] = mapped_column(String(120))
    repeat: Mapped[int]
    dp: Mapped[int]
    tp: Mapped[int]
    pp: Mapped[int]
    microbatch: Mapped[int]
    frequency_mhz: Mapped[int | None]
    state: Mapped[str] = mapped_column(String(20))
    failure_kind: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[str | None] = mapped_column(Text)
    origin: Mapped[str] = mapped_column(String(20))
    sampler_attrs: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    attempts: Mapped[list[AttemptRow]] = relationship(
        order_by="AttemptRow.number", passive_deletes=True, back_populates="trial"
    )

    @validates("message")
    def _storable(self, _: str, value: str | None) -> str | None:
        return storable(value)


class AttemptRow(Base):
    """One try at a trial."""

    __tablename__ = "attempt"
    __table_args__ = (UniqueConstraint("trial_id", "number"), one_of("state", AttemptState))

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id", ondelete="CASCADE"))
    number: Mapped[int]
    lease_token: Mapped[int]
    launch_name: Mapped[str] = mapped_column(String(200))
    new_launch: Mapped[bool]
    state: Mapped[str] = mapped_column(String(20))
    failure_kind: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[str | None] = mapped_column(Text)
    log_tail: Mapped[str | None] = mapped_column(Text)
    launch_s: Mapped[float | None]
    gpu_seconds: Mapped[float]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    trial: Mapped[TrialRow] = relationship(back_populates="attempts")
    measurement: Mapped[MeasurementRow | None] = relationship(passive_deletes=True)

    @validates("message", "log_tail")
    def _storable(self, _: str, value: str | None) -> str | None:
        return storable(value)


class MeasurementRow(Base):
    """What an attempt yielded: the fields of :class:`tuner.trial.Measurement`."""

    __tablename__ = "measurement"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True)
    source: Mapped[str] = mapped_column(String(20))
    step_time_s: Mapped[float]
    step_time_sem_s: Mapped[float]
    energy_j: Mapped[float | None]
    energy_sem_j: Mapped[float | None]
    energy_source: Mapped[str | None] = mapped_column(String(20))
    tokens_per_s: Mapped[float]
    peak_memory_gib: Mapped[float | None]
    average_power_w: Mapped[float | None]
    steps: Mapped[int]
    window_s: Mapped[float]
    duration_s: Mapped[float]
    requested_mhz: Mapped[int | None]
    achieved_mhz: Mapped[int | None]
    temperature_c: Mapped[float | None]
    power_cap_share: Mapped[float | None]
    thermal_share: Mapped[float | None]
    flags: Mapped[list[str]]


class EventRow(Base):
    """Something that happened. No foreign key: the audit trail outlives a deleted study."""

    __tablename__ = "event"
    __table_args__ = (Index(None, "study_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(String(40))
    study_name: Mapped[str] = mapped_column(String(100))
    revision: Mapped[int]
    kind: Mapped[str] = mapped_column(String(40))
    at: Mapped[datetime]
    payload: Mapped[dict[str, Any]]
