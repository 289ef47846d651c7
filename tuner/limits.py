"""What a study does not want, however good it looks."""

from __future__ import annotations

from tuner.spec import LimitsSection
from tuner.trial import Measurement


def limit_excess(measurement: Measurement, limits: LimitsSection, baseline: Measurement | None) -> float:
    """By which share a measurement passes the limits of its study; 0 where it keeps them.

    Args:
        measurement: The measurement judged.
        limits: The study's limits.
        baseline: The baseline's measurement; without one the slowdown has nothing to refer to and does not limit.
    """
    excess = 0.0
    if limits.average_power_w is not None and measurement.average_power_w is not None:
        excess = max(excess, measurement.average_power_w / limits.average_power_w - 1)
    if limits.slowdown is not None and baseline is not None:
        excess = max(excess, measurement.step_time_s / (baseline.step_time_s * (1 + limits.slowdown)) - 1)
    return excess
