"""What measured trials say about a model: its errors, split into what layouts share and what is noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.calibration import Calibration, LayoutOffsets, layout_keys
from tuner.physics.coefficients import Coefficients, with_logarithms
from tuner.physics.configurations import Configurations, Floats
from tuner.physics.memory import GIB, peak_memory
from tuner.physics.power import running_clock, step_energy
from tuner.physics.step_time import StepModel

# Relative noise of one measured window, which clocks of a layout do not share.
NOISE = 0.01
# How many layouts' worth of belief stands behind the deviations that the prior states.
_DEVIATION_LAYOUTS = 4.0
# Residuals count like those of a Student distribution with about so many degrees of freedom: clusters have bad days.
_TAIL = 4.0
_STEP = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measured trials of one job on one cluster; arrays of shape ``(n,)``.

    Args:
        configurations: What was run.
        step_time_s: Step time; nan where it ran out of memory.
        energy_j: Energy of a step over all GPUs; nan where unknown.
        peak_memory_gib: Peak memory of the fullest GPU; nan where unknown.
        fits: Whether it ran; False where it ran out of memory.
    """

    configurations: Configurations
    step_time_s: Floats
    energy_j: Floats
    peak_memory_gib: Floats
    fits: NDArray[np.bool_]

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Which trials have a step time."""
        return self.fits & np.isfinite(self.step_time_s)


@dataclass(frozen=True, slots=True)
class Deviations:
    """How far layouts lie from the model, relative, in step time, power and peak memory."""

    time: float
    power: float
    memory: float


class Evidence:
    """The trials that ran, as logarithms, and how a model's errors become residuals."""

    def __init__(self, job: TrainingJob, cluster: Cluster, measured: Measured) -> None:
        self._job, self._cluster = job, cluster
        ran = measured.ran
        self._x = measured.configurations[ran]
        time = np.log(measured.step_time_s[ran])
        self._logs = np.stack([time, np.log(measured.energy_j[ran]) - time, np.log(measured.peak_memory_gib[ran])])
        self._known = np.isfinite(self._logs)
        self._keys, self._layout = np.unique(layout_keys(job, cluster, self._x), return_inverse=True)
        self._counts = [np.bincount(self._layout, known, len(self._keys)) for known in self._known]

    def errors(self, c: Coefficients, variants: int = 1) -> Floats:
        """Log modelled over measured of time, power and memory, shape ``(3, variants * n)``; 0 where unknown.

        Args:
            c: Coefficients; with several variants, arrays of shape ``(variants * n,)``.
            variants: How many models are evaluated at once.
        """
        x = self._x[np.tile(np.arange(len(self._x)), variants)]
        model = StepModel(self._job, self._cluster, x, c)
        clock = running_clock(model, self._cluster, x, c)
        step = model.at(clock)
        time = np.log(step.total_s)
        power = np.log(step_energy(step, self._cluster, c, clock).total_j) - time
        memory = np.log(peak_memory(self._job, x, c).bytes / GIB)
        errors = np.stack([time, power, memory]) - np.tile(self._logs, variants)
        return np.where(np.tile(self._known, variants), errors, 0.0)

    def residuals(self, errors: Floats, deviations: Deviations) -> Floats:
        """Independent residuals of unit variance with light tails, from errors of shape ``(3, n)``."""
        rows = (deviations.time, deviations.power, deviations.memory)
        split = [self._split(errors[row], row, deviation) for row, deviation in enumerate(rows)]
        independent = np.concatenate(split)
        bounded: Floats = np.sign(independent) * np.sqrt(_TAIL * np.log1p(independent**2 / _TAIL))
        return bounded

    def jacobian(self, base: Coefficients, values: Floats, directions: Floats, deviations: Deviations) -> Floats:
        """Derivatives of the residuals, shape ``(r, d)``, all from one evaluation.

        Args:
            base: Where the coefficients that are not fitted come from.
            values: Logarithms of the fitted ones, shape ``(c,)``.
            directions: Along which to move them, shape ``(c, d)``.
            deviations: As in :meth:`residuals`.
        """
        n, variants = len(self._x), directions.shape[1] + 1
        moved = values[:, None] + _STEP * np.hstack([directions, np.zeros((len(values), 1))])
        errors = self.errors(with_logarithms(base, np.repeat(moved, n, axis=1)), variants).reshape(3, variants, n)
        rows = np.stack([self.residuals(errors[:, variant], deviations) for variant in range(variants)])
        derivatives: Floats = (rows[:-1] - rows[-1]).T / _STEP
        return derivatives

    def deviations(self, errors: Floats, prior: Calibration) -> Deviations:
        """How far the layouts lie from a fitted model, drawn towards what the prior says."""

        def update(row: int, before: float) -> float:
            far = np.abs(self._means(errors[row], row)[self._counts[row] > 0])
            # A few layouts far off are no reason to distrust all the others.
            squares = np.sum(np.minimum(far, 3 * before) ** 2)
            return float(np.sqrt((_DEVIATION_LAYOUTS * before**2 + squares) / (_DEVIATION_LAYOUTS + len(far))))

        return Deviations(
            update(0, prior.time_deviation), update(1, prior.energy_deviation), update(2, prior.memory_deviation)
        )

    def offsets(self, errors: Floats, deviations: Deviations) -> LayoutOffsets:
        """Each layout's own part of the errors: their mean, drawn to 0 as much as noise may have made it."""
        trust = [
            count * deviation**2 / (count * deviation**2 + NOISE**2)
            for count, deviation in zip(self._counts, (deviations.time, deviations.power), strict=False)
        ]
        time = -self._means(errors[0], 0) * trust[0]
        power = -self._means(errors[1], 1) * trust[1]
        return LayoutOffsets(key=self._keys, time=time, energy=time + power, left=1 - trust[0])

    def _split(self, error: Floats, row: int, deviation: float) -> Floats:
        """A layout's mean error against the model's deviation, and each trial's distance from it against noise."""
        count, mean = self._counts[row], self._means(error, row)
        of_layouts = mean * np.sqrt(count / (count * deviation**2 + NOISE**2))
        of_trials = np.where(self._known[row], error - mean[self._layout], 0.0) / NOISE
        return np.concatenate([of_layouts, of_trials])

    def _means(self, error: Floats, row: int) -> Floats:
        """Mean error of each layout, 0 where it has no value."""
        total = np.bincount(self._layout, error * self._known[row], len(self._keys))
        mean: Floats = total / np.maximum(self._counts[row], 1)
        return mean
