"""Time of kernels on one GPU at its highest clock: matrix products, attention, and what only moves bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.hardware import GpuSpec
from tuner.job import Precision, TrainingJob
from workers.simulator.memory import element_bytes

# CUTLASS's usual tile on Hopper, and the SMs of an H100 SXM (Hopper white paper); other GPUs are near enough.
_TILE_M, _TILE_N, _SMS = 128, 256, 132
_BEST_GEMM = 0.76  # Share of peak that the largest products reach when nothing but the clock holds them.
# FlashAttention-2 and -3 report 35 to 75 % of peak on H100, less in the backward pass (Shah et al. 2024).
_FLASH_FORWARD, _FLASH_BACKWARD = 0.46, 0.38
_STREAM = 0.80  # Share of peak bandwidth that streaming kernels reach.


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Seconds of a kernel at the highest clock.

    Args:
        core_s: Bound that follows the SM clock.
        memory_s: Bound by device memory, which does not.
        intensity: Efficiency relative to the best possible, 0 to 1: idle tensor cores draw less power.
    """

    core_s: float
    memory_s: float
    intensity: float = 1.0


def gemm(gpu: GpuSpec, job: TrainingJob, m: int, n: int, k: int) -> KernelTime:
    """Time of an ``(m, k) @ (k, n)`` product.

    Efficiency falls where tiles overhang the edge, where the last wave leaves SMs idle, and where ``k`` is too short to
    fill the pipeline (NVIDIA, "Matrix Multiplication Background User's Guide": tile and wave quantisation).
    """
    tiles = math.ceil(m / _TILE_M) * math.ceil(n / _TILE_N)
    overhang = m * n / (tiles * _TILE_M * _TILE_N)
    waves = tiles / _SMS
    # Stream-K and smaller tiles win part of an idle last wave back.
    wave = 0.4 + 0.6 * waves / math.ceil(waves)
    relative = math.sqrt(overhang) * wave * k / (k + 260)
    size = element_bytes(job)
    return KernelTime(
        core_s=2.0 * m * n * k / (_peak(gpu, job) * _BEST_GEMM * relative),
        memory_s=size * (m * k + k * n + m * n) / bandwidth(gpu),
        intensity=relative,
    )


def flash_attention(gpu: GpuSpec, job: TrainingJob, microbatch: int, heads: float, *, backward: bool) -> KernelTime:
    """Time of causal flash attention over ``heads`` query heads of every sequence."""
    model, length = job.model, job.sequence_length
    # Causal masking halves the work; backward needs five products where forward needs two (Dao et al. 2022).
    flops = 4.0 * microbatch * length**2 * heads * model.head_dim / 2 * (2.5 if backward else 1)
    blocks = microbatch * heads * math.ceil(length / 128)
    filled = blocks / (blocks + 0.35 * _SMS)
    efficiency = (_FLASH_BACKWARD if backward else _FLASH_FORWARD) * filled * min(1.0, (model.head_dim / 128) ** 0.5)
    size = element_bytes(job)
    traffic = microbatch * length * heads * model.head_dim * size * (9 if backward else 4)
    return KernelTime(core_s=flops / (_peak(gpu, job) * efficiency), memory_s=traffic / bandwidth(gpu))


def streaming(gpu: GpuSpec, traffic_bytes: float) -> KernelTime:
    """Time of element-wise kernels that read and write ``traffic_bytes`` in all."""
    seconds = traffic_bytes / bandwidth(gpu)
    return KernelTime(core_s=0.45 * seconds, memory_s=seconds)


def bandwidth(gpu: GpuSpec) -> float:
    """Device memory bandwidth that kernels reach, bytes per second."""
    return gpu.memory_bandwidth_gb_s * 1e9 * _STREAM


def _peak(gpu: GpuSpec, job: TrainingJob) -> float:
    # Taken at the highest clock. Vendors quote some GPUs a few percent below it.
    tflops = gpu.peak_fp32_tflops if job.precision is Precision.fp32 else gpu.peak_bf16_tflops
    return tflops * 1e12
