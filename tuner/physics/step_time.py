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
from tuner.physics.kernels import Rates, gpu_rates, head_work, layer_work
from tuner.physics.links import Group, neighbour_bandwidth, rank_group
from tuner.physics.stages import Stages, place_layers

# Computation under which communication runs is slowed by 18.9 % on average (Lee et al. 2025, "Characterizing
# Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning": four A100, H100, MI210 and MI250).
OVERLAP_SLOWDOWN = 0.19
# Share of a microbatch's time that is backward, behind which gradients can travel.
_BACKWARD_SHARE = 2 / 3
# Collectives of the head, in layers: it gathers its input and scatters the gradient, half of what a layer does.
_HEAD_COLLECTIVES = 0.5
_GRADIENT_BYTES = 4.0
# Of the stages that can bind, those that differ in time: the second is never slower than the longest inner one.
_TIMED = [0, 2, 3]

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


class StepModel:
    """The step of every configuration, ready to be evaluated at any clock.

    Args:
        job: The training job.
        cluster: The cluster.
        x: Configurations, n of them; the clocks they ask for are not looked at.
        c: Coefficients.
    """

    def __init__(self, job: TrainingJob, cluster: Cluster, x: Configurations, c: Coefficients) -> None:
        rates = gpu_rates(job, cluster.gpu, c)
        group = rank_group(cluster, c, x.dp, x.tp)
        self._cluster, self._x, self._c = cluster, x, c
        self._stages = place_layers(job.model, x.pp, c.head_share)
        self._layer, self._head = layer_work(job, x, rates, c), head_work(job, x, rates, c)
        self._layer_host, self._layer_tp, self._handover = _launches_and_links(job, cluster, x, c, rates)
        self._layer_zero = _sharded_traffic(job, x, group, rates)
        self._microbatches = np.ceil(job.global_batch_size / (x.dp * x.microbatch))
        self._layers = job.model.layers
        weights = _fullest_weights(job, x, self._stages)
        self._travelling_s, self._gathering_s = _reduction(x, group, weights, rates, c)
        owned = weights / np.where(x.zero_stage >= 1, x.dp, 1.0)
        self._optimizer_s = owned * c.optimizer_traffic / rates.bandwidth

    def at(self, frequency_mhz: Floats) -> StepTime:
        """The step at the SM clock that runs, in MHz, shape ``(n,)``."""
        slower = clock_factor(frequency_mhz, self._cluster, self._c)
        stages, overall = self._stages, self._c.overall
        per_kind = np.stack([sum_of(self._microbatch(stages.layers[k], stages.head[k], slower)) for k in _TIMED])
        per_kind = np.where(stages.exists[_TIMED] > 0, per_kind, 0.0)
        slowest, columns = np.argmax(per_kind, axis=0), np.arange(len(self._x))
        slowest_s, kind = per_kind[slowest, columns], np.array(_TIMED)[slowest]
        inner_s = stages.inner_layers / np.maximum(stages.layers[2], 1) * per_kind[1]
        parts = self._microbatch(stages.layers[kind, columns], stages.head[kind, columns], slower)
        parts = {name: self._microbatches * value for name, value in parts.items()}
        # Every microbatch crosses to each neighbour and back; the first one crosses every link of the pipeline.
        neighbours, links = np.minimum(self._x.pp - 1, 2), self._x.pp - 1
        parts["pp_s"] = self._microbatches * neighbours * self._handover
        parts["bubble_s"] = per_kind[0] + inner_s + per_kind[2] - slowest_s + (links - neighbours) * self._handover
        parts["dp_s"] = self._exposed(slowest_s) + self._gathering_s
        parts["optimizer_s"] = self._optimizer_s
        parts["other_s"] = np.zeros_like(slowest_s) + self._c.step_s
        share = overall * self._microbatches / self._x.pp
        return StepTime(
            parts={name: overall * parts[name] for name in PARTS},
            mean_compute_s=share * (self._layers * self._layer.compute_s + self._head.compute_s) * slower,
            mean_memory_s=share * (self._layers * self._layer.memory_s + self._head.memory_s)
            + overall * self._optimizer_s,
        )

    def _microbatch(self, layers: Floats, head: Floats, slower: Floats) -> dict[str, Floats]:
        """Parts of one microbatch, forward and backward, on a stage with so many layers and the head or not."""
        compute = (layers * self._layer.compute_s + head * self._head.compute_s) * slower
        memory = layers * self._layer.memory_s + head * self._head.memory_s
        tp = (layers + _HEAD_COLLECTIVES * head) * self._layer_tp
        traffic, work = layers * self._layer_zero, compute + memory
        zero = np.maximum(traffic - work, 0.0) + OVERLAP_SLOWDOWN * np.minimum(traffic, work)
        host = _host_excess(work + tp + zero, layers * self._layer_host)
        return {
            "compute_s": compute,
            "memory_s": memory,
            "host_s": host,
            "tp_s": tp,
            "zero_s": zero,
        }

    def _exposed(self, microbatch_s: Floats) -> Floats:
        """What the gradients' way adds to the step: all that does not hide behind the last backward pass."""
        hidden = np.minimum(
            self._travelling_s * self._c.overlap / (1 + self._c.overlap), _BACKWARD_SHARE * microbatch_s
        )
        return self._travelling_s - hidden * (1 - OVERLAP_SLOWDOWN)


