from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.groups import Group, cluster_of, measured_of
from benchmarks.groups import Trial as Row
from tuner.job import ModelShape, TrainingJob
from tuner.physics.predict import predict

LAYOUTS = (
    (16, 1, 1, 1),
    (8, 2, 1, 1),
    (8, 1, 2, 1),
    (4, 4, 1, 2),
    (4, 1, 4, 2),
    (2, 8, 1, 4),
    (2, 4, 2, 4),
    (4, 2, 2, 1),
)

MakeGroup = Callable[..., Group]


@pytest.fixture
def make_group() -> MakeGroup:
    """A group of layouts (dp, tp, pp, microbatch) whose measured values are the predicted ones, times ``slower``."""

    def make(
        layouts: Sequence[tuple[int, ...]] = LAYOUTS, *, name: str = "a group", zero_stage: int = 1, slower: float = 1.0
    ) -> Group:
        model = ModelShape(layers=16, hidden=2048, heads=16, kv_heads=16, ffn=8192, vocab=32_000)
        job = TrainingJob(model=model, sequence_length=2048, global_batch_size=128)
        cluster = cluster_of("A100-SXM4-80GB", 16)
        rows = [Row(*layout, cluster.gpu.max_clock_mhz, zero_stage, 0, 1.0, 1.0, 1.0) for layout in layouts]
        measured = measured_of(rows)
        predicted = predict(job, cluster, measured.configurations)
        return Group(
            table="nanotron",
            name=name,
            job=job,
            cluster=cluster,
            measured=replace(
                measured,
                step_time_s=predicted.step_time_s * slower,
                energy_j=np.full(len(rows), np.nan),
                peak_memory_gib=predicted.peak_memory_gib,
            ),
        )

    return make
