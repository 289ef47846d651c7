"""The prior: step time, energy and memory of any configuration, each with a band, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.bands import BAND, energy_deviation, memory_deviation, time_deviation
from tuner.physics.calibration import DEFAULT, Calibration, layout_keys, log_clock
from tuner.physics.configurations import Configurations, Floats
from tuner.physics.memory import GIB, peak_memory
from tuner.physics.power import running_clock, step_energy
from tuner.physics.step_time import PARTS, StepModel

# Arrays of this length stay in the processor's cache from one operation to the next.
_CHUNK = 8192
# What the driver's context and the buffers of NCCL's communicators take beside the framework's allocator.
_CONTEXT_GIB = 1.5
# Share of a board that the allocator fills before its blocks are too broken to go on: of nanotron's runs on 80 GiB
# hardly any that ran held more than 75.
_USABLE = 0.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted values of n configurations; every array has shape ``(n,)``. Bands are 80 % intervals."""

    step_time_s: Floats
    step_time_low_s: Floats
    step_time_high_s: Floats
    energy_j: Floats
    energy_low_j: Floats
    energy_high_j: Floats
    peak_memory_gib: Floats
    peak_memory_low_gib: Floats
    peak_memory_high_gib: Floats
    fits: NDArray[np.bool_]
    average_power_w: Floats
    achieved_mhz: Floats
    binding_stage: NDArray[np.int64]
    breakdown: dict[str, Floats]


def predict(
    job: TrainingJob, cluster: Cluster, configurations: Configurations, calibration: Calibration = DEFAULT
) -> Prediction:
    """Predict every configuration.

    Args:
        job: The training job.
        cluster: The cluster; the configurations take all of its GPUs.
        configurations: What to predict, n of them, each with at most as many stages as the model has layers.
        calibration: What is known about the cluster.
    """
    pieces = [_predict(job, cluster, chunk, calibration) for chunk in configurations.chunks(_CHUNK)]
    if not pieces:
        return _predict(job, cluster, configurations, calibration)
    if len(pieces) == 1:
        return pieces[0]
    arrays = {
        field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])
        for field in fields(Prediction)
        if field.name != "breakdown"
    }
    breakdown = {part: np.concatenate([piece.breakdown[part] for piece in pieces]) for part in PARTS}
    return Prediction(**arrays, breakdown=breakdown)


def _predict(job: TrainingJob, cluster: Cluster, x: Configurations, calibration: Calibration) -> Prediction:
    c = calibration.coefficients
    model = StepModel(job, cluster, x, c)
    clock = running_clock(model, cluster, x, c)
    step = model.at(clock)
    total_s = step.total_s
    energy = step_energy(step, cluster, c, clock)
    total_j = energy.total_j
    peak = peak_memory(job, x, c)
    own = calibration.offsets.at(layout_keys(job, cluster, x), log_clock(x, cluster))
    time_sd = time_deviation(calibration, step.parts, total_s, own)
    energy_sd = energy_deviation(calibration, energy, total_j, time_sd, own)
    memory_sd = memory_deviation(calibration, peak.activations_share, peak.logits_share)
    own_time = np.exp(own.time)
    step_time_s = total_s * own_time
    energy_j = total_j * np.exp(own.energy)
    memory_gib = peak.bytes / GIB
    return Prediction(
        step_time_s=step_time_s,
        step_time_low_s=step_time_s * np.exp(-BAND * time_sd),
        step_time_high_s=step_time_s * np.exp(BAND * time_sd),
        energy_j=energy_j,
        energy_low_j=energy_j * np.exp(-BAND * energy_sd),
        energy_high_j=energy_j * np.exp(BAND * energy_sd),
        peak_memory_gib=memory_gib,
        peak_memory_low_gib=memory_gib * np.exp(-BAND * memory_sd),
        peak_memory_high_gib=memory_gib * np.exp(BAND * memory_sd),
        fits=memory_gib + _CONTEXT_GIB <= _USABLE * cluster.gpu.memory_gib,
        average_power_w=energy_j / step_time_s / cluster.world_size,
        achieved_mhz=clock,
        binding_stage=peak.stage,
        breakdown={name: values * own_time for name, values in step.parts.items()},
    )
