"""A study with a point of every role, for tests of what is shown of it."""

from __future__ import annotations

from builders import measurement
from service import Service

from tuner.trial import FailureKind, TrialFailure


def with_findings(service: Service) -> None:
    lease = service.started()
    for outcome in (
        measurement(1.0, 1000.0, flags=("power_capped",)),
        measurement(1.2, 700.0, step_time_sem_s=0.01, energy_sem_j=5.0),
        measurement(1.3, 900.0),
        measurement(9.0, 100.0),
        TrialFailure(FailureKind.out_of_memory, "<img src=x onerror=alert(1)> needs 99 GiB"),
    ):
        service.finish(lease, outcome)
