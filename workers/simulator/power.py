"""Power of one board: static and leakage, core by clock and voltage, memory, links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import GpuSpec

Array = NDArray[np.float64]

_KNEE = 0.68  # Clock, relative to the highest, up to which the voltage stays at its floor.
_FLOOR = 0.78  # Voltage there, relative to the highest.
_CORE, _MEMORY, _LINK, _LEAKAGE = 1.35, 0.15, 0.04, 0.06  # Relative to the power limit.
_LEAKAGE_PER_K, _LEAKAGE_AT_C = 0.011, 60.0


@dataclass(frozen=True, slots=True)
class Activity:
    """How hard a phase drives a board; each between 0 and 1.

    Args:
        core: Switching in the SMs.
        memory: Device memory bandwidth in use.
        link: Link bandwidth in use.
    """

    core: float
    memory: float
    link: float


MATRIX = Activity(1.0, 0.30, 0.0)
ATTENTION = Activity(0.80, 0.15, 0.0)
STREAMING = Activity(0.35, 0.95, 0.0)
COMMUNICATION = Activity(0.17, 0.25, 1.0)
# NCCL and the pipeline wait in kernels that spin, so a waiting board stays far above idle.
WAITING = Activity(0.12, 0.03, 0.05)


def relative_voltage(relative_clock: Array | float) -> Array:
    """Voltage over clock, both relative to their highest.

    Flat up to a knee near two thirds of the highest clock, then linear, as measured on NVIDIA GPUs by Mei et al. 2017
    ("A survey and measurement study of GPU DVFS on energy conservation") and Price et al. 2016; the numbers are chosen.
    """
    above = np.maximum(np.asarray(relative_clock, dtype=np.float64) - _KNEE, 0.0) / (1 - _KNEE)
    return _FLOOR + (1 - _FLOOR) * above


def standing_w(gpu: GpuSpec, relative_clock: Array, temperature_c: Array) -> Array:
    """Watts of a typical board at work that no activity changes: idle power, and leakage by voltage and temperature.

    Leakage grows with temperature by about 1 % a kelvin.
    """
    heat = np.exp(_LEAKAGE_PER_K * (temperature_c - _LEAKAGE_AT_C))
    return gpu.idle_power_w + gpu.power_limit_w * _LEAKAGE * relative_voltage(relative_clock) ** 2 * heat


def switching_w(gpu: GpuSpec, activity: Activity, relative_clock: Array, core_scale: Array | float = 1.0) -> Array:
    """Watts of a typical board on top of :func:`standing_w`: the core by ``f V(f)^2``, memory, links.

    At the highest clock a large matrix product would pass the power limit by half: that is why boards run it at a
    lower clock than they advertise.

    Args:
        gpu: The GPU.
        activity: How hard the phase drives it.
        relative_clock: Clock over the highest clock.
        core_scale: Factor on the core's activity.
    """
    core = _CORE * activity.core * core_scale * relative_clock * relative_voltage(relative_clock) ** 2
    return gpu.power_limit_w * (core + _MEMORY * activity.memory + _LINK * activity.link)


def link_w(gpu: GpuSpec) -> float:
    """Watts of the links while they carry what kernels hide."""
    return gpu.power_limit_w * _LINK
