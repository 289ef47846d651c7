"""Device memory of the fullest pipeline stage."""

from __future__ import annotations

from tuner.job import PipelineSchedule, Precision, Recompute, TrainingJob
from tuner.layout import Layout

GIB = 2**30
_ALLOCATOR_BLOCK = 2 * 2**20  # The CUDA caching allocator of PyTorch reserves in multiples of 2 MiB.
_CONTEXT_BYTES = 0.95 * GIB  # CUDA context, kernels and cuBLAS workspace; an assumption.
_COMMUNICATOR_BYTES = 0.22 * GIB  # NCCL channels and buffers of one group, at 4 MiB a channel and protocol.


def peak_memory_gib(job: TrainingJob, layout: Layout, fragmentation: float) -> float:
    """Peak memory of the worst GPU in GiB.

    Activations are counted as Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer
    Models") count them: with flash attention (Dao et al. 2022) the quadratic term is gone, and sequence parallelism
    divides everything by tp. Stage ``i`` keeps ``pp - i`` microbatches in flight with 1F1B (Narayanan et al. 2021), all
    of them with GPipe (Huang et al. 2019).

    Args:
        job: The training job.
        layout: The layout.
        fragmentation: Share of activation memory that the allocator loses.
    """
    stages = {0, layout.pp - 1, min(1, layout.pp - 1)}
    peak = max(_stage_bytes(job, layout, stage, fragmentation) for stage in stages)
    return -(-peak // _ALLOCATOR_BLOCK) * _ALLOCATOR_BLOCK / GIB


def stage_parameters(job: TrainingJob, layout: Layout, stage: int) -> int:
    """Weights that one GPU of a stage works with, before ZeRO shards them."""
    model = job.model
    weights = model.layers // layout.pp * model.layer_parameters
    if stage == 0:
        weights += model.embedding_parameters
    if stage == layout.pp - 1:
        tied_here = model.tied_embeddings and layout.pp == 1
        weights += model.hidden + (0 if tied_here else model.vocab * model.hidden)
    return weights // layout.tp


def element_bytes(job: TrainingJob) -> int:
    """Bytes of one weight or activation."""
    return 4 if job.precision is Precision.fp32 else 2


def _stage_bytes(job: TrainingJob, layout: Layout, stage: int, fragmentation: float) -> float:
    groups = sum(degree > 1 for degree in (layout.dp, layout.tp, layout.pp))
    fixed = _CONTEXT_BYTES + groups * _COMMUNICATOR_BYTES
    moving = _activation_bytes(job, layout, stage)
    return fixed + _state_bytes(job, layout, stage) + moving * (1 + fragmentation)


def _state_bytes(job: TrainingJob, layout: Layout, stage: int) -> float:
    """Weights, gradients and Adam state; which of them ZeRO shards follows Rajbhandari et al. 2020."""
    weights = stage_parameters(job, layout, stage)
    size = element_bytes(job)
    # Adam's two moments, and a master copy of the weights where training is not in fp32 already.
    optimizer = 8 if job.precision is Precision.fp32 else 12
    shards = [layout.dp if job.zero_stage >= first else 1 for first in (3, 2, 1)]
    state = weights * (size / shards[0] + size / shards[1] + optimizer / shards[2])
    if job.zero_stage == 3 and layout.dp > 1:
        # The block at work and the one being fetched are whole.
        state += 2 * size * job.model.layer_parameters / layout.tp
    if layout.dp > 1:
        state += min(size * weights, 0.4 * GIB)  # Buckets of the gradient reduction.
    return state


def _activation_bytes(job: TrainingJob, layout: Layout, stage: int) -> float:
    model, size = job.model, element_bytes(job)
    tokens = layout.microbatch * job.sequence_length
    blocks = model.layers // layout.pp
    kept = _in_flight(job, layout, stage) * blocks * _block_bytes(job, layout.tp, tokens, job.recompute)
    if job.recompute is not Recompute.none:
        # While a block runs backward, what was thrown away of it exists once more.
        kept += _block_bytes(job, layout.tp, tokens, Recompute.none)
    # Working buffers of the block at hand: gathered input, its gradient, the widest gradient of the MLP.
    working = tokens * size * (2 * model.hidden + 2 * model.ffn / layout.tp)
    if stage == layout.pp - 1:
        # Logits in the working format, in fp32 for the loss, and their gradient.
        working += tokens * model.vocab / layout.tp * (size + 8)
    return kept + working


def _in_flight(job: TrainingJob, layout: Layout, stage: int) -> int:
    """Microbatches whose activations a stage holds."""
    microbatches = layout.microbatches(job.global_batch_size)
    if job.pipeline_schedule is PipelineSchedule.gpipe and layout.pp > 1:
        return microbatches
    return min(microbatches, layout.pp - stage)


def _block_bytes(job: TrainingJob, tp: int, tokens: int, recompute: Recompute) -> float:
    """Activations that one block keeps for the backward pass."""
    model, size = job.model, element_bytes(job)
    # Without sequence parallelism each GPU of a tensor-parallel group keeps all that is not split by heads or columns.
    share = 1 / tp if job.sequence_parallel else 1.0
    if recompute is Recompute.full:
        return tokens * size * model.hidden * share
    attention = model.heads * model.head_dim
    keys_values = 2 * model.kv_heads * model.head_dim
    up = (2 if model.gated_mlp else 1) * model.ffn
    split, residuals = float(attention + keys_values + up), 2 * model.hidden
    if recompute is Recompute.none:
        norms = 2 * model.hidden
        # Flash attention also keeps one fp32 log-sum-exp a head.
        split += attention + model.ffn + 4 * model.heads / size
        residuals += norms
    return tokens * size * (split / tp + residuals * share)
