"""Step time: what each part of a training step takes, adding up to the whole.

A step of a pipeline takes the sum of all stages' times for one microbatch and, for every further microbatch, the time
of the slowest stage (1F1B and GPipe alike, Narayanan et al. 2021). The parts are those of the slowest stage; what the
other stages add is the bubble.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.hardware import Cluster
from tuner.job import Recompute, TrainingJob
from tuner.physics.coefficients import Coefficients
from tuner.physics.configurations import RECOMPUTE, Configurations, Floats
from tuner.physics.kernels import Rates, Work, gpu_rates, head_work, layer_work
from tuner.physics.links import Group, neighbour_bandwidth, rank_group
from tuner.physics.stages import Stages, place_layers

# Computation that overlaps communication is slowed by about a fifth of the time they share.
OVERLAP_SLOWDOWN = 0.19
# Share of a microbatch's time that is backward, behind which gradients can travel.
_BACKWARD_SHARE = 2 / 3
# Collectives of the head, in layers: it gathers its input and scatters the gradient, half of what a layer does.
_HEAD_COLLECTIVES = 0.5
_GRADIENT_BYTES = 4.0

PARTS = (
    "compute_s",
    "memory_s",
    "host_s",
    "tp_s",
    "pp_s",
    "bubble_s",
    "zero_s",
    "dp_s",
    "optimizer_s",
    "other_s",
)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Parts of the step time, arrays of shape ``(n,)``.

    Args:
        parts: Seconds by the names of ``PARTS``, on the slowest stage.
        mean_compute_s: Time an average GPU computes in a step.
        mean_memory_s: Time an average GPU streams memory in a step.
        clocked_s: The part of the step that grows as the clock falls.
    """

    parts: dict[str, Floats]
    mean_compute_s: Floats
    mean_memory_s: Floats

    @property
    def total_s(self) -> Floats:
        """Step time."""
        return sum_of(self.parts)


def sum_of(parts: dict[str, Floats]) -> Floats:
    """Sum of all parts, shape ``(n,)``."""
    total: Floats = np.sum(list(parts.values()), axis=0)
    return total


def clock_factor(frequency_mhz: Floats, cluster: Cluster, c: Coefficients) -> Floats:
    """How much longer the compute part takes at a clock than at the highest: part of it follows 1 / f, part nothing."""
    free = c.clock_free / (1 + c.clock_free)
    return (1 - free) * cluster.gpu.max_clock_mhz / frequency_mhz + free


def step_time(
    job: TrainingJob, cluster: Cluster, x: Configurations, c: Coefficients, frequency_mhz: Floats
) -> StepTime:
    """Step time at the clock that really runs.

    Args:
        job: The training job.
        cluster: The cluster.
        x: Configurations; the clocks asked for are not looked at.
        c: Coefficients.
        frequency_mhz: SM clock that runs, shape ``(n,)``.
    """
    model = job.model
    rates = gpu_rates(job, cluster.gpu, c)
    slower = clock_factor(frequency_mhz, cluster, c)
    layer, head = layer_work(job, x, rates, c), head_work(job, x, rates, c)
    stage = _StageTimes(job, cluster, x, c, rates, layer, head, slower)
    stages = place_layers(model, x.pp, c.head_share)
    per_kind = np.stack([stage.total(stages.layers[k], stages.head[k]) for k in range(3)])
    per_kind = np.where(stages.exists > 0, per_kind, 0.0)
    slowest_kind = np.argmax(per_kind, axis=0)
    columns = np.arange(len(x))
    slowest = per_kind[slowest_kind, columns]
    inner = stages.inner_layers / np.maximum(stages.layers[1], 1) * per_kind[1]
    bubble = per_kind[0] + inner + per_kind[2] - slowest
    microbatches = np.ceil(job.global_batch_size / (x.dp * x.microbatch))
    parts = stage.parts(stages.layers[slowest_kind, columns], stages.head[slowest_kind, columns])
    scaled = {name: microbatches * value for name, value in parts.items()}
    scaled["bubble_s"] = bubble
    weights = _fullest_weights(job, x, stages)
    scaled["dp_s"] = _reduction(x, rank_group(cluster, c, x.dp, x.tp), weights, rates, c, slowest)
    owned = weights / np.where(x.zero_stage >= 1, x.dp, 1.0)
    scaled["optimizer_s"] = owned * c.optimizer_traffic / rates.bandwidth
    scaled["other_s"] = np.full_like(slowest, c.step_s)
    mean = microbatches / x.pp * c.overall
    return StepTime(
        parts={name: c.overall * scaled[name] for name in PARTS},
        mean_compute_s=mean * (model.layers * layer.compute_s + head.compute_s) * slower,
        mean_memory_s=mean * (model.layers * layer.memory_s + head.memory_s) + c.overall * scaled["optimizer_s"],
    )


