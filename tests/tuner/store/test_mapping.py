from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from builders import configuration, measurement
from databases import dump, new, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.exc import StatementError

from tuner.states import TrialEvent
from tuner.store.ownership import Ownership
from tuner.store.records import Completed
from tuner.store.repository import Repository
from tuner.trial import EnergySource, FailureKind, Measurement, Source, TrialFailure

MEASURED = Measurement(
    source=Source.measured,
    step_time_s=0.1 + 0.2,
    step_time_sem_s=1e-300,
    energy_j=5e-324,
    energy_sem_j=1.7976931348623157e308,
    energy_source=EnergySource.counter,
    tokens_per_s=1 / 3,
    peak_memory_gib=79.999999999999986,
    average_power_w=700.1,
    steps=17,
    window_s=10.5,
    duration_s=12.25,
    requested_mhz=1410,
    achieved_mhz=1395,
    temperature_c=61.5,
    power_cap_share=0.25,
    thermal_share=0.0,
    flags=("power_capped", "unsteady"),
)
UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("peak_memory_gib", "achieved_mhz", "temperature_c", "power_cap_share", "thermal_share")
)


def stored(repository: Repository, ownership: Ownership, measured: Measurement) -> Measurement | None:
    lease = running(repository, ownership, f"study-{repository.last_event_id()}")
    ownership.add_trial(lease, configuration(), "baseline", {})
    attempt = ownership.start_attempt(lease, 0, "launch", True)
    trial = ownership.finish_attempt(lease, attempt.id, Completed(measured, None), 1.0, TrialEvent.complete)
    assert repository.trials(lease.study_id) == [trial]
    return trial.measurement


@pytest.mark.parametrize("measured", [MEASURED, measurement(energy_j=None, **UNKNOWN)])
def test_a_measurement_comes_back_as_it_was_to_the_last_bit_and_type(
    repository: Repository, ownership: Ownership, measured: Measurement
) -> None:
    read = stored(repository, ownership, measured)
    assert read == measured
    for field in fields(Measurement):
        assert type(getattr(read, field.name)) is type(getattr(measured, field.name)), field.name


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(step_time_s=st.floats(1e-9, 1e9), energy_j=st.none() | st.floats(1e-9, 1e12), source=st.sampled_from(Source))
def test_any_numbers_come_back_exactly(
    repository: Repository, ownership: Ownership, step_time_s: float, energy_j: float | None, source: Source
) -> None:
    measured = measurement(step_time_s, energy_j, source=source)
    assert stored(repository, ownership, measured) == measured


@pytest.mark.parametrize("mhz", [None, 1410])
def test_a_trial_comes_back_with_its_configuration_and_the_samplers_notes(
    repository: Repository, ownership: Ownership, mhz: int | None
) -> None:
    lease = running(repository, ownership)
    notes = {"acquisition": 0.1, "chosen": ["a", None, True], "nested": {"\u00e4": 1}}
    trial = ownership.add_trial(lease, configuration(2, 2, 4, mhz, gpus=16), "sampler", notes, repeat=2)
    assert trial.configuration == configuration(2, 2, 4, mhz, gpus=16)
    assert (trial.sampler_attrs, trial.repeat, trial.origin) == (notes, 2, "sampler")
    assert repository.trials(lease.study_id) == [trial]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_know_is_refused_by_both_databases_alike(
    engine: Engine, repository: Repository, ownership: Ownership, number: float
) -> None:
    """Python writes NaN, PostgreSQL refuses it, SQLite keeps it, and no browser reads it."""
    lease = running(repository, ownership)
    before = dump(engine)
    with pytest.raises((StatementError, ValueError), match="not JSON compliant"):
        ownership.add_trial(lease, configuration(), "sampler", {"nested": [number]})
    with pytest.raises((StatementError, ValueError), match="not JSON compliant"):
        repository.create_study(new("other", seed=number))
    assert dump(engine) == before


@pytest.mark.parametrize("kind", list(FailureKind))
def test_a_failure_comes_back_with_its_kind(repository: Repository, ownership: Ownership, kind: FailureKind) -> None:
    lease = running(repository, ownership)
    ownership.add_trial(lease, configuration(), "baseline", {})
    attempt = ownership.start_attempt(lease, 0, "launch", True)
    trial = ownership.finish_attempt(lease, attempt.id, TrialFailure(kind, "why"), 1.0, TrialEvent.fail)
    read = repository.trials(lease.study_id)[0]
    assert read == trial
    assert (type(read.failure_kind), read.failure_kind, read.message) == (FailureKind, kind, "why")
    assert repository.attempts(lease.study_id, 0)[0].failure_kind is kind
    assert repository.events(0)[-1].payload == {"trial": 0, "failure_kind": kind.value}
