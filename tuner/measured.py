"""Measured trials as arrays, for calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.candidates import Where, check_configurations
from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.configurations import RECOMPUTE, Configurations, Floats
from tuner.physics.evidence import Measured
from tuner.table import TableRow

# Beyond this, more trials teach nothing and a fit takes minutes.
MOST_TRIALS = 10_000
# Wider than any cluster can measure, and narrow enough for arithmetic on the numbers to stay finite.
_RANGES = {"step_time_s": (1e-6, 1e7), "energy_j": (1e-3, 1e15), "peak_memory_gib": (1e-6, 1e6)}


def measured_trials(rows: Sequence[TableRow], job: TrainingJob, cluster: Cluster, field: str, where: Where) -> Measured:
    """The rows of a measured table as arrays, checked against the job and the cluster.

    Args:
        rows: What was measured, with or without success.
        job: The job that was run.
        cluster: The cluster that it ran on.
        field: What to call the trials in errors.
        where: Names a field of a row, given its position and the field.

    Raises:
        InvalidInput: No row that ran, too many rows, or rows that cannot be.
    """
    if len(rows) > MOST_TRIALS:
        raise InvalidInput.of(field, f"{len(rows):,} trials", f"must hold at most {MOST_TRIALS:,}")
    if all(row.out_of_memory for row in rows):
        raise InvalidInput.of(field, f"{len(rows)} trials", "must hold at least one that ran")
    x = Configurations.of([row.configuration for row in rows], job, cluster.gpu)
    stages = [job.zero_stage if row.zero_stage is None else row.zero_stage for row in rows]
    recomputes = [RECOMPUTE.index(row.recompute or job.recompute) for row in rows]
    x = replace(x, zero_stage=np.array(stages, float), recompute=np.array(recomputes, float))
    check_configurations(x, job, cluster, where)
    for position, row in enumerate(rows):
        for name, (least, most) in _RANGES.items():
            value = getattr(row, name)
            if value is not None and not least <= value <= most:
                raise InvalidInput.of(where(position, name), value, f"must be from {least:g} to {most:g}")
    return Measured(
        configurations=x,
        step_time_s=_known([row.step_time_s for row in rows]),
        energy_j=_known([row.energy_j for row in rows]),
        peak_memory_gib=_known([row.peak_memory_gib for row in rows]),
        fits=np.array([not row.out_of_memory for row in rows]),
    )


def _known(values: Sequence[float | None]) -> Floats:
    """With nan for what is unknown."""
    return np.array([math.nan if value is None else value for value in values])
