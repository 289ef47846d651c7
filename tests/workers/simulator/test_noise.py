from __future__ import annotations

from statistics import mean

import numpy as np
import pytest

from tuner.trial import MeasurementPlan
from workers.simulator.noise import Window, draw_window
from workers.simulator.quirks import generator

PLAN = MeasurementPlan()


def window(seed: int, plan: MeasurementPlan = PLAN, nodes: int = 2, step_time_s: float = 0.5) -> Window:
    return draw_window(
        generator(seed, "test"),
        plan,
        step_time_s=step_time_s,
        energy_j=5000.0,
        relative_noise=0.01,
        boards=8 * nodes,
        nodes=nodes,
    )


@pytest.mark.parametrize(("window_s", "min_steps", "step_time_s"), [(10.0, 5, 0.5), (10.0, 5, 20.0), (0.1, 1, 3.0)])
def test_a_window_is_as_long_as_planned_and_has_whole_steps(
    window_s: float, min_steps: int, step_time_s: float
) -> None:
    plan = MeasurementPlan(window_s=window_s, min_steps=min_steps)
    for seed in range(50):
        drawn = window(seed, plan, step_time_s=step_time_s)
        assert drawn.window_s >= window_s
        assert drawn.steps >= max(min_steps, 2)
        assert drawn.window_s == pytest.approx(drawn.steps * drawn.step_time_s)
        assert drawn.step_time_sem_s > 0


def test_a_window_stops_with_the_step_that_fills_it() -> None:
    drawn = window(0, MeasurementPlan(window_s=10.0, min_steps=2))
    assert drawn.window_s < 10.0 + 2 * drawn.step_time_s


def test_the_noise_has_mean_zero_and_the_standard_error_says_how_large_it_is() -> None:
    drawn = [window(seed) for seed in range(400)]
    for value, error, truth in (("step_time_s", "step_time_sem_s", 0.5), ("energy_j", "energy_sem_j", 5000.0)):
        values = np.array([getattr(each, value) for each in drawn])
        assert abs(values.mean() - truth) < 4 * values.std() / 20
        claimed = np.sqrt(mean(getattr(each, error) ** 2 for each in drawn))
        assert values.std() == pytest.approx(claimed, rel=0.25)


def test_several_nodes_have_the_heavier_tail() -> None:
    plan = MeasurementPlan(window_s=300.0)
    one, two = (mean(window(seed, plan, nodes).step_time_sem_s for seed in range(20)) for nodes in (1, 2))
    assert two > 1.15 * one


def test_energy_is_correlated_with_time() -> None:
    drawn = [window(seed) for seed in range(200)]
    correlation = np.corrcoef([d.step_time_s for d in drawn], [d.energy_j for d in drawn])[0, 1]
    assert 0.5 < correlation < 0.999
