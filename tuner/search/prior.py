"""What physics says about every candidate before anything is measured, and how sure it is.

The analytic model is taken to first order in its uncertain coefficients, around the values that explain the trials
best: a mean and a Jacobian for each logarithm. As the coefficients have a normal prior, that is a Gaussian process
whose features are physics, so that one measured layout teaches all the others what it has in common with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.calibration import Calibration
from tuner.physics.coefficients import COEFFICIENTS, Coefficients, logarithms, with_logarithms
from tuner.physics.configurations import Configurations, Floats
from tuner.physics.memory import GIB, peak_memory
from tuner.physics.power import running_clock, step_energy
from tuner.physics.step_time import StepModel
from tuner.search.grid import Indices

TIME, POWER, MEMORY = range(3)
"""Quantities, in the order of all arrays' rows: step time in s, energy over step time in W, peak memory in GiB."""

_STEP = 1e-3
# Configurations times coefficients evaluated at once; more would only leave the caches.
_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Logarithms of the quantities to first order in the whitened coefficients, which are standard normal beforehand.

    Args:
        mean: At the prior's coefficients, shape ``(3, n)``.
        slopes: Change with each whitened coefficient, shape ``(3, n, c)``.
    """

    mean: Floats
    slopes: Floats


class PhysicsPrior:
    """The analytic model over a pool under one framework's coefficients.

    Args:
        job: The training job.
        cluster: The cluster.
        x: The pool, n configurations.
        known: The coefficients and how sure they are.
    """

    def __init__(self, job: TrainingJob, cluster: Cluster, x: Configurations, known: Calibration) -> None:
        self._job, self._cluster, self._x = job, cluster, x
        self._base = known.coefficients
        self._start: Floats = logarithms(known.coefficients)
        self._root: Floats = np.asarray(
            np.linalg.cholesky(known.covariance + 1e-12 * np.eye(len(self._start))), np.float64
        )

    @property
    def coefficients(self) -> int:
        """How many coefficients are uncertain."""
        return len(self._start)

    def at(self, z: Floats, rows: Indices) -> Floats:
        """Logarithms of the quantities, shape ``(3, m)``, at whitened coefficients of shape ``(c,)``."""
        coefficients = with_logarithms(self._base, self._start + self._root @ z)
        return log_quantities(self._job, self._cluster, self._x[rows], coefficients)

    def linear(self, z: Floats, rows: Indices) -> Linear:
        """The model to first order around whitened coefficients ``z``, for some rows of the pool."""
        pieces = [self._linear(z, rows[i : i + _AT_ONCE]) for i in range(0, len(rows), _AT_ONCE)]
        return Linear(
            np.concatenate([piece.mean for piece in pieces], axis=1),
            np.concatenate([piece.slopes for piece in pieces], axis=1),
        )

    def _linear(self, z: Floats, rows: Indices) -> Linear:
        start: Floats = self._start + self._root @ z
        x, base = self._x[rows], with_logarithms(self._base, start)
        there = log_quantities(self._job, self._cluster, x, base)
        slopes: Floats = np.empty((3, len(x), len(COEFFICIENTS)))
        for column in range(len(COEFFICIENTS)):
            moved = start.copy()
            moved[column] += _STEP
            changed = log_quantities(self._job, self._cluster, x, with_logarithms(base, moved))
            slopes[:, :, column] = (changed - there) / _STEP
        slopes = slopes @ self._root
        return Linear(there - slopes @ z, slopes)

    def shares(self, rows: Indices) -> Floats:
        """Shares of the step time that are bubble and communication, shape ``(m, 2)``."""
        x = self._x[rows]
        parts = StepModel(self._job, self._cluster, x, self._base).at(x.frequency_mhz).parts
        total = np.sum(list(parts.values()), axis=0)
        communication = parts["tp_s"] + parts["pp_s"] + parts["dp_s"] + parts["zero_s"]
        shares: Floats = np.stack([parts["bubble_s"], communication], axis=1) / total[:, None]
        return shares


def log_quantities(job: TrainingJob, cluster: Cluster, x: Configurations, c: Coefficients) -> Floats:
    """Logarithms of step time, power and peak memory, shape ``(3, n)``."""
    model = StepModel(job, cluster, x, c)
    clock = running_clock(model, cluster, x, c)
    step = model.at(clock)
    time = np.log(step.total_s)
    power = np.log(step_energy(step, cluster, c, clock).total_j) - time
    return np.stack([time, power, np.log(peak_memory(job, x, c).bytes / GIB)])


def features(x: Sequence[Floats], shares: Floats) -> Floats:
    """What layouts that err alike have in common, in doublings; shares count as so many.

    Args:
        x: Degrees and microbatch, arrays of shape ``(layouts,)``.
        shares: Of bubble and communication, shape ``(layouts, 2)``.
    """
    found: Floats = np.hstack([np.log2(np.stack(x, axis=1)), 4.0 * shares])
    return found
