"""Random jobs, clusters and configurations for the physics tests, and one ordinary of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from tuner.hardware import Cluster, find_gpu, gpu_catalogue
from tuner.job import ModelShape, PipelineSchedule, Precision, Recompute, TrainingJob
from tuner.layout import Layout, divisors
from tuner.physics.configurations import RECOMPUTE, Configurations

MODEL = ModelShape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128_256)
JOB = TrainingJob(model=MODEL, sequence_length=4096, global_batch_size=128)


def cluster_of(name: str = "H100-SXM5-80GB", nodes: int = 4, gpus_per_node: int = 8) -> Cluster:
    """A cluster of a catalogued GPU with its own links."""
    gpu = find_gpu(name)
    return Cluster(
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        intra_node_gb_s=gpu.link_gb_s,
        inter_node_gb_s=gpu.network_gb_s,
    )


def configurations(
    *layouts: Layout, frequency_mhz: float = 1980.0, zero_stage: int = 1, recompute: str = "none"
) -> Configurations:
    """Layouts at one clock, with one ZeRO stage and recomputation."""
    n = len(layouts)
    return Configurations(
        dp=np.array([float(layout.dp) for layout in layouts]),
        tp=np.array([float(layout.tp) for layout in layouts]),
        pp=np.array([float(layout.pp) for layout in layouts]),
        microbatch=np.array([float(layout.microbatch) for layout in layouts]),
        frequency_mhz=np.full(n, frequency_mhz),
        zero_stage=np.full(n, float(zero_stage)),
        recompute=np.full(n, float(RECOMPUTE.index(Recompute(recompute)))),
    )


def changed(x: Configurations, **values: object) -> Configurations:
    """The configurations with some fields at other values."""
    return replace(x, **{name: np.full(len(x), value, float) for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration of a job on a cluster."""

    job: TrainingJob
    cluster: Cluster
    x: Configurations


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Anything that the rest of the tool lets through, the odd and the extreme included."""
    tp, pp = draw(st.sampled_from((1, 2, 3, 4, 8, 16))), draw(st.sampled_from((1, 2, 3, 4, 8, 16, 48)))
    dp, microbatch = draw(st.sampled_from((1, 2, 3, 8, 64, 1024))), draw(st.sampled_from((1, 2, 3, 8, 64)))
    heads = tp * draw(st.sampled_from((1, 2, 5)))
    model = ModelShape(
        layers=draw(st.integers(pp, max(pp, 96))),
        hidden=heads * draw(st.sampled_from((8, 64, 128))),
        heads=heads,
        kv_heads=draw(st.sampled_from(divisors(heads))),
        ffn=tp * draw(st.integers(1, 8000)),
        vocab=draw(st.integers(1, 300_000)),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
    )
    job = TrainingJob(
        model=model,
        sequence_length=draw(st.sampled_from((1, 128, 4096, 131_072))),
        global_batch_size=dp * microbatch * draw(st.sampled_from((1, 2, 7, 100))),
        precision=draw(st.sampled_from(Precision)),
        pipeline_schedule=draw(st.sampled_from(PipelineSchedule)),
        sequence_parallel=draw(st.booleans()),
    )
    gpus = dp * tp * pp
    per_node = draw(st.sampled_from([each for each in (1, 2, 3, 4, 8, 16) if gpus % each == 0]))
    cluster = cluster_of(draw(st.sampled_from(sorted(gpu_catalogue()))), gpus // per_node, per_node)
    clock = draw(st.sampled_from(cluster.gpu.clocks_mhz))
    zero_stage, recompute = draw(st.integers(0, 3)), draw(st.sampled_from(RECOMPUTE))
    layout = Layout(dp, tp, pp, microbatch)
    return Case(
        job, cluster, configurations(layout, frequency_mhz=clock, zero_stage=zero_stage, recompute=str(recompute))
    )
