from __future__ import annotations

import pytest

from tuner.hardware import Cluster, find_gpu
from tuner.job import ModelShape, TrainingJob


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    gpu = find_gpu("H100-SXM5-80GB")
    return Cluster(gpu=gpu, nodes=2, gpus_per_node=8, intra_node_gb_s=gpu.link_gb_s, inter_node_gb_s=gpu.network_gb_s)


@pytest.fixture(scope="session")
def job() -> TrainingJob:
    model = ModelShape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
    return TrainingJob(model=model, sequence_length=4096, global_batch_size=128)
