"""Groups of measured trials, and what the readers of the tables build them with."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import nan
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from tuner.hardware import Cluster, find_gpu
from tuner.job import Recompute, TrainingJob
from tuner.physics.configurations import RECOMPUTE, Configurations
from tuner.physics.evidence import Measured

DATA = Path(__file__).parent / "data"
GPUS_PER_NODE = 8

Row = Mapping[str, str]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Measured trials of one job on one cluster.

    Args:
        table: Name of the table.
        name: What tells the group from the others of its table.
        job: The training job.
        cluster: The cluster.
        measured: The configurations that ran, each once: repeats are replaced by their lower median.
        failed: The configurations that never ran, for whatever reason; ``None`` where the table has no such rows.
        fitted: Whether the default coefficients may be fitted on it; the others are what they are judged on.
    """

    table: str
    name: str
    job: TrainingJob
    cluster: Cluster
    measured: Measured
    failed: Configurations | None = None
    fitted: bool = False

    def __len__(self) -> int:
        return len(self.measured.configurations)


class Trial(NamedTuple):
    """One row: what was run (the fields of ``Configurations``), and what was measured (nan where unknown)."""

    dp: float
    tp: float
    pp: float
    microbatch: float
    frequency_mhz: float
    zero_stage: float
    recompute: float
    step_time_s: float = nan
    energy_j: float = nan
    peak_memory_gib: float = nan

    @property
    def configuration(self) -> tuple[float, ...]:
        """What was run."""
        return self[: len(CONFIGURATION)]


CONFIGURATION = tuple(f.name for f in fields(Configurations))


def cluster_of(gpu: str, gpus: int) -> Cluster:
    """Full nodes of 8 GPUs, or a part of one, with the catalogue's links."""
    spec = find_gpu(gpu)
    per_node = min(GPUS_PER_NODE, gpus)
    return Cluster(
        gpu=spec,
        nodes=gpus // per_node,
        gpus_per_node=per_node,
        intra_node_gb_s=spec.link_gb_s,
        inter_node_gb_s=spec.network_gb_s,
    )


def grouped(table: str, key: Callable[[Row], Key]) -> list[tuple[Key, list[Row]]]:
    """The rows of a table by key, sorted by it."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    with (DATA / f"{table}.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            groups[key(row)].append(row)
    return sorted(groups.items())


def layout_trial(
    row: Row, frequency_mhz: float, *, zero_stage: str | int, recompute: Recompute, peak_memory_gib: str = ""
) -> Trial:
    """The trial of a row whose layout is in the columns that the tables have in common."""
    return Trial(
        dp=float(row["dp"]),
        tp=float(row["tp"]),
        pp=float(row["pp"]),
        microbatch=float(row["mbs"]),
        frequency_mhz=frequency_mhz,
        zero_stage=float(zero_stage),
        recompute=RECOMPUTE.index(recompute),
        step_time_s=float(row["step_time_s"] or nan),
        peak_memory_gib=float(peak_memory_gib or nan),
    )


def configurations_of(trials: Sequence[Trial]) -> Configurations:
    """What was run, one configuration for each trial."""
    columns = np.array(trials, float).reshape(-1, len(Trial._fields)).T
    return Configurations(**dict(zip(CONFIGURATION, columns, strict=False)))


def measured_of(trials: Iterable[Trial]) -> Measured:
    """What was measured, one row for each configuration: the (lower) median of its repeats."""
    runs: dict[tuple[float, ...], list[tuple[float, ...]]] = defaultdict(list)
    for trial in trials:
        runs[trial.configuration].append(trial[len(CONFIGURATION) :])
    merged = [
        Trial(*configuration, *map(median_low, zip(*values, strict=True)))
        for configuration, values in sorted(runs.items())
    ]
    step_time_s, energy_j, peak_memory_gib = (
        np.array([getattr(trial, name) for trial in merged], float) for name in Trial._fields[len(CONFIGURATION) :]
    )
    return Measured(
        configurations=configurations_of(merged),
        step_time_s=step_time_s,
        energy_j=energy_j,
        peak_memory_gib=peak_memory_gib,
        fits=np.ones(len(merged), bool),
    )
