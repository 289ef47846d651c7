"""Power and energy: static power, dynamic power by activity and clock, and what the power cap leaves of the clock.

Dynamic power of logic grows with f V(f)^2; the voltage is flat at low clocks and rises roughly linearly above a knee
(measured per stage of GPT-3 on A100 by Chung et al. 2024, Perseus: flat to about 1080 of 1410 MHz). Power of the memory
does not follow the SM clock. A board that would draw more than its limit lowers its clock until it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster, GpuSpec
from tuner.physics.coefficients import Coefficients
from tuner.physics.configurations import Configurations, Floats
from tuner.physics.step_time import StepModel, StepTime, clock_factor

# Halvings of the clock's range: 2000 MHz / 2**11 is below one step of a clock.
_BISECTIONS = 11
# Share of the bubble that is other stages computing rather than latency.
_CLOCKED_BUBBLE = 0.5


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a step over all GPUs by what draws it, arrays of shape ``(n,)``, in joules.

    Args:
        static_j: Leakage, fans, idle memory: drawn whatever the GPU does.
        compute_j: Dynamic energy of products and attention.
        memory_j: Dynamic energy of memory-bound work.
        waiting_j: Dynamic energy of communication, of waiting for it, and of bubbles: kernels spin.
    """

    static_j: Floats
    compute_j: Floats
    memory_j: Floats
    waiting_j: Floats

    @property
    def total_j(self) -> Floats:
        """Energy of a step."""
        return self.static_j + self.compute_j + self.memory_j + self.waiting_j


def dynamic_factor(frequency_mhz: Floats, gpu: GpuSpec, c: Coefficients) -> Floats:
    """Dynamic power of logic at a clock, relative to that at the highest clock: f V(f)^2."""
    share = frequency_mhz / gpu.max_clock_mhz
    voltage = 1 + c.voltage_slope * np.maximum(share / c.voltage_knee - 1, 0.0)
    highest = 1 + c.voltage_slope * np.maximum(1 / c.voltage_knee - 1, 0.0)
    factor: Floats = share * (voltage / highest) ** 2
    return factor


def step_energy(step: StepTime, cluster: Cluster, c: Coefficients, frequency_mhz: Floats) -> Energy:
    """Energy of a step, bubbles and waiting included.

    Args:
        step: Its time, at the same clock.
        cluster: The cluster.
        c: Coefficients.
        frequency_mhz: SM clock that runs, shape ``(n,)``.
    """
    total = step.total_s
    compute, memory = step.mean_compute_s, step.mean_memory_s
    waiting = np.maximum(total - compute - memory, 0.0)
    logic = dynamic_factor(frequency_mhz, cluster.gpu, c)
    watts = cluster.world_size * cluster.gpu.power_limit_w
    return Energy(
        static_j=watts * c.static_power * total,
        compute_j=watts * c.compute_power * logic * compute,
        memory_j=watts * c.memory_power * memory,
        waiting_j=watts * c.wait_power * logic * waiting,
    )


def running_clock(model: StepModel, cluster: Cluster, x: Configurations, c: Coefficients) -> Floats:
    """The clock that really runs, in MHz, shape ``(n,)``: the one asked for, or what the power cap leaves of it.

    The cap works on a GPU's average power over some tens of milliseconds, and so on the average over a step.

    Args:
        model: The step of every configuration.
        cluster: The cluster.
        x: Configurations.
        c: Coefficients.
    """
    gpu = cluster.gpu
    highest = np.full(len(x), float(gpu.max_clock_mhz))
    step = model.at(highest)
    compute, memory, total = step.mean_compute_s, step.mean_memory_s, step.total_s
    # An inner stage's share of the bubble computes as the slowest stage does.
    clocked = step.parts["compute_s"] + _CLOCKED_BUBBLE * step.parts["bubble_s"]

    def within_cap(clock: Floats) -> NDArray[np.bool_]:
        slower = clock_factor(clock, cluster, c)
        longer, busy = total + clocked * (slower - 1), compute * slower
        waiting = np.maximum(longer - busy - memory, 0.0)
        logic = (c.compute_power * busy + c.wait_power * waiting) * dynamic_factor(clock, gpu, c)
        within: NDArray[np.bool_] = c.static_power + (logic + c.memory_power * memory) / longer <= c.cap
        return within

    capped = ~within_cap(highest)
    low, high = np.full(len(x), float(gpu.min_clock_mhz)), highest
    for _ in range(_BISECTIONS if capped.any() else 0):
        middle = (low + high) / 2
        within = within_cap(middle)
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    return np.minimum(x.frequency_mhz, np.where(capped, low, highest))
