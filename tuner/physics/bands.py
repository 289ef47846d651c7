"""How sure a prediction is: the calibration's uncertainty, carried to step time, energy and memory to first order.

A part of the step time scales with a few coefficients, each with a known exponent. So the variance of a logarithm is a
quadratic form in the parts' shares, and bands for a million configurations cost one small matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.physics.calibration import Calibration, OwnError
from tuner.physics.coefficients import COEFFICIENTS
from tuner.physics.configurations import Floats
from tuner.physics.power import Energy

# Half-width of an 80 % interval of the normal distribution, in standard deviations.
BAND = 1.2816

_TIME_EXPONENTS: Mapping[str, Mapping[str, float]] = {
    "compute_s": {"matrix_efficiency": -0.9, "attention_efficiency": -0.1},
    "memory_s": {"elementwise_traffic": 1.0},
    "host_s": {"host_layer_s": 0.6, "host_collective_s": 0.2, "stalled_hop_s": 0.4},
    "tp_s": {"link_efficiency": -0.5, "network_efficiency": -0.3, "collective_s": 0.2, "network_hop_s": 0.3},
    "pp_s": {"handover_s": 0.7, "network_efficiency": -0.3},
    "bubble_s": {"matrix_efficiency": -0.6, "elementwise_traffic": 0.2, "host_layer_s": 0.2, "handover_s": 0.2},
    "zero_s": {"network_efficiency": -0.6, "link_efficiency": -0.4, "network_hop_s": 0.2},
    "dp_s": {"network_efficiency": -0.6, "link_efficiency": -0.2, "network_hop_s": 0.3, "bucket_bytes": -0.3},
    "optimizer_s": {"optimizer_traffic": 1.0},
    "other_s": {"step_s": 1.0},
}
_ENERGY_EXPONENTS: Mapping[str, Mapping[str, float]] = {
    "static_j": {"static_power": 1.0},
    "compute_j": {"compute_power": 1.0, "matrix_efficiency": -0.9, "voltage_slope": 0.2, "voltage_knee": -0.5},
    "memory_j": {"memory_power": 1.0, "elementwise_traffic": 0.5},
    "waiting_j": {"wait_power": 1.0},
}


def time_deviation(calibration: Calibration, parts: Mapping[str, Floats], total_s: Floats, own: OwnError) -> Floats:
    """Standard deviation of the step time's logarithm, shape ``(n,)``.

    Args:
        calibration: What is known.
        parts: Parts of the step time.
        total_s: Their sum.
        own: What is left for layouts that were measured.
    """
    shares = {name: values / total_s for name, values in parts.items()}
    variance = _variance(calibration, _TIME_EXPONENTS, shares, ("overall",))
    return np.sqrt((variance + calibration.time_deviation**2) * own.time_left + own.time_slope_variance)


def energy_deviation(calibration: Calibration, energy: Energy, total_j: Floats, time: Floats, own: OwnError) -> Floats:
    """Standard deviation of the energy's logarithm, shape ``(n,)``: that of the time and that of the power together."""
    shares = {name: getattr(energy, name) / total_j for name in _ENERGY_EXPONENTS}
    variance = _variance(calibration, _ENERGY_EXPONENTS, shares, ())
    power = (variance + calibration.energy_deviation**2) * own.power_left + own.power_slope_variance
    return np.sqrt(power + time**2)


def memory_deviation(calibration: Calibration, activations: Floats, logits: Floats) -> Floats:
    """Standard deviation of the peak memory's logarithm, from the shares of activations and logits, shape ``(n,)``."""
    exponents = {"activations": {"activation_scale": 1.0}, "logits": {"logits_bytes": 1.0}}
    variance = _variance(calibration, exponents, {"activations": activations, "logits": logits}, ())
    return np.sqrt(variance + calibration.memory_deviation**2)


def _variance(
    calibration: Calibration,
    exponents: Mapping[str, Mapping[str, float]],
    shares: Mapping[str, Floats],
    of_all: tuple[str, ...],
) -> Floats:
    gradient = np.zeros((len(shares), len(COEFFICIENTS)))
    for row, name in enumerate(shares):
        for coefficient, exponent in exponents[name].items():
            gradient[row, COEFFICIENTS.index(coefficient)] = exponent
        for coefficient in of_all:
            gradient[row, COEFFICIENTS.index(coefficient)] = 1.0
    between = gradient @ calibration.covariance @ gradient.T
    stacked = np.stack(list(shares.values()))
    variance: Floats = np.maximum(np.sum(stacked * (between @ stacked), axis=0), 0.0)
    return variance
