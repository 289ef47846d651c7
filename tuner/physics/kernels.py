"""Time of the kernels of one microbatch: matrix products, attention, and what memory bandwidth bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.hardware import GpuSpec
from tuner.job import ModelShape, Precision, Recompute, TrainingJob
from tuner.physics.coefficients import Coefficients
from tuner.physics.configurations import RECOMPUTE, Configurations, Floats

# A product loses efficiency where the inner size or the output is small. Both fitted to cuBLAS on H200: the inner size
# at which half the time is overhead, and the output elements a peak TFLOP/s (aiconfigurator's tables, Apache-2.0).
_HALF_INNER = 110.0
_HALF_OUTPUT_PER_TFLOPS = 125.0
# Share of the peak memory bandwidth that streaming kernels reach (same tables: 0.86 to 0.93).
_STREAM_EFFICIENCY = 0.9
# Tensors of width hidden that norms, residuals and dropout read or write, forward and backward together.
_HIDDEN_PASSES = 20.0
_ATTENTION_PASSES = 4.0
_FFN_PASSES = 6.0
# Bytes a logit that the loss reads and writes in bf16 and fp32, forward and backward.
_LOGIT_TRAFFIC_BYTES = 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """Time of one microbatch, forward and backward, arrays of shape ``(n,)``.

    Args:
        compute_s: Matrix products and attention, at the highest clock.
        memory_s: What memory bandwidth bounds, at any clock.
    """

    compute_s: Floats
    memory_s: Floats


@dataclass(frozen=True, slots=True)
class Rates:
    """What one GPU reaches."""

    products: float
    attention: float
    bandwidth: float
    half_output: float
    element_bytes: float


def gpu_rates(job: TrainingJob, gpu: GpuSpec, c: Coefficients) -> Rates:
    """FLOP/s of matrix products and attention at the highest clock, and bytes/s of streaming kernels."""
    single = job.precision is Precision.fp32
    peak = (gpu.peak_fp32_tflops if single else gpu.peak_bf16_tflops) * 1e12
    return Rates(
        products=peak * c.matrix_efficiency,
        attention=peak * c.attention_efficiency,
        bandwidth=gpu.memory_bandwidth_gb_s * 1e9 * _STREAM_EFFICIENCY,
        half_output=_HALF_OUTPUT_PER_TFLOPS * peak / 1e12,
        element_bytes=4.0 if single else 2.0,
    )


def product_s(rates: Rates, m: Floats, n: Floats, k: Floats) -> Floats:
    """Time of an (m, k) x (k, n) product at the highest clock: arithmetic or traffic, whichever binds.

    Args:
        rates: The GPU's rates.
        m: Rows of the output.
        n: Columns of the output.
        k: Inner size.
    """
    output = m * n
    work = 2.0 * (output + rates.half_output) * (k + _HALF_INNER)
    traffic = rates.element_bytes * (k * (m + n) + output)
    return np.maximum(work / rates.products, traffic / rates.bandwidth)


def layer_work(job: TrainingJob, x: Configurations, rates: Rates, c: Coefficients) -> Work:
    """One transformer layer on one GPU of its tensor-parallel group."""
    model = job.model
    tokens = x.microbatch * job.sequence_length
    hidden = np.full_like(tokens, model.hidden)
    query, key_value = _attention_widths(model, x.tp)
    up, down = (2 if model.gated_mlp else 1) * model.ffn / x.tp, model.ffn / x.tp
    forward, backward = np.zeros_like(tokens), np.zeros_like(tokens)
    for n, k in ((query + 2 * key_value, hidden), (hidden, query), (up, hidden), (hidden, down)):
        forward += product_s(rates, tokens, n, k)
        backward += product_s(rates, tokens, k, n) + product_s(rates, n, k, tokens)
    # Causal attention: half of all scores; 2 products forward, 5 backward (FlashAttention-2, Dao 2023).
    attention = 2.0 * tokens * job.sequence_length * query / rates.attention
    full = x.recompute == RECOMPUTE.index(Recompute.full)
    again = x.recompute != RECOMPUTE.index(Recompute.none)
    split = x.tp if job.sequence_parallel else np.ones_like(x.tp)
    widths = _HIDDEN_PASSES * hidden / split + _ATTENTION_PASSES * (query + 2 * key_value) + _FFN_PASSES * (up + down)
    streamed = c.elementwise_traffic * tokens * widths * rates.element_bytes / rates.bandwidth
    # A third of the elementwise work is forward, and is done again under recomputation.
    return Work(
        compute_s=forward * (1 + full) + backward + attention * (3.5 + again),
        memory_s=streamed * (1 + again / 3),
    )


def head_work(job: TrainingJob, x: Configurations, rates: Rates, c: Coefficients) -> Work:
    """The output projection and the loss, on one GPU of the tensor-parallel group."""
    tokens = x.microbatch * job.sequence_length
    vocab, hidden = job.model.vocab / x.tp, np.full_like(tokens, job.model.hidden)
    products = (
        product_s(rates, tokens, vocab, hidden)
        + product_s(rates, tokens, hidden, vocab)
        + product_s(rates, vocab, hidden, tokens)
    )
    streamed = c.elementwise_traffic * tokens * vocab * _LOGIT_TRAFFIC_BYTES / rates.bandwidth
    return Work(compute_s=products, memory_s=streamed)


def _attention_widths(model: ModelShape, tp: Floats) -> tuple[Floats, Floats]:
    """Widths of the queries, and of the keys or values, on one rank; kv heads are copied where tp exceeds them."""
    return model.heads * model.head_dim / tp, np.maximum(model.kv_heads / tp, 1.0) * model.head_dim
