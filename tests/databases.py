"""Databases for tests of the store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Engine, select

from tuner.states import StudyEvent
from tuner.store.ownership import Ownership
from tuner.store.records import Lease, NewStudy
from tuner.store.repository import Repository
from tuner.store.tables import Base

TTL = timedelta(seconds=60)


class FreshDatabase(Protocol):
    """Makes a database of one's own on the session's PostgreSQL server, at head or empty; its URL."""

    def __call__(self, *, migrated: bool = True) -> str: ...


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def new(name: str = "small", **spec: Any) -> NewStudy:
    """A study to be created, with this in its document."""
    return NewStudy(
        name=name,
        spec={"name": name, **spec},
        spec_digest=str(hash(json.dumps(spec, sort_keys=True))),
        job_fingerprint="job",
        hardware_fingerprint="hardware",
    )


def running(repository: Repository, ownership: Ownership, name: str = "small", owner: str = "first") -> Lease:
    """A new study, claimed and started."""
    study, _ = repository.create_study(new(name))
    lease = ownership.claim(owner, TTL, only=study.id)
    assert lease is not None
    ownership.apply(lease, StudyEvent.start)
    return lease


def dump(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that is stored."""
    with engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in Base.metadata.sorted_tables
        }
