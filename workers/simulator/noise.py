"""What a measured window makes of the truth: noisy steps, and an energy counter of limited resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.trial import MeasurementPlan

_COUNTER_PERIOD_S = 0.1  # Boards refresh their energy counter every 20 to 100 ms (Yang, Adamek and Armour 2024).
_ENERGY_FOLLOWS_TIME = 0.7  # A late step burns waiting power, which is less than working power.
_ENERGY_NOISE = 0.003
_HICCUP_SIZE = 0.07


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A measured window.

    Args:
        steps: Whole optimizer steps.
        window_s: Seconds they took.
        step_time_s: Mean of a step.
        step_time_sem_s: Standard error of that mean.
        energy_j: Mean energy of a step.
        energy_sem_j: Standard error of that, counter resolution included.
    """

    steps: int
    window_s: float
    step_time_s: float
    step_time_sem_s: float
    energy_j: float
    energy_sem_j: float


def draw_window(
    draws: np.random.Generator,
    plan: MeasurementPlan,
    *,
    step_time_s: float,
    energy_j: float,
    relative_noise: float,
    boards: int,
    nodes: int,
) -> Window:
    """Draw the steps of a window that is at least as long and has at least as many steps as the plan says.

    The noise has mean zero, so that the truth is what endless measuring would converge to. Steps over several nodes
    now and then hit a hiccup of the network.

    Args:
        draws: Generator of this measurement alone.
        plan: Length of the window.
        step_time_s: True time of a step.
        energy_j: True energy of a step over all boards.
        relative_noise: Relative standard deviation of a step.
        boards: Boards of the launch.
        nodes: Nodes of the launch.
    """
    # Two steps at least, or there is no standard error; spare ones in case the drawn steps are fast.
    least = max(plan.min_steps, 2)
    drawn = max(least, math.ceil(1.1 * plan.window_s / step_time_s)) + 16
    deviation = _deviations(draws, drawn, relative_noise, nodes)
    times = step_time_s * (1 + deviation)
    steps = max(least, int(np.searchsorted(np.cumsum(times), plan.window_s)) + 1)
    times = times[:steps]
    joules = energy_j * (1 + _ENERGY_FOLLOWS_TIME * deviation[:steps])
    joules = joules * (1 + _ENERGY_NOISE * draws.standard_normal(drawn)[:steps])
    # Both ends of the window fall somewhere in a refresh period, on every board by itself.
    edge_j = energy_j / step_time_s / boards * _COUNTER_PERIOD_S * math.sqrt(2 * boards / 12) / steps
    root = math.sqrt(steps)
    return Window(
        steps=steps,
        window_s=float(times.sum()),
        step_time_s=float(times.mean()),
        step_time_sem_s=float(times.std(ddof=1)) / root,
        energy_j=float(joules.mean() + edge_j * draws.standard_normal()),
        energy_sem_j=math.hypot(float(joules.std(ddof=1)) / root, edge_j),
    )


def _deviations(draws: np.random.Generator, count: int, relative_noise: float, nodes: int) -> NDArray[np.float64]:
    """Relative deviations of ``count`` steps, of mean zero."""
    usual = relative_noise * draws.standard_normal(count).clip(-4, 4)
    chance = 0.02 if nodes > 1 else 0.003
    hiccups = (draws.random(count) < chance) * draws.exponential(_HICCUP_SIZE, count)
    deviations: NDArray[np.float64] = usual + hiccups - chance * _HICCUP_SIZE
    return deviations
