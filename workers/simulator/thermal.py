"""Temperature of a board: first order, towards what its power sets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import GpuSpec

INLET_C = 27.0
COLD_C = 36.0  # A board that idled before the launch.
STEADY_BAND_K = 1.5
_RISE_K = (
    41.0  # Above the inlet at the power limit: H100 SXM boards in air-cooled servers report 60 to 70 C under load.
)
_TIME_CONSTANT_S = 11.0


def steady_temperature_c(
    gpu: GpuSpec, power_w: NDArray[np.float64], ambient_k: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Temperature that a board reaches at a constant power. Cooling always suffices: heat never holds a clock down."""
    return INLET_C + ambient_k + _RISE_K * power_w / gpu.power_limit_w


def settling_s(start_c: float, steady_c: float) -> float:
    """Seconds until the temperature is within the band around its steady value."""
    distance = abs(start_c - steady_c)
    return _TIME_CONSTANT_S * math.log(distance / STEADY_BAND_K) if distance > STEADY_BAND_K else 0.0


def temperature_after_c(start_c: float, steady_c: float, elapsed_s: float) -> float:
    """Temperature after ``elapsed_s`` of constant power."""
    return steady_c + (start_c - steady_c) * math.exp(-elapsed_s / _TIME_CONSTANT_S)
