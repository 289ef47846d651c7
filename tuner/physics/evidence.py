"""What measured trials say about a model: its errors, split into what layouts share and what is noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.calibration import SLOPE_DEVIATION, Calibration, LayoutOffsets, layout_keys, log_clock
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
# Share of a slope's variance that no number of clocks takes away: a curve also bends, most where a power cap sets in.
_BEND = 0.15
# Rows of the errors.
_TIME, _POWER, _MEMORY = range(3)


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
        self._counts = [self._sums(known.astype(np.float64)) for known in self._known]
        self._clock = log_clock(self._x, cluster)

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
            update(_TIME, prior.time_deviation),
            update(_POWER, prior.energy_deviation),
            update(_MEMORY, prior.memory_deviation),
        )

    def offsets(self, errors: Floats, deviations: Deviations) -> LayoutOffsets:
        """Each layout's own part of the errors: mean and slope, drawn to 0 as much as noise may have made them."""
        means, slopes, shares, slope_shares = [], [], [], []
        for row, deviation in ((_TIME, deviations.time), (_POWER, deviations.power)):
            mean, slope, _ = self._decompose(errors[row], row)
            shares.append(_trust(self._counts[row], deviation))
            slope_shares.append(_trust(self._clock_spread(row), SLOPE_DEVIATION))
            means.append(-mean * shares[-1])
            slopes.append(-slope * slope_shares[-1])
        clock, clock_of_power = (self._means(self._clock, row) for row in (_TIME, _POWER))
        power = means[_POWER] + slopes[_POWER] * (clock - clock_of_power)
        return LayoutOffsets(
            key=self._keys,
            clock=clock,
            time=means[_TIME],
            energy=means[_TIME] + power,
            time_slope=slopes[_TIME],
            energy_slope=slopes[_TIME] + slopes[_POWER],
            time_left=1 - shares[_TIME],
            power_left=1 - shares[_POWER],
            time_slope_left=np.maximum(1 - slope_shares[_TIME], _BEND),
            power_slope_left=np.maximum(1 - slope_shares[_POWER], _BEND),
        )

    def _split(self, error: Floats, row: int, deviation: float) -> Floats:
        """A layout's mean error and slope against what the model may be off, each trial's distance against noise."""
        mean, slope, rest = self._decompose(error, row)
        count, spread = self._counts[row], self._clock_spread(row)
        of_layouts = mean * np.sqrt(count / (count * deviation**2 + NOISE**2))
        of_slopes = slope * np.sqrt(spread / (spread * SLOPE_DEVIATION**2 + NOISE**2))
        return np.concatenate([of_layouts, of_slopes, rest / NOISE])

    def _decompose(self, error: Floats, row: int) -> tuple[Floats, Floats, Floats]:
        """Each layout's mean error, its slope against the clock's logarithm, and what both leave of each trial's."""
        known, mean = self._known[row], self._means(error, row)
        away, spread = self._away(row), self._clock_spread(row)
        drift = self._sums(away * error)
        slope: Floats = np.where(spread > 0, drift / np.where(spread > 0, spread, 1.0), 0.0)
        rest = np.where(known, error - mean[self._layout] - slope[self._layout] * away, 0.0)
        return mean, slope, rest

    def _away(self, row: int) -> Floats:
        """Each trial's distance from its layout's mean clock, 0 where it has no value."""
        return np.where(self._known[row], self._clock - self._means(self._clock, row)[self._layout], 0.0)

    def _clock_spread(self, row: int) -> Floats:
        """Sum of the squares of these distances for each layout."""
        return self._sums(self._away(row) ** 2)

    def _means(self, values: Floats, row: int) -> Floats:
        """Mean of each layout's values, 0 where it has none."""
        mean: Floats = self._sums(values * self._known[row]) / np.maximum(self._counts[row], 1)
        return mean

    def _sums(self, values: Floats) -> Floats:
        """Sum of each layout's values, shape ``(layouts,)``."""
        return np.bincount(self._layout, values, len(self._keys)).astype(np.float64)


def _trust(weight: Floats, deviation: float) -> Floats:
    """Share of a mean or slope that is no noise."""
    signal = weight * deviation**2
    return signal / (signal + NOISE**2)
