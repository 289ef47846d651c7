from __future__ import annotations

import numpy as np
import pytest

from tuner.hardware import Cluster
from workers.simulator import power


def test_voltage_is_flat_up_to_a_knee_near_two_thirds_of_the_clock_and_rises_above_it() -> None:
    clocks = np.array([0.3, 0.5, 0.65, 0.8, 0.9, 1.0])
    volts = power.relative_voltage(clocks)
    assert volts[0] == volts[1] == volts[2]
    assert np.all(np.diff(volts[2:]) > 0)
    assert volts[-1] == pytest.approx(1)


def test_a_large_product_would_pass_the_power_limit_at_the_highest_clock(cluster: Cluster) -> None:
    one = np.array([1.0])
    watts = power.standing_w(cluster.gpu, one, np.array([65.0])) + power.switching_w(cluster.gpu, power.MATRIX, one)
    assert watts[0] > 1.2 * cluster.gpu.power_limit_w


def test_a_waiting_board_draws_well_above_idle_and_well_below_a_working_one(cluster: Cluster) -> None:
    one, warm = np.array([1.0]), np.array([60.0])
    waiting, working = (
        (power.standing_w(cluster.gpu, one, warm) + power.switching_w(cluster.gpu, phase, one))[0]
        for phase in (power.WAITING, power.MATRIX)
    )
    assert 2 * cluster.gpu.idle_power_w < waiting < 0.5 * working


@pytest.mark.parametrize("phase", [power.MATRIX, power.ATTENTION, power.STREAMING, power.COMMUNICATION])
def test_switching_power_grows_with_the_clock(cluster: Cluster, phase: power.Activity) -> None:
    assert np.all(np.diff(power.switching_w(cluster.gpu, phase, np.linspace(0.2, 1.0, 30))) > 0)


def test_leakage_grows_by_about_one_percent_a_kelvin(cluster: Cluster) -> None:
    cool, warm = power.standing_w(cluster.gpu, np.array([1.0]), np.array([60.0, 61.0])) - cluster.gpu.idle_power_w
    assert warm / cool == pytest.approx(1.01, abs=0.005)
