"""The handful of coefficients that the model does not know from data sheets, each with its prior."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from tuner.physics.configurations import Floats


def _coefficient(default: float, spread: float) -> Any:
    """A coefficient above 0 whose logarithm is normal around the default with this standard deviation."""
    return field(default=default, metadata={"spread": spread})


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """What calibration may change. All are above 0, and are fitted by their logarithm.

    Args:
        overall: Factor on the whole step time: what is wrong with every part alike.
        matrix_efficiency: Share of the peak that a large matrix product reaches at the highest clock.
        attention_efficiency: The same of flash attention.
        elementwise_traffic: Factor on the memory traffic of norms, activations and residuals.
        host_layer_s: Time the host needs to launch one layer's kernels, forward and backward.
        host_collective_s: Time the host adds to a layer where tp is above 1.
        link_efficiency: Share of a link's bandwidth that large collectives reach inside a node.
        network_efficiency: The same between nodes.
        collective_s: Time to start one collective.
        network_hop_s: Latency of one step of a ring between nodes.
        stalled_hop_s: Time that pipeline traffic between nodes holds up one step of a tensor-parallel ring.
        handover_s: Latency of handing one microbatch to a neighbouring stage and its gradient back.
        bucket_bytes: Gradient bytes in one data-parallel collective.
        overlap: Ratio of hidden to exposed time of the data-parallel reduction behind the backward pass.
        step_s: Fixed time of a step: clipping, logging, data loading.
        optimizer_traffic: Bytes moved per parameter in an optimizer step.
        activation_scale: Factor on the activation memory.
        logits_bytes: Bytes held per logit at the peak.
        reserve_gib: Memory that buffers and fragments take in the framework's allocator.
        clock_free: Ratio of the time that does not follow the clock to the time that does, in matrix products at the
            highest clock.
        static_power: Power that does not depend on the clock, as a share of the power limit.
        compute_power: Dynamic power of matrix products at the highest clock, as a share of the power limit.
        memory_power: Dynamic power of memory-bound work, as a share of the power limit.
        wait_power: Dynamic power of communication and waiting at the highest clock, as a share of the limit.
        voltage_knee: Clock up to which the voltage is flat, as a share of the highest.
        voltage_slope: Relative rise of the voltage per relative rise of the clock above the knee.
        cap: Power at which a board lowers its clock, as a share of its limit.
        head_share: How much of the output projection's work the placement of layers on stages takes into account: 1 for
            balanced stages, 0 for stages of equally many layers. Calibration tries both, and nothing between.
    """

    overall: float = _coefficient(1.0, 0.2)
    matrix_efficiency: float = _coefficient(0.709, 0.1)
    attention_efficiency: float = _coefficient(0.197, 0.1)
    elementwise_traffic: float = _coefficient(2.0, 0.1)
    host_layer_s: float = _coefficient(0.00378, 0.1)
    host_collective_s: float = _coefficient(0.000661, 0.1)
    link_efficiency: float = _coefficient(0.847, 0.1)
    network_efficiency: float = _coefficient(0.609, 0.1)
    collective_s: float = _coefficient(3.66e-05, 0.1)
    network_hop_s: float = _coefficient(5.11e-05, 0.1)
    stalled_hop_s: float = _coefficient(0.000345, 0.5)
    handover_s: float = _coefficient(0.00037, 0.5)
    bucket_bytes: float = _coefficient(226000000.0, 0.1)
    overlap: float = _coefficient(0.271, 0.1)
    step_s: float = _coefficient(0.0359, 0.1)
    optimizer_traffic: float = _coefficient(51.5, 0.1)
    activation_scale: float = _coefficient(1.08, 0.15)
    logits_bytes: float = _coefficient(7.0, 0.3)
    reserve_gib: float = _coefficient(0.3, 0.5)
    clock_free: float = _coefficient(0.1, 0.7)
    static_power: float = _coefficient(0.15, 0.3)
    compute_power: float = _coefficient(1.15, 0.2)
    memory_power: float = _coefficient(0.35, 0.4)
    wait_power: float = _coefficient(0.25, 0.4)
    voltage_knee: float = _coefficient(0.75, 0.1)
    voltage_slope: float = _coefficient(0.7, 0.4)
    cap: float = _coefficient(1.0, 0.1)
    head_share: float = 1.0


COEFFICIENTS = tuple(f.name for f in fields(Coefficients) if "spread" in f.metadata)
"""The coefficients that are fitted by their logarithm, in order."""

SPREADS = np.array([f.metadata["spread"] for f in fields(Coefficients) if "spread" in f.metadata])
"""Prior standard deviations of the logarithms, in the same order."""


def logarithms(coefficients: Coefficients) -> Floats:
    """Logarithms of the fitted coefficients, shape ``(c,)``."""
    return np.log([getattr(coefficients, name) for name in COEFFICIENTS])


def with_logarithms(coefficients: Coefficients, values: Floats) -> Coefficients:
    """The coefficients with new values of the fitted ones.

    Args:
        coefficients: Where the rest is taken from.
        values: Logarithms, shape ``(c,)``; or ``(c, n)``, and every coefficient holds one value for each of n
            configurations, which is how many variants are evaluated at once.
    """
    return replace(coefficients, **dict(zip(COEFFICIENTS, np.exp(values), strict=True)))


MEGATRON = Coefficients(
    matrix_efficiency=0.9,
    attention_efficiency=0.852,
    elementwise_traffic=4.68,
    host_layer_s=0.0027,
    host_collective_s=6.79e-05,
    collective_s=6.08e-05,
    handover_s=0.00122,
    step_s=0.00244,
    optimizer_traffic=14.6,
    head_share=0.0,
)
"""Megatron-LM of 2022, without fused or flash attention, as vTrain's A100 tables show it."""

STALLING = replace(Coefficients(), handover_s=0.5)
"""A cluster on which every hand-over of a microbatch between stages waits, as a part of nanotron's table shows it."""

KNOWN = (Coefficients(), MEGATRON, STALLING)
"""Where a calibration starts from, the default first."""
