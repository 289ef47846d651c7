"""What a prediction answers, over HTTP and with ``paretune predict --json``: one schema for both."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from tuner.hardware import Cluster
from tuner.job import Recompute, TrainingJob
from tuner.layout import Layout
from tuner.physics.calibration import Calibration
from tuner.physics.coefficients import COEFFICIENTS
from tuner.physics.configurations import RECOMPUTE, Configurations
from tuner.physics.memory import StageMemory
from tuner.physics.predict import Prediction
from tuner.policy import PolicyKind
from tuner.predictions import binding_parts

_MOVED = 5
# A coefficient whose logarithm changed by less has not moved.
_STILL = 1e-3


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PredictedConfigurationAnswer(_Answer):
    """What is predicted; ``frequency_mhz`` is null for the GPU's default, its highest."""

    dp: int
    tp: int
    pp: int
    microbatch: int
    frequency_mhz: int | None
    zero_stage: int
    recompute: Recompute


class BandAnswer(_Answer):
    """A predicted value with its 80 % interval."""

    value: float
    low: float
    high: float


class PredictionAnswer(_Answer):
    """One configuration, predicted: nothing of it was measured."""

    source: Literal["predicted"] = "predicted"
    configuration: PredictedConfigurationAnswer
    fits: bool
    step_time_s: BandAnswer
    energy_j: BandAnswer = Field(description="Energy of a step over all GPUs.")
    peak_memory_gib: BandAnswer = Field(description="On the fullest GPU.")
    tokens_per_s: float
    average_power_w: float = Field(description="Of one GPU.")
    achieved_mhz: float = Field(description="The clock that runs, below the one asked for where the power cap binds.")
    binding_stage: int = Field(description="The pipeline stage that is fullest in memory, from 0.")
    binds: str = Field(description="The largest part of the breakdown.")
    breakdown: dict[str, float] = Field(description="Parts of the step time in seconds; they add up to it.")


class StageAnswer(_Answer):
    """Memory on the fullest GPU of one pipeline stage, in GiB, predicted."""

    stage: int
    layers: int
    in_flight: int = Field(description="Microbatches whose activations the stage holds.")
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    logits_gib: float
    overhead_gib: float
    total_gib: float

    @classmethod
    def of(cls, stage: StageMemory) -> StageAnswer:
        """Built from the stage."""
        return cls(**{name: getattr(stage, name) for name in cls.model_fields})


class LayoutMemoryAnswer(_Answer):
    """The memory picture of one layout, predicted."""

    source: Literal["predicted"] = "predicted"
    dp: int
    tp: int
    pp: int
    microbatch: int
    zero_stage: int
    recompute: Recompute
    capacity_gib: float = Field(description="What one GPU has.")
    binding_stage: int
    stages: list[StageAnswer]


class MovedAnswer(_Answer):
    """A coefficient that calibration moved."""

    coefficient: str
    before: float
    after: float


class CalibrationAnswer(_Answer):
    """What the predictions were corrected by."""

    trials: int = Field(description="Number of trials behind it; 0 for the defaults.")
    fitted_to: str | None = Field(description="What it was fitted to, in words; null for the defaults.")
    moved: list[MovedAnswer] = Field(description="What this request's trials moved, the farthest first.")
    notes: list[str] = Field(description="What to know about the use of a calibration on this cluster.")
    document: dict[str, Any] | None = Field(description="It, to be sent as calibration later; null for the defaults.")


class PredictionsAnswer(_Answer):
    """Predictions of a space, as its frontier, or of the configurations asked for."""

    source: Literal["predicted"] = "predicted"
    gpu: str
    gpus: int
    configurations: int = Field(description="How many were predicted.")
    fitting: int = Field(description="How many of them fit into memory; others never stand on the frontier.")
    least_memory_gib: float = Field(description="Peak memory of the smallest.")
    frontier: list[PredictionAnswer] = Field(description="Fastest first; empty where configurations were asked for.")
    picks: dict[PolicyKind, int] = Field(description="Positions in the frontier; empty where that is.")
    predictions: list[PredictionAnswer] = Field(description="Of the configurations asked for, in their order.")
    memory: list[LayoutMemoryAnswer] = Field(description="Of the layouts shown, in order, up to a bound.")
    calibration: CalibrationAnswer


def prediction_answers(
    job: TrainingJob, cluster: Cluster, x: Configurations, prediction: Prediction, rows: NDArray[np.intp]
) -> list[PredictionAnswer]:
    """The predictions of some configurations.

    Args:
        job: The training job.
        cluster: The cluster.
        x: All configurations, shape ``(n,)``.
        prediction: Predictions of all of them.
        rows: Positions of those wanted.
    """

    def band(name: str, unit: str, row: int) -> BandAnswer:
        low, value, high = (getattr(prediction, f"{name}{part}_{unit}")[row] for part in ("_low", "", "_high"))
        return BandAnswer(value=float(value), low=float(low), high=float(high))

    return [
        PredictionAnswer(
            configuration=_configuration(x, cluster, row),
            fits=bool(prediction.fits[row]),
            step_time_s=band("step_time", "s", row),
            energy_j=band("energy", "j", row),
            peak_memory_gib=band("peak_memory", "gib", row),
            tokens_per_s=job.tokens_per_step / float(prediction.step_time_s[row]),
            average_power_w=float(prediction.average_power_w[row]),
            achieved_mhz=float(prediction.achieved_mhz[row]),
            binding_stage=int(prediction.binding_stage[row]),
            binds=binds,
            breakdown={part: float(values[row]) for part, values in prediction.breakdown.items()},
        )
        for row, binds in zip(rows.tolist(), binding_parts(prediction, rows), strict=True)
    ]


def _configuration(x: Configurations, cluster: Cluster, row: int) -> PredictedConfigurationAnswer:
    clock = int(x.frequency_mhz[row])
    return PredictedConfigurationAnswer(
        dp=int(x.dp[row]),
        tp=int(x.tp[row]),
        pp=int(x.pp[row]),
        microbatch=int(x.microbatch[row]),
        frequency_mhz=None if clock == cluster.gpu.max_clock_mhz else clock,
        zero_stage=int(x.zero_stage[row]),
        recompute=RECOMPUTE[int(x.recompute[row])],
    )


def moved_coefficients(before: Calibration, after: Calibration) -> list[MovedAnswer]:
    """The coefficients that moved farthest, by their ratio."""
    values = {name: (getattr(before.coefficients, name), getattr(after.coefficients, name)) for name in COEFFICIENTS}
    ratios: NDArray[np.float64] = np.array([abs(np.log(new / old)) for old, new in values.values()])
    farthest = np.argsort(-ratios, kind="stable")[:_MOVED]
    names = [COEFFICIENTS[index] for index in farthest[ratios[farthest] > _STILL].tolist()]
    return [MovedAnswer(coefficient=name, before=values[name][0], after=values[name][1]) for name in names]


def layout_of(answer: PredictedConfigurationAnswer) -> Layout:
    """The layout of a configuration."""
    return Layout(answer.dp, answer.tp, answer.pp, answer.microbatch)
