from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from physics_cases import JOB, changed, cluster_of, configurations

from tuner.errors import InvalidInput
from tuner.layout import Layout
from tuner.physics.calibrate import calibrate
from tuner.physics.calibration import DEFAULT, Calibration
from tuner.physics.coefficients import MEGATRON, SPREADS, Coefficients, logarithms, with_logarithms
from tuner.physics.configurations import Configurations, Floats
from tuner.physics.evidence import Measured
from tuner.physics.predict import predict

CLUSTER = cluster_of()
LAYOUTS = configurations(
    Layout(32, 1, 1, 1), Layout(16, 2, 1, 1), Layout(8, 4, 1, 2), Layout(8, 1, 4, 1), Layout(4, 2, 4, 2)
)
ELSEWHERE = configurations(Layout(16, 1, 2, 1), Layout(4, 8, 1, 4), Layout(4, 4, 2, 2), Layout(2, 4, 4, 8))
# A cluster that the defaults do not describe.
SLOW = Calibration(coefficients=replace(Coefficients(), matrix_efficiency=0.5, static_power=0.25, activation_scale=1.4))


def measured(x: Configurations, truth: Calibration = SLOW, seed: int | None = None) -> Measured:
    """What a cluster of these coefficients would measure, with 1 % noise where there is a seed."""
    prediction, n = predict(JOB, CLUSTER, x, truth), len(x)
    noise = np.ones((2, n)) if seed is None else np.exp(np.random.default_rng(seed).normal(0, 0.01, (2, n)))
    return Measured(
        configurations=x,
        step_time_s=prediction.step_time_s * noise[0],
        energy_j=prediction.energy_j * noise[1],
        peak_memory_gib=prediction.peak_memory_gib.copy(),
        fits=np.ones(n, bool),
    )


def error(values: Floats, truth: Floats) -> float:
    return float(np.median(np.abs(values / truth - 1)))


@pytest.mark.parametrize("trials", [1, 3, 5])
def test_even_one_trial_helps_layouts_that_were_not_measured(trials: int) -> None:
    calibration = calibrate(JOB, CLUSTER, measured(LAYOUTS[np.arange(trials)]))
    truth = predict(JOB, CLUSTER, ELSEWHERE, SLOW)
    before, after = predict(JOB, CLUSTER, ELSEWHERE), predict(JOB, CLUSTER, ELSEWHERE, calibration)
    for name, share_left in (("step_time_s", 0.3), ("energy_j", 0.6), ("peak_memory_gib", 0.9)):
        values = getattr(truth, name)
        assert error(getattr(after, name), values) < share_left * error(getattr(before, name), values)
    width, width_before = (np.log(each.step_time_high_s / each.step_time_low_s).mean() for each in (after, before))
    assert width < width_before


def test_trials_without_energy_leave_the_band_of_power_as_wide_as_it_was() -> None:
    timed = replace(measured(LAYOUTS[np.arange(1)]), energy_j=np.full(1, np.nan))
    calibration = calibrate(JOB, CLUSTER, timed)
    after = predict(JOB, CLUSTER, LAYOUTS[np.arange(1)], calibration)
    assert np.log(after.step_time_high_s / after.step_time_low_s)[0] < 0.2
    assert np.log(after.energy_high_j / after.energy_low_j)[0] > 2 * 1.28 * DEFAULT.energy_deviation


