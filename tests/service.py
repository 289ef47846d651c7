"""A service over a real database, with studies at any stage, for tests of the API, the commands and the page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from builders import spec
from fastapi.testclient import TestClient
from sqlalchemy import text

from api.submission import new_study
from tuner.result import reference_of
from tuner.space import build_space
from tuner.spec import StudySpec
from tuner.states import StudyEvent, TrialEvent
from tuner.store.engine import open_engine
from tuner.store.migrate import upgrade
from tuner.store.ownership import Ownership
from tuner.store.records import Completed, Lease, TrialRecord
from tuner.store.repository import Repository
from tuner.study import Study
from tuner.trial import FailureKind, Measurement, TrialFailure

_EVENTS = {FailureKind.out_of_memory: TrialEvent.refute, FailureKind.invalid_layout: TrialEvent.refute}


class Service:
    """A migrated database, and what users and dispatchers do to it."""

    client: TestClient

    def __init__(self, url: str) -> None:
        upgrade(url)
        engine = open_engine(url)
        self.repository = Repository(engine)
        self.ownership = Ownership(engine)

    def submit(self, **changes: Any) -> str:
        """A queued study; its id."""
        record, _ = self.repository.create_study(new_study(spec(**changes)))
        return record.id

    def started(self, **changes: Any) -> Lease:
        """A running study, held by a dispatcher."""
        study = self.submit(**changes)
        lease = self.ownership.claim("tests", timedelta(minutes=5), only=study)
        assert lease is not None
        self.ownership.apply(lease, StudyEvent.start)
        return lease

    def finish(self, lease: Lease, outcome: Measurement | TrialFailure) -> TrialRecord:
        """The next trial, with this outcome."""
        record = self.ownership.study(lease)
        study_spec = StudySpec.parse(record.spec)
        study = Study(
            build_space(study_spec), study_spec.sampler.model_copy(update={"kind": "random"}), study_spec.limits
        )
        proposal = study.ask(self.ownership.trials(lease))
        assert proposal is not None
        trial = self.ownership.add_trial(lease, proposal.configuration, proposal.origin, {})
        attempt = self.ownership.start_attempt(lease, trial.number, f"launch-{trial.number}", True)
        if isinstance(outcome, TrialFailure):
            event = _EVENTS.get(outcome.kind, TrialEvent.fail)
            return self.ownership.finish_attempt(lease, attempt.id, outcome, 10.0, event)
        reference = reference_of(outcome, study_spec.limits)
        corner = (reference.step_time_s, reference.energy_j)
        done = Completed(outcome, 20.0)
        return self.ownership.finish_attempt(lease, attempt.id, done, 100.0, TrialEvent.complete, corner)

    def lose_database(self) -> None:
        """As if the schema had been changed under the service."""
        with self.repository.engine.begin() as connection:
            connection.execute(text("DROP TABLE paretune_alembic_version"))
