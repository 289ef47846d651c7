"""How well predicted values agree with measured ones, for one group of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau  # type: ignore[import-untyped]

from benchmarks.groups import Group
from tuner.physics.calibrate import calibrate
from tuner.physics.configurations import Floats
from tuner.physics.evidence import Measured
from tuner.physics.predict import Prediction, predict

SEED = 7
CALIBRATION_TRIALS = (1, 3, 5)
# Fewer rows have no order worth speaking of.
LEAST_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """How a calibrated model did on rows that it was not calibrated on, all draws together.

    Args:
        errors: Relative errors of step time, shape ``(rows,)``.
        in_band: Whether the measured step time lies in the predicted 80 % band, shape ``(rows,)``.
    """

    errors: Floats
    in_band: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one group shows. Errors are relative, and absolute in sign.

    Args:
        group: The group. prediction: Of its measured configurations, without any calibration. tau: Kendall's tau of
        step time; nan under ``LEAST_ROWS`` rows. regret: By how much the layout predicted to be fastest is slower than
        the fastest; nan under ``LEAST_ROWS`` rows. errors: Of step time without calibration, shape ``(n,)``. in_band:
        Whether the measured step time lies in the predicted band, shape ``(n,)``. calibrated: By the number of trials
        calibrated on. memory_errors: Of peak memory where it was measured.
    """

    group: Group
    prediction: Prediction
    tau: float
    regret: float
    errors: Floats
    in_band: NDArray[np.bool_]
    calibrated: dict[int, Calibrated]
    memory_errors: Floats


def score(group: Group, draws: int) -> Score:
    """Score one group.

    Args:
        group: At least one measured configuration.
        draws: How often the trials to calibrate on are drawn anew; 0 to leave calibration out.
    """
    measured = group.measured
    prediction = predict(group.job, group.cluster, measured.configurations)
    enough = len(group) >= LEAST_ROWS
    memory_errors = relative_errors(measured.peak_memory_gib, prediction.peak_memory_gib)
    return Score(
        group=group,
        prediction=prediction,
        tau=kendalls_tau(measured.step_time_s, prediction.step_time_s) if enough else np.nan,
        regret=regret(measured.step_time_s, prediction.step_time_s) if enough else np.nan,
        errors=relative_errors(measured.step_time_s, prediction.step_time_s),
        in_band=_in_band(measured, prediction),
        calibrated={trials: _calibrated(group, trials, draws) for trials in CALIBRATION_TRIALS},
        memory_errors=memory_errors[np.isfinite(memory_errors)],
    )


def kendalls_tau(measured: Floats, predicted: Floats) -> float:
    """Kendall's tau-b of two orders: 1 for the same, 0 for none, -1 for the reverse."""
    return float(kendalltau(measured, predicted).statistic)


def regret(measured: Floats, predicted: Floats) -> float:
    """Relative loss of taking the one predicted to be smallest, against the one measured to be smallest."""
    return float(measured[np.argmin(predicted)] / measured.min() - 1)


def relative_errors(measured: Floats, predicted: Floats) -> Floats:
    """Absolute error over the measured value, one each."""
    return np.abs(predicted / measured - 1)


def select(measured: Measured, rows: NDArray[np.intp]) -> Measured:
    """Some of the trials."""
    return Measured(**{field.name: getattr(measured, field.name)[rows] for field in fields(Measured)})


def _calibrated(group: Group, trials: int, draws: int) -> Calibrated:
    scores = []
    if len(group) >= max(LEAST_ROWS, trials + 1):
        for draw in range(draws):
            # The same seed for every number of trials: 3 trials are the 1 trial and two more.
            order = np.random.default_rng([SEED, draw]).permutation(len(group))
            scores.append(_after(group, order[:trials], np.sort(order[trials:])))
    return Calibrated(
        errors=np.concatenate([errors for errors, _ in scores] or [np.zeros(0)]),
        in_band=np.concatenate([in_band for _, in_band in scores] or [np.zeros(0, bool)]),
    )


def _after(group: Group, known: NDArray[np.intp], rest: NDArray[np.intp]) -> tuple[Floats, NDArray[np.bool_]]:
    calibration = calibrate(group.job, group.cluster, select(group.measured, known))
    judged = select(group.measured, rest)
    prediction = predict(group.job, group.cluster, judged.configurations, calibration)
    return relative_errors(judged.step_time_s, prediction.step_time_s), _in_band(judged, prediction)


def _in_band(measured: Measured, prediction: Prediction) -> NDArray[np.bool_]:
    return (prediction.step_time_low_s <= measured.step_time_s) & (measured.step_time_s <= prediction.step_time_high_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockScore:
    """Relative errors against the clock, after calibrating on the first, the middle and the last clock.

    Args:
        group: Trials that differ in their clock alone.
        time_errors: Of step time at the other clocks.
        energy_errors: Of energy at the other clocks.
    """

    group: Group
    time_errors: Floats
    energy_errors: Floats


def score_clocks(group: Group) -> ClockScore:
    """Score a group whose only axis is the clock."""
    order = np.argsort(group.measured.configurations.frequency_mhz)
    known = order[[0, len(order) // 2, -1]]
    judged = select(group.measured, np.setdiff1d(order, known))
    calibration = calibrate(group.job, group.cluster, select(group.measured, known))
    prediction = predict(group.job, group.cluster, judged.configurations, calibration)
    return ClockScore(
        group=group,
        time_errors=relative_errors(judged.step_time_s, prediction.step_time_s),
        energy_errors=relative_errors(judged.energy_j, prediction.energy_j),
    )


def pooled(arrays: Sequence[Floats]) -> Floats:
    """All values together, so that every row counts once."""
    return np.concatenate(arrays) if arrays else np.zeros(0)