def test_three_clocks_of_a_layout_give_its_whole_curve_on_most_clusters_of_the_prior() -> None:
    clocks = np.array(CLUSTER.gpu.clocks_mhz, float)
    clocks = clocks[clocks >= 900]
    layout, few = configurations(Layout(8, 4, 1, 2)), clocks[[0, len(clocks) // 2, -1]]
    x = replace(layout[np.zeros(len(clocks), np.intp)], frequency_mhz=clocks)
    time_errors, energy_errors, inside = [], [], []
    for seed in range(8):
        moved = np.random.default_rng(seed).normal(0, SPREADS)
        truth = Calibration(coefficients=with_logarithms(Coefficients(), logarithms(Coefficients()) + moved))
        calibration = calibrate(JOB, CLUSTER, measured(replace(layout[[0] * 3], frequency_mhz=few), truth, seed))
        true, curve = predict(JOB, CLUSTER, x, truth), predict(JOB, CLUSTER, x, calibration)
        time_errors.append(error(curve.step_time_s, true.step_time_s))
        energy_errors.append(error(curve.energy_j, true.energy_j))
        inside += [(curve.step_time_low_s <= true.step_time_s) & (true.step_time_s <= curve.step_time_high_s)]
    # Where a power cap sets in between two of the three clocks, they do not tell where.
    assert np.median(time_errors) < 0.01
    assert np.median(energy_errors) < 0.02
    assert max(time_errors) < 0.03
    assert max(energy_errors) < 0.05
    assert np.mean(inside) > 0.6


def test_what_was_measured_is_predicted_as_it_was_measured() -> None:
    odd = measured(LAYOUTS)
    odd.step_time_s[2] *= 1.3
    calibration = calibrate(JOB, CLUSTER, odd)
    after = predict(JOB, CLUSTER, LAYOUTS, calibration)
    assert np.allclose(after.step_time_s, odd.step_time_s, rtol=0.02)
    # One layout's oddity is its own.
    others = predict(JOB, CLUSTER, ELSEWHERE, calibration)
    assert error(others.step_time_s, predict(JOB, CLUSTER, ELSEWHERE, SLOW).step_time_s) < 0.08


def test_a_hung_run_spoils_neither_the_fit_nor_the_bands_of_the_others() -> None:
    hung = measured(LAYOUTS)
    hung.step_time_s[1] *= 40
    sound = calibrate(JOB, CLUSTER, measured(LAYOUTS))
    calibration = calibrate(JOB, CLUSTER, hung)
    truth = predict(JOB, CLUSTER, ELSEWHERE, SLOW).step_time_s
    assert error(predict(JOB, CLUSTER, ELSEWHERE, calibration).step_time_s, truth) < 0.1
    assert calibration.time_deviation < 3 * sound.time_deviation


def test_energy_and_memory_may_be_unknown() -> None:
    unknown = np.full(len(LAYOUTS), np.nan)
    calibration = calibrate(JOB, CLUSTER, replace(measured(LAYOUTS), energy_j=unknown, peak_memory_gib=unknown))
    truth, after = (predict(JOB, CLUSTER, ELSEWHERE, each) for each in (SLOW, calibration))
    assert error(after.step_time_s, truth.step_time_s) < 0.06
    assert np.all(np.isfinite(after.energy_j) & np.isfinite(after.peak_memory_gib))
    assert calibration.coefficients.static_power == pytest.approx(DEFAULT.coefficients.static_power)


def test_trials_that_ran_out_of_memory_alone_are_refused() -> None:
    none = replace(measured(LAYOUTS), fits=np.zeros(len(LAYOUTS), bool))
    with pytest.raises(InvalidInput, match="measured: 5: must hold at least one trial that ran"):
        calibrate(JOB, CLUSTER, none)


def test_a_calibration_goes_on_from_an_earlier_one() -> None:
    first = calibrate(JOB, CLUSTER, measured(LAYOUTS[np.arange(3)]))
    assert (first.trials, first.gpu) == (3, CLUSTER.gpu.name)
    second = calibrate(JOB, CLUSTER, measured(LAYOUTS[np.arange(3, 5)]), first)
    assert second.trials == 5
    truth = predict(JOB, CLUSTER, ELSEWHERE, SLOW).step_time_s
    alone = calibrate(JOB, CLUSTER, measured(LAYOUTS[np.arange(3, 5)]))
    assert error(predict(JOB, CLUSTER, ELSEWHERE, second).step_time_s, truth) < 0.06
    assert np.trace(second.covariance) < min(np.trace(first.covariance), np.trace(alone.covariance))


def test_the_framework_that_explains_the_trials_is_found() -> None:
    megatron = Calibration(coefficients=MEGATRON)
    calibration = calibrate(JOB, CLUSTER, measured(changed(LAYOUTS, recompute=2), megatron))
    assert calibration.coefficients.head_share == MEGATRON.head_share
    x = changed(ELSEWHERE, recompute=2)
    truth, after = (predict(JOB, CLUSTER, x, each).step_time_s for each in (megatron, calibration))
    assert error(after, truth) < 0.03


def test_the_order_of_the_trials_changes_nothing() -> None:
    there, back = (calibrate(JOB, CLUSTER, measured(LAYOUTS[rows])) for rows in (np.arange(5), np.arange(5)[::-1]))
    assert np.allclose(
        predict(JOB, CLUSTER, ELSEWHERE, there).step_time_s, predict(JOB, CLUSTER, ELSEWHERE, back).step_time_s
    )


def test_a_calibration_of_every_sort_of_trial_is_saved_whole() -> None:
    calibration = calibrate(JOB, CLUSTER, measured(LAYOUTS, seed=1))
    read = Calibration.from_document(json.loads(json.dumps(calibration.to_document())))
    ours, theirs = (predict(JOB, CLUSTER, LAYOUTS, each) for each in (calibration, read))
    assert np.array_equal(ours.step_time_s, theirs.step_time_s)
    assert np.array_equal(ours.energy_high_j, theirs.energy_high_j)
