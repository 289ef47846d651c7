from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.groups import Trial as Row
from benchmarks.groups import measured_of
from benchmarks.scores import kendalls_tau, regret, relative_errors, score, score_clocks, select
from tuner.physics.predict import predict


def test_tau_counts_pairs_in_the_same_order_less_pairs_in_the_other() -> None:
    measured = np.array([1.0, 2.0, 3.0, 4.0])
    assert kendalls_tau(measured, measured**2) == pytest.approx(1)
    assert kendalls_tau(measured, -measured) == pytest.approx(-1)
    # One of six pairs is the other way round: (5 - 1) / 6.
    assert kendalls_tau(measured, np.array([1.0, 2.0, 4.0, 3.0])) == pytest.approx(2 / 3)


def test_regret_is_what_the_predicted_best_loses_against_the_measured_best() -> None:
    measured = np.array([3.0, 2.0, 2.5])
    assert regret(measured, np.array([9.0, 8.0, 7.0])) == pytest.approx(0.25)
    assert regret(measured, np.array([9.0, 1.0, 7.0])) == 0


def test_errors_are_relative_to_what_was_measured() -> None:
    np.testing.assert_allclose(relative_errors(np.array([2.0, 4.0]), np.array([3.0, 3.0])), [0.5, 0.25])


def test_a_group_that_runs_as_predicted_has_no_error(make_group) -> None:
    each = score(make_group(), draws=0)
    assert each.tau == pytest.approx(1)
    assert each.regret == 0
    np.testing.assert_allclose(each.errors, 0)
    np.testing.assert_allclose(each.memory_errors, 0)
    assert each.in_band.all()
    assert len(each.calibrated[3].errors) == 0


def test_a_cluster_that_is_slower_alike_is_known_after_three_trials(make_group) -> None:
    each = score(make_group(slower=1.6), draws=2)
    assert each.tau == pytest.approx(1)
    np.testing.assert_allclose(each.errors, 1 - 1 / 1.6)
    assert np.median(each.calibrated[3].errors) < np.median(each.errors) / 2


def test_calibration_is_judged_on_the_other_rows_alone(make_group) -> None:
    group = make_group()
    each = score(group, draws=2)
    for trials, calibrated in each.calibrated.items():
        assert len(calibrated.errors) == len(calibrated.in_band) == 2 * (len(group) - trials)


def test_a_group_of_few_rows_has_errors_but_no_order(make_group) -> None:
    each = score(make_group(((16, 1, 1, 1), (8, 2, 1, 1))), draws=1)
    assert len(each.errors) == 2
    assert np.isnan(each.tau)
    assert np.isnan(each.regret)
    assert len(each.calibrated[1].errors) == 0


def test_rows_are_selected_in_order(make_group) -> None:
    measured = make_group().measured
    some = select(measured, np.array([3, 1]))
    np.testing.assert_array_equal(some.step_time_s, measured.step_time_s[[3, 1]])
    np.testing.assert_array_equal(some.configurations.dp, measured.configurations.dp[[3, 1]])


def test_clocks_are_judged_away_from_the_first_the_middle_and_the_last(make_group) -> None:
    group = make_group()
    clocks = np.linspace(900, 1410, 9)
    measured = measured_of([Row(2, 8, 1, 4, clock, 1, 0, 1.0, 1.0, 1.0) for clock in clocks])
    predicted = predict(group.job, group.cluster, measured.configurations)
    measured = replace(measured, step_time_s=predicted.step_time_s * 1.2, energy_j=predicted.energy_j * 1.2)
    each = score_clocks(replace(group, measured=measured))
    assert len(each.time_errors) == len(each.energy_errors) == 6
    assert each.time_errors.max() < 0.02
    assert each.energy_errors.max() < 0.02