class _StageTimes:
    """Times of one microbatch, forward and backward, on a stage with so many layers."""

    def __init__(
        self,
        job: TrainingJob,
        cluster: Cluster,
        x: Configurations,
        c: Coefficients,
        rates: Rates,
        layer: Work,
        head: Work,
        slower: Floats,
    ) -> None:
        self.layer, self.head, self.slower = layer, head, slower
        full = x.recompute == RECOMPUTE.index(Recompute.full)
        boundary = x.microbatch * job.sequence_length * job.model.hidden * rates.element_bytes
        across = x.dp * x.tp * x.pp > cluster.gpus_per_node
        # Forward and backward gather and scatter twice each; under full recomputation the forward comes twice.
        collectives = 8.0 * (1 + full / 2)
        group = rank_group(cluster, c, x.tp, np.ones_like(x.tp))
        if job.sequence_parallel:
            self.layer_tp = group.gather_s(boundary, 1.0) * collectives
        else:
            self.layer_tp = group.reduce_s(boundary, 1.0) * collectives / 2
        stalled = across * (x.pp > 1) * collectives * (x.tp - 1) * c.stalled_hop_s
        self.layer_host = c.host_layer_s * (1 + full / 3) + (x.tp > 1) * (c.host_collective_s + stalled)
        self.layer_zero = _sharded_traffic(job, x, rank_group(cluster, c, x.dp, x.tp), rates)
        split = x.tp if job.sequence_parallel else 1.0
        sent = 2 * boundary / split / neighbour_bandwidth(cluster, c, x.dp * x.tp)
        self.handover = np.where(x.pp > 1, c.handover_s + sent, 0.0)

    def parts(self, layers: Floats, head: Floats) -> dict[str, Floats]:
        compute = (layers * self.layer.compute_s + head * self.head.compute_s) * self.slower
        memory = layers * self.layer.memory_s + head * self.head.memory_s
        tp = (layers + _HEAD_COLLECTIVES * head) * self.layer_tp
        traffic = layers * self.layer_zero
        work = compute + memory
        zero = np.maximum(traffic - work, 0.0) + OVERLAP_SLOWDOWN * np.minimum(traffic, work)
        host = np.maximum(layers * self.layer_host - (work + tp + zero), 0.0)
        return {
            "compute_s": compute,
            "memory_s": memory,
            "host_s": host,
            "tp_s": tp,
            "pp_s": self.handover,
            "zero_s": zero,
        }

    def total(self, layers: Floats, head: Floats) -> Floats:
        return sum_of(self.parts(layers, head))


def _sharded_traffic(job: TrainingJob, x: Configurations, group: Group, rates: Rates) -> Floats:
    """Time of a layer's ZeRO traffic in each microbatch: stage 2 scatters gradients, 3 also gathers weights twice."""
    size = job.model.layer_parameters / x.tp * rates.element_bytes
    once = group.gather_s(size)
    return once * np.where(x.zero_stage == 3, 3.0, np.where(x.zero_stage == 2, 1.0, 0.0))


def _fullest_weights(job: TrainingJob, x: Configurations, stages: Stages) -> Floats:
    """Parameters on one GPU of the stage that holds most."""
    model = job.model
    head = stages.head if not model.tied_embeddings else np.maximum(stages.head - stages.embedding, 0.0)
    outer = stages.embedding * model.embedding_parameters + head * model.vocab * model.hidden
    fullest: Floats = np.max((stages.layers * model.layer_parameters + outer) * stages.exists, axis=0)
    return fullest / x.tp


def _reduction(
    x: Configurations, group: Group, weights: Floats, rates: Rates, c: Coefficients, microbatch_s: Floats
) -> Floats:
    """Exposed time of the gradients' reduction and the weights' gathering, once a step."""
    gradients = weights * _GRADIENT_BYTES
    buckets = np.maximum(gradients / c.bucket_bytes, 1.0)
    reduce = np.where(x.zero_stage == 0, group.reduce_s(gradients, buckets), 0.0)
    scatter = np.where(x.zero_stage == 1, group.gather_s(gradients, buckets), 0.0)
    weight_bytes = weights * rates.element_bytes
    gather = np.where(
        (x.zero_stage == 1) | (x.zero_stage == 2),
        group.gather_s(weight_bytes, np.maximum(weight_bytes / c.bucket_bytes, 1.0)),
        0.0,
    )
    travelling = reduce + scatter
    hidden = np.minimum(travelling * c.overlap / (1 + c.overlap), _BACKWARD_SHARE * microbatch_s)
    return travelling - hidden * (1 - OVERLAP_SLOWDOWN) + gather
