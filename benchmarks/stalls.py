"""What no configuration tells of in the nanotron table: pipeline runs that wait, and repeats that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from benchmarks.groups import Group, grouped
from benchmarks.scores import Score
from tuner.physics.configurations import Floats

# Seconds of waiting in each microbatch, from and to, with 2 stages and with more: the gap in what twins differ by.
STALL_S = {2: (0.4, 0.8), 4: (0.9, 1.6)}


def twin_differences(groups: Iterable[Group]) -> dict[int, Floats]:
    """Seconds a microbatch by which two runs differ that have all but their ZeRO stage (0 and 1) in common.

    Args:
        groups: Those on several nodes are looked at.

    Returns:
        By number of stages: 1, 2, and 4 for all more.
    """
    differences: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for group in groups:
        x = group.measured.configurations
        microbatch_s: dict[tuple[float, ...], list[float]] = defaultdict(list)
        if group.cluster.nodes > 1:
            each_s = group.measured.step_time_s * x.dp * x.microbatch / group.job.global_batch_size
            for layout, taken_s in zip(zip(x.dp, x.tp, x.pp, x.microbatch, strict=True), each_s, strict=True):
                microbatch_s[layout].append(taken_s)
        for (_, _, pp, _), taken_s in microbatch_s.items():
            if len(taken_s) == 2:
                differences[int(pp) if pp <= 2 else 4].append(abs(taken_s[0] - taken_s[1]))
    return {stages: np.array(values) for stages, values in differences.items()}


def stalled(score: Score) -> NDArray[np.bool_]:
    """Pipeline runs over several nodes whose excess over the prediction is what stalled twins show.

    A row counts where it has several stages, its cluster several nodes, and (measured - predicted) / microbatches lies
    in the range that ``STALL_S`` gives for its number of stages, and is at least a quarter of the predicted time of a
    microbatch, so that it is not the model's everyday error.
    """
    x = score.group.measured.configurations
    microbatches = score.group.job.global_batch_size / (x.dp * x.microbatch)
    predicted_s = score.prediction.step_time_s / microbatches
    excess_s = score.group.measured.step_time_s / microbatches - predicted_s
    low, high = np.where(x.pp == 2, np.array(STALL_S[2])[:, None], np.array(STALL_S[4])[:, None])
    near = (low <= excess_s) & (excess_s <= high)
    large: NDArray[np.bool_] = near & (excess_s >= predicted_s / 4)
    return large & (x.pp > 1) & (score.group.cluster.nodes > 1)


def repeat_spreads() -> Floats:
    """Slowest over fastest run, less 1, of each configuration that ran more than once, descending."""
    columns = ("model", "gpus", "gbs", "dp", "tp", "pp", "mbs", "zero_stage")
    spreads = []
    for _, rows in grouped("nanotron_ultrascale_bench", lambda row: tuple(row[column] for column in columns)):
        taken_s = [float(row["step_time_s"]) for row in rows if row["status"] == "ok"]
        if len(taken_s) > 1:
            spreads.append(max(taken_s) / min(taken_s) - 1)
    return np.sort(spreads)[::-1]
