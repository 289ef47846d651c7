"""What ``POST /v1/predictions`` is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from api.predicting import MOST_ANSWERS
from tuner.candidates import check_configurations
from tuner.hardware import Cluster
from tuner.job import Recompute, TrainingJob
from tuner.physics.configurations import RECOMPUTE, Configurations
from tuner.spec import BaselineSection, Degree, JobFile


class AskedConfiguration(BaselineSection):
    """One configuration to predict; what is left out is the GPU's default clock, and the job's."""

    frequency_mhz: Degree | None = None
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    recompute: Literal["none", "selective", "full"] | None = None


class PredictionRequest(JobFile):
    """A job and its cluster; what to predict, and what to correct the predictions by."""

    configurations: Annotated[list[AskedConfiguration], Field(min_length=1, max_length=MOST_ANSWERS)] | None = None
    study: Annotated[str, Field(min_length=1, max_length=120)] | None = None
    calibration: dict[str, Any] | None = None


def asked_configurations(asked: Sequence[AskedConfiguration], job: TrainingJob, cluster: Cluster) -> Configurations:
    """The configurations asked for, as arrays.

    Args:
        asked: At least one configuration.
        job: The training job.
        cluster: The cluster.

    Raises:
        InvalidInput: A configuration that cannot be, by its position.
    """
    rows = [
        (
            *(one.dp, one.tp, one.pp, one.microbatch),
            one.frequency_mhz or cluster.gpu.max_clock_mhz,
            job.zero_stage if one.zero_stage is None else one.zero_stage,
            RECOMPUTE.index(Recompute(one.recompute or job.recompute)),
        )
        for one in asked
    ]
    dp, tp, pp, microbatch, frequency_mhz, zero_stage, recompute = np.array(rows, float).T
    x = Configurations(
        dp=dp,
        tp=tp,
        pp=pp,
        microbatch=microbatch,
        frequency_mhz=frequency_mhz,
        zero_stage=zero_stage,
        recompute=recompute,
    )
    check_configurations(x, job, cluster, lambda row, name: f"configurations.{row}.{name}")
    return x
