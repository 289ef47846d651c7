from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.hardware import Cluster
from tuner.job import Precision, TrainingJob
from workers.simulator.kernels import flash_attention, gemm, streaming


def test_a_large_product_reaches_60_to_80_percent_of_peak(job: TrainingJob, cluster: Cluster) -> None:
    size = 8192
    efficiency = 2 * size**3 / gemm(cluster.gpu, job, size, size, size).core_s / 989e12
    assert 0.6 < efficiency < 0.8


def test_thin_products_are_less_efficient_than_thick_ones(job: TrainingJob, cluster: Cluster) -> None:
    thick = gemm(cluster.gpu, job, 4096, 4096, 4096)
    thin = gemm(cluster.gpu, job, 4096, 512, 4096)
    assert 8 * thin.core_s > 1.1 * thick.core_s
    assert thin.intensity < thick.intensity


@given(m=st.integers(1, 20000), n=st.integers(1, 20000), k=st.integers(1, 20000))
def test_no_product_comes_closer_than_80_percent_to_the_peak(
    job: TrainingJob, cluster: Cluster, m: int, n: int, k: int
) -> None:
    time = gemm(cluster.gpu, job, m, n, k)
    assert 0 < time.intensity <= 1
    assert time.core_s >= 2.0 * m * n * k / (0.80 * 989e12)


def test_fp32_products_take_longer(job: TrainingJob, cluster: Cluster) -> None:
    slow = gemm(cluster.gpu, replace(job, precision=Precision.fp32), 4096, 4096, 4096)
    assert slow.core_s == pytest.approx(2 * gemm(cluster.gpu, job, 4096, 4096, 4096).core_s, rel=0.01)


def test_attention_grows_with_the_square_of_the_sequence(job: TrainingJob, cluster: Cluster) -> None:
    short = flash_attention(cluster.gpu, job, 4, 32, backward=False)
    long = flash_attention(cluster.gpu, replace(job, sequence_length=8192), 4, 32, backward=False)
    assert long.core_s / short.core_s == pytest.approx(4, rel=0.05)


def test_backward_attention_takes_at_least_the_five_halves_that_its_products_need(
    job: TrainingJob, cluster: Cluster
) -> None:
    forward, backward = (flash_attention(cluster.gpu, job, 4, 32, backward=b) for b in (False, True))
    assert backward.core_s > 2.5 * forward.core_s


def test_streaming_is_bound_by_memory(cluster: Cluster) -> None:
    time = streaming(cluster.gpu, 3.35e12)
    assert time.memory_s > max(1.0, time.core_s)
