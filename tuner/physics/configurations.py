"""Configurations as arrays, so that a model evaluates a million of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import GpuSpec
from tuner.job import Recompute, TrainingJob
from tuner.layout import Configuration

Floats = NDArray[np.float64]
RECOMPUTE = tuple(Recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """Configurations of one job on one cluster; every field is an array of shape ``(n,)``.

    Args:
        dp: Data-parallel replicas.
        tp: Tensor-parallel degree.
        pp: Pipeline stages.
        microbatch: Sequences in one forward pass of one replica.
        frequency_mhz: SM clock asked for; the GPU's default is its highest.
        zero_stage: ZeRO stage, 0 to 3.
        recompute: Activation recomputation, as an index into ``RECOMPUTE``.
    """

    dp: Floats
    tp: Floats
    pp: Floats
    microbatch: Floats
    frequency_mhz: Floats
    zero_stage: Floats
    recompute: Floats

    @classmethod
    def of(cls, configurations: Sequence[Configuration], job: TrainingJob, gpu: GpuSpec) -> Self:
        """The configurations of a study, with the job's ZeRO stage and recomputation."""
        rows = [
            (c.layout.dp, c.layout.tp, c.layout.pp, c.layout.microbatch, c.frequency_mhz or gpu.max_clock_mhz)
            for c in configurations
        ]
        dp, tp, pp, microbatch, frequency_mhz = np.array(rows, float).reshape(-1, 5).T
        n = len(rows)
        return cls(
            dp=dp,
            tp=tp,
            pp=pp,
            microbatch=microbatch,
            frequency_mhz=frequency_mhz,
            zero_stage=np.full(n, float(job.zero_stage)),
            recompute=np.full(n, float(RECOMPUTE.index(job.recompute))),
        )

    def __len__(self) -> int:
        return len(self.dp)

    def __getitem__(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> Configurations:
        return Configurations(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def chunks(self, size: int) -> Iterator[Configurations]:
        """Consecutive pieces of at most ``size`` configurations."""
        for start in range(0, len(self), size):
            yield self[start : start + size]
