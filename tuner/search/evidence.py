"""What the trials of a study say, as arrays for the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tuner.hardware import Cluster
from tuner.search.grid import Grid, Indices
from tuner.search.prior import MEMORY, POWER, TIME
from tuner.search.surrogate import Observations
from tuner.states import TrialState
from tuner.trial import FailureKind, KnownTrial, Measurement

# Relative noise of a measurement that states none, and the least that is believed.
_NOISE = 0.01
_LEAST_NOISE = 0.003
_MEMORY_NOISE = 0.01
# One that ran out of memory needed more than there is, most likely by no great share.
_OVERSHOOT, _OVERSHOOT_NOISE = 0.05, 0.05
_UNSEEN_LAUNCH_S = 60.0
_UNSEEN_STEPS = 13.0
_PENDING = (TrialState.queued, TrialState.running)


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """The trials of a study in the pool.

    Args:
        speed: Measured step times and average powers.
        number: How many trials had been measured before, for each row of ``speed``.
        memory: Measured peak memories.
        complete: Candidates measured.
        pending: Candidates whose measurement has begun or waits.
        out_of_memory: Layouts that did not fit.
        launch_s: Seconds that opening a launch takes.
        steps: Steps' worth of time that a trial takes in an open launch.
    """

    speed: Observations
    number: Indices
    memory: Observations
    complete: Indices
    pending: Indices
    out_of_memory: Indices
    launch_s: float
    steps: float


def read_trials(trials: Sequence[KnownTrial], grid: Grid, cluster: Cluster) -> Trials:
    """Arrange trials; those outside the pool are passed over.

    Args:
        trials: By number.
        grid: The pool.
        cluster: The cluster.
    """
    known = [(row, trial) for trial in trials if (row := grid.row(trial.configuration)) is not None]
    ran = [(row, trial.measurement) for row, trial in known if trial.measurement is not None]
    failed = [row for row, trial in known if trial.failure_kind is FailureKind.out_of_memory]
    speed = [each for number, (row, m) in enumerate(ran) for each in _speed(number, row, m)]
    full = np.log(cluster.gpu.memory_gib) + _OVERSHOOT
    memory = [(MEMORY, row, np.log(m.peak_memory_gib), _MEMORY_NOISE) for row, m in ran if m.peak_memory_gib]
    memory += [(MEMORY, row, full, _OVERSHOOT_NOISE) for row in failed]
    return Trials(
        speed=_observations([each[1:] for each in speed]),
        number=np.array([each[0] for each in speed], np.intp),
        memory=_observations(memory),
        complete=np.array([row for row, _ in ran], np.intp),
        pending=np.array([row for row, trial in known if trial.state in _PENDING], np.intp),
        out_of_memory=np.unique(grid.layout[np.array(failed, np.intp)]),
        launch_s=_launch_s([trial for _, trial in known], cluster),
        steps=median([m.duration_s / m.step_time_s for _, m in ran] or [_UNSEEN_STEPS]),
    )


def _speed(number: int, row: int, measured: Measurement) -> list[tuple[int, int, int, float, float]]:
    """Number, quantity, row, logarithm and noise of what was measured."""
    time_s, energy_j = measured.step_time_s, measured.energy_j
    time_noise = max(measured.step_time_sem_s / time_s or _NOISE, _LEAST_NOISE)
    time = (number, TIME, row, float(np.log(time_s)), time_noise)
    if energy_j is None:
        return [time]
    energy_noise = max((measured.energy_sem_j or 0.0) / energy_j or _NOISE, _LEAST_NOISE)
    return [time, (number, POWER, row, float(np.log(energy_j / time_s)), float(np.hypot(energy_noise, time_noise)))]


def _launch_s(trials: Sequence[KnownTrial], cluster: Cluster) -> float:
    """What the trials that opened a launch paid for it: all that their measuring does not explain."""
    opening = [
        trial.gpu_seconds / cluster.world_size - (trial.measurement.duration_s if trial.measurement else 0.0)
        for trial in trials
        if trial.measurement or trial.failure_kind is FailureKind.out_of_memory
    ]
    seen = [seconds for seconds in opening if seconds > 1.0]
    return median(seen or [_UNSEEN_LAUNCH_S])


def _observations(rows: Sequence[tuple[int, int, float, float]]) -> Observations:
    quantity, row, value, noise = np.array(rows, float).reshape(-1, 4).T
    return Observations(quantity.astype(np.intp), row.astype(np.intp), value, noise)
