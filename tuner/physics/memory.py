"""Peak memory of every pipeline stage.

Weights, gradients and optimizer state follow Rajbhandari et al. 2020 (ZeRO): in mixed precision 2 bytes a parameter for
the weights, 2 for the gradients and 4 more for their sum in fp32, as Megatron-LM and nanotron keep it, and 12 for
Adam's state with its master weights. Activations follow Korthikanti et al. 2022 (Reducing Activation Recomputation),
with flash attention, which keeps no score matrix (Dao 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.errors import InvalidInput
from tuner.job import ModelShape, PipelineSchedule, Precision, Recompute, TrainingJob
from tuner.layout import Layout
from tuner.physics.coefficients import Coefficients
from tuner.physics.configurations import RECOMPUTE, Configurations, Floats
from tuner.physics.stages import layers_by_stage, place_layers

GIB = 2.0**30
# Tensors of hidden width that a layer keeps for its backward pass: input, two norms' outputs, two residuals.
_HIDDEN_TENSORS = 5.0
# Of the two column-parallel products, whose inputs sequence parallelism gathers. nanotron's table shows them kept where
# there is no pipeline, and not where there is one.
_GATHERED_TENSORS = 2.0
# Where a pipeline runs more microbatches than it holds, the next one comes before the memory of the last is there
# again: so much of a microbatch more, where its tensors are larger than the blocks of PyTorch's allocator.
_SURPLUS_MICROBATCH = 0.5
_BLOCK_BYTES = 20 * 2.0**20
# What a stage keeps of each microbatch in flight beside its layers, in layers: the input received, the output to be
# sent, and what belongs to them. Read off nanotron's table at 16 and 32 stages, whose stages are one or two layers.
_STAGE_LAYERS = 1.0


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Bytes on one GPU by what holds them; arrays of one shape."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    overhead: Floats

    @property
    def total(self) -> Floats:
        """Bytes altogether."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.overhead


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Peak memory of the fullest GPU, arrays of shape ``(n,)``.

    Args:
        bytes: The peak.
        stage: The pipeline stage of that GPU.
        activations_share: Share of the peak that activations hold.
        logits_share: Share of the peak that logits hold.
    """

    bytes: Floats
    stage: NDArray[np.int64]
    activations_share: Floats
    logits_share: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """The memory picture of one pipeline stage, on its fullest GPU, predicted."""

    stage: int
    layers: int
    in_flight: int
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    logits_gib: float
    overhead_gib: float

    @property
    def total_gib(self) -> float:
        """All of it."""
        held = self.weights_gib + self.gradients_gib + self.optimizer_gib
        return held + self.activations_gib + self.logits_gib + self.overhead_gib


def peak_memory(job: TrainingJob, x: Configurations, c: Coefficients) -> PeakMemory:
    """Peak memory of the fullest GPU of every configuration.

    Args:
        job: The training job.
        x: Configurations.
        c: Coefficients.
    """
    stages = place_layers(job.model, x.pp, c.head_share)
    kinds = [
        _parts(job, x, c, layers, embedding, head, index)
        for layers, embedding, head, index in zip(
            stages.layers, stages.embedding, stages.head, stages.index, strict=True
        )
    ]
    totals = np.where(stages.exists > 0, np.stack([parts.total for parts in kinds]), 0.0)
    fullest, columns = np.argmax(totals, axis=0), np.arange(len(x))
    total = totals[fullest, columns]
    activations = np.stack([parts.activations for parts in kinds])[fullest, columns]
    logits = np.stack([parts.logits for parts in kinds])[fullest, columns]
    return PeakMemory(total, stages.index[fullest, columns].astype(np.int64), activations / total, logits / total)


def stage_memory(
    job: TrainingJob, layout: Layout, zero_stage: int, recompute: Recompute, coefficients: Coefficients
) -> tuple[StageMemory, ...]:
    """The memory picture of every stage of one layout.

    Args:
        job: The training job.
        layout: The layout.
        zero_stage: ZeRO stage, 0 to 3.
        recompute: Activation recomputation.
        coefficients: Coefficients.

    Raises:
        InvalidInput: More stages than layers.
    """
    if layout.pp > job.model.layers:
        raise InvalidInput.of("pp", layout.pp, f"must not exceed the {job.model.layers} layers")
    layers = layers_by_stage(job.model, layout.pp, coefficients.head_share)
    stage = np.arange(layout.pp, dtype=float)
    full = np.ones(layout.pp)
    x = Configurations(
        dp=full * layout.dp,
        tp=full * layout.tp,
        pp=full * layout.pp,
        microbatch=full * layout.microbatch,
        frequency_mhz=full,
        zero_stage=full * zero_stage,
        recompute=full * RECOMPUTE.index(recompute),
    )
    first, last = (stage == 0).astype(float), (stage == layout.pp - 1).astype(float)
    parts = _parts(job, x, coefficients, np.array(layers, float), first, last, stage)
    in_flight = _in_flight(job, x, stage)
    return tuple(
        StageMemory(
            stage=index,
            layers=layers[index],
            in_flight=int(in_flight[index]),
            weights_gib=float(parts.weights[index] / GIB),
            gradients_gib=float(parts.gradients[index] / GIB),
            optimizer_gib=float(parts.optimizer[index] / GIB),
            activations_gib=float(parts.activations[index] / GIB),
            logits_gib=float(parts.logits[index] / GIB),
            overhead_gib=float(parts.overhead[index] / GIB),
        )
        for index in range(layout.pp)
    )


def _parts(
    job: TrainingJob, x: Configurations, c: Coefficients, layers: Floats, embedding: Floats, head: Floats, index: Floats
) -> MemoryParts:
    model = job.model
    shared = model.tied_embeddings * embedding * head
    outer = embedding * model.embedding_parameters + (head - shared) * model.vocab * model.hidden
    parameters = (layers * model.layer_parameters + outer) / x.tp
    single = job.precision is Precision.fp32
    weight_bytes, gradient_bytes, state_bytes = (4.0, 4.0, 8.0) if single else (2.0, 6.0, 12.0)
    over = {stage: np.where(x.zero_stage >= stage, x.dp, 1.0) for stage in (1, 2, 3)}
    # Under ZeRO 3 the layer at work and the one prefetched stand there whole.
    gathered = np.minimum(2.0, layers) * model.layer_parameters / x.tp * (1 - 1 / over[3])
    tokens = x.microbatch * job.sequence_length
    kept, working = _activation_bytes(job, x)
    in_flight = _in_flight(job, x, index)
    held_layers = layers + _STAGE_LAYERS * (x.pp > 1)
    blocks = tokens * model.hidden * (4.0 if single else 2.0) / x.tp
    surplus = _SURPLUS_MICROBATCH * ((x.pp > 1) & (_microbatches(job, x) > in_flight) & (blocks > _BLOCK_BYTES))
    stored = tokens * (held_layers * (in_flight + surplus) * kept + working * (layers > 0))
    return MemoryParts(
        weights=weight_bytes * (parameters / over[3] + gathered),
        gradients=gradient_bytes * parameters / over[2],
        optimizer=state_bytes * parameters / over[1],
        activations=c.activation_scale * stored,
        logits=head * tokens * model.vocab / x.tp * c.logits_bytes,
        overhead=np.full_like(tokens, c.reserve_gib * GIB),
    )


def _activation_bytes(job: TrainingJob, x: Configurations) -> tuple[Floats, Floats]:
    """Bytes a token that one layer stores, and that the layer at work needs beyond it."""
    element = 4.0 if job.precision is Precision.fp32 else 2.0
    hidden = float(job.model.hidden)
    split = x.tp if job.sequence_parallel else np.ones_like(x.tp)
    inputs = hidden * (_HIDDEN_TENSORS / split + _GATHERED_TENSORS * ((split > 1) & (x.pp == 1)))
    attention, products, cheap = _inner_tensors(job.model, x.tp)
    everything = inputs + attention + products + cheap
    selective = hidden * 3 / split + attention + products
    boundary = hidden / split
    selected, full = x.recompute == RECOMPUTE.index(Recompute.selective), x.recompute == RECOMPUTE.index(Recompute.full)
    stored = np.where(full, boundary, np.where(selected, np.minimum(selective, everything), everything))
    return element * stored, element * (everything - stored)


def _inner_tensors(model: ModelShape, tp: Floats) -> tuple[Floats, Floats, Floats]:
    """Elements a token inside attention, before the activation function, and of what is cheap to compute again."""
    heads, kv_heads = model.heads / tp, np.maximum(model.kv_heads / tp, 1.0)
    attention = model.head_dim * (2 * heads + 2 * kv_heads)
    rotated = model.head_dim * (heads + kv_heads)
    ffn = model.ffn / tp
    return attention, (2 if model.gated_mlp else 1) * ffn, rotated + (2 if model.gated_mlp else 1) * ffn


def _in_flight(job: TrainingJob, x: Configurations, index: Floats) -> Floats:
    """Microbatches whose activations a stage holds: 1F1B pp - index, GPipe all (Narayanan et al. 2021)."""
    microbatches = _microbatches(job, x)
    if job.pipeline_schedule is PipelineSchedule.gpipe:
        return np.where(x.pp > 1, microbatches, 1.0)
    return np.minimum(microbatches, x.pp - index)


def _microbatches(job: TrainingJob, x: Configurations) -> Floats:
    return np.ceil(job.global_batch_size / (x.dp * x.microbatch))