def _host_excess(device_s: Floats, host_s: Floats) -> Floats:
    """What the host adds where it launches kernels hardly faster than the GPU runs them.

    A hard maximum would hold only if neither ever waited for the other; near the tie both do, so it is a soft one.
    """
    device, host = (device_s * device_s) ** 2, (host_s * host_s) ** 2
    excess: Floats = np.sqrt(np.sqrt(device + host)) - device_s
    return np.maximum(excess, 0.0)


def _launches_and_links(
    job: TrainingJob, cluster: Cluster, x: Configurations, c: Coefficients, rates: Rates
) -> tuple[Floats, Floats, Floats]:
    """Of one microbatch: the host's time for a layer, a layer's collectives, the hand-over to one neighbour."""
    again = x.recompute == RECOMPUTE.index(Recompute.full)
    boundary = x.microbatch * job.sequence_length * job.model.hidden * rates.element_bytes
    # Forward and backward gather and scatter twice each; under full recomputation the forward comes twice.
    collectives = 8.0 * (1 + again / 2)
    group = rank_group(cluster, c, x.tp, np.ones_like(x.tp))
    if job.sequence_parallel:
        layer_tp = group.gather_s(boundary) * collectives
    else:
        layer_tp = group.reduce_s(boundary) * collectives / 2
    pipelined = (x.pp > 1) & (x.dp * x.tp * x.pp > cluster.gpus_per_node)
    stalled = pipelined * collectives * (x.tp - 1) * c.stalled_hop_s
    layer_host = c.host_layer_s * (1 + again / 3) + (x.tp > 1) * (c.host_collective_s + stalled)
    split = x.tp if job.sequence_parallel else 1.0
    sent = 2 * boundary / split / neighbour_bandwidth(cluster, c, x.dp * x.tp)
    return layer_host, layer_tp, c.handover_s + sent


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
    x: Configurations, group: Group, weights: Floats, rates: Rates, c: Coefficients
) -> tuple[Floats, Floats]:
    """Once a step: the gradients' way, which can hide behind the backward pass, and the weights', which cannot."""
    gradients, values = weights * _GRADIENT_BYTES, weights * rates.element_bytes
    buckets = np.maximum(gradients / c.bucket_bytes, 1.0)
    reduce = np.where(x.zero_stage == 0, group.reduce_s(gradients, buckets), 0.0)
    scatter = np.where(x.zero_stage == 1, group.gather_s(gradients, buckets), 0.0)
    sharded = (x.zero_stage == 1) | (x.zero_stage == 2)
    gather = np.where(sharded, group.gather_s(values, np.maximum(values / c.bucket_bytes, 1.0)), 0.0)
    return reduce + scatter, gather
