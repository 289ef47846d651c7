from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from physics_cases import JOB, Case, cases, cluster_of, configurations

from tuner.layout import Layout
from tuner.physics.coefficients import Coefficients
from tuner.physics.power import dynamic_factor, running_clock, step_energy
from tuner.physics.predict import predict
from tuner.physics.step_time import StepModel

CLUSTER, C = cluster_of(), Coefficients()
GPU = CLUSTER.gpu
CLOCKS = np.array(sorted(GPU.clocks_mhz), float)


def test_dynamic_power_grows_with_the_clock_below_the_knee_and_faster_above_it() -> None:
    factor = dynamic_factor(CLOCKS, GPU, C)
    assert factor[-1] == pytest.approx(1.0)
    below = C.voltage_knee * GPU.max_clock_mhz > CLOCKS
    np.testing.assert_allclose(factor[below] / CLOCKS[below], factor[0] / CLOCKS[0])
    assert np.all(np.diff(factor[~below] / CLOCKS[~below]) > 0)


def test_energy_falls_with_the_clock_down_to_a_best_one_and_rises_again() -> None:
    x = configurations(*[Layout(32, 1, 1, 1)] * len(CLOCKS))
    energy_j = predict(JOB, CLUSTER, replace(x, frequency_mhz=CLOCKS)).energy_j
    best = int(np.argmin(energy_j))
    assert 0 < best < len(CLOCKS) - 1
    assert np.all(np.diff(energy_j)[:best] < 0)
    assert 0.4 < CLOCKS[best] / GPU.max_clock_mhz < 0.8
    assert energy_j[best] < 0.9 * energy_j[-1]


def test_where_the_cap_binds_the_clock_that_runs_is_lower_and_power_is_at_the_limit() -> None:
    x = configurations(Layout(32, 1, 1, 2))
    # A product that never stops draws more than an H100 may: published runs of dense products sit near 1.4 GHz.
    hungry = replace(C, compute_power=2.0)
    model = StepModel(JOB, CLUSTER, x, hungry)
    clock = running_clock(model, CLUSTER, x, hungry)
    assert 1000 < clock[0] < 1900
    step = model.at(clock)
    power = step_energy(step, CLUSTER, hungry, clock).total_j / step.total_s / CLUSTER.world_size
    assert power[0] == pytest.approx(GPU.power_limit_w, rel=0.05)
    lower = replace(x, frequency_mhz=np.array([900.0]))
    assert running_clock(model, CLUSTER, lower, hungry)[0] == 900.0


def test_waiting_and_bubbles_draw_power_too() -> None:
    x = configurations(Layout(1, 8, 4, 1))
    few = replace(JOB, global_batch_size=4)
    model = StepModel(few, CLUSTER, x, C)
    clock = np.array([1980.0])
    step = model.at(clock)
    energy = step_energy(step, CLUSTER, C, clock)
    idle = step.total_s - step.mean_compute_s - step.mean_memory_s
    assert energy.waiting_j[0] == pytest.approx(32 * GPU.power_limit_w * C.wait_power * idle[0])
    assert energy.total_j[0] == pytest.approx(
        energy.static_j[0] + energy.compute_j[0] + energy.memory_j[0] + energy.waiting_j[0]
    )


@settings(max_examples=100, deadline=None)
@given(cases())
def test_no_gpu_draws_less_than_its_static_power_nor_much_more_than_its_limit(case: Case) -> None:
    power_w = predict(case.job, case.cluster, case.x).average_power_w[0]
    limit_w = case.cluster.gpu.power_limit_w
    assert C.static_power * limit_w * 0.999 < power_w < 1.6 * limit_w
