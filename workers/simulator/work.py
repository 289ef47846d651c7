"""What one optimizer step asks of each pipeline stage, in seconds at the highest clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.job import Precision, Recompute, TrainingJob
from tuner.layout import Layout
from workers.simulator.collectives import Group, all_reduce_s, reduce_scatter_s, send_s
from workers.simulator.kernels import KernelTime, bandwidth, flash_attention, gemm, streaming
from workers.simulator.memory import element_bytes, stage_parameters
from workers.simulator.topology import Topology, place

Array = NDArray[np.float64]

_LAUNCH_S = 6e-6  # An eager PyTorch operator costs the host 5 to 10 us, its kernel launch included.
_FORWARD_KERNELS, _BACKWARD_KERNELS = 36, 70  # Of one block; more than the products, as norms and casts count too.
_SHARDED_HOST = 1.7  # Operators on sharded tensors (DTensor) cost the host more; an assumption.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Work of every stage. All arrays have the shape ``(stages,)`` but those of kernels, ``(stages, 3)``.

    The three kinds of kernels are matrix products, attention, and streaming.

    Args:
        core_s: Kernel time of a microbatch, forward and backward, as bound by the core.
        memory_s: The same as bound by memory.
        launch_s: Host time to launch the kernels of a microbatch.
        tensor_s: Tensor-parallel collectives of a microbatch.
        send_s: Pipeline transfers of a microbatch, both ways over the boundary behind the stage.
        shard_s: Gathers and scatters of ZeRO that every microbatch needs.
        reduce_s: Gradient reduction once a step.
        gather_s: Gathering of updated weights once a step.
        optimizer_s: Optimizer update, bound by memory.
        intensity: How busy matrix products keep the tensor cores, 0 to 1.
        backward: Share of a microbatch's time that is backward.
        microbatches: Microbatches of one replica in a step.
    """

    core_s: Array
    memory_s: Array
    launch_s: Array
    tensor_s: Array
    send_s: Array
    shard_s: Array
    reduce_s: Array
    gather_s: Array
    optimizer_s: Array
    intensity: Array
    backward: float
    microbatches: int


@lru_cache(maxsize=1024)
def stage_work(job: TrainingJob, layout: Layout, cluster: Cluster) -> Work:
    """Work out what every stage does in a step."""
    topology = place(layout, cluster)
    rows = [_compute(job, layout, cluster, stage) for stage in range(layout.pp)]
    weights = [stage_parameters(job, layout, stage) for stage in range(layout.pp)]
    data = Group(layout.dp, topology.dp_nodes)
    per_microbatch, reduce, gather = zip(*(_data_parallel(job, cluster, data, w) for w in weights), strict=True)
    shards = layout.dp if job.zero_stage >= 1 else 1
    return Work(
        core_s=np.array([[kind.core_s for kind in row] for row in rows]),
        memory_s=np.array([[kind.memory_s for kind in row] for row in rows]),
        launch_s=np.full(layout.pp, _launch_s(job, layout) * job.model.layers / layout.pp),
        tensor_s=_tensor_parallel(job, layout, cluster, topology),
        send_s=_sends(job, layout, cluster, topology),
        shard_s=np.array(per_microbatch),
        reduce_s=np.array(reduce),
        gather_s=np.array(gather),
        optimizer_s=np.array([_optimizer_bytes(job) * w / shards / bandwidth(cluster.gpu) for w in weights]) + 2e-3,
        intensity=np.array([row[0].intensity for row in rows]),
        backward=2 / 3 if job.recompute is not Recompute.full else 3 / 4,
        microbatches=layout.microbatches(job.global_batch_size),
    )


def _launch_s(job: TrainingJob, layout: Layout) -> float:
    again = _FORWARD_KERNELS if job.recompute is Recompute.full else 0
    each = _LAUNCH_S * (_SHARDED_HOST if layout.tp > 1 else 1)
    return (_FORWARD_KERNELS + _BACKWARD_KERNELS + again) * each


def _compute(job: TrainingJob, layout: Layout, cluster: Cluster, stage: int) -> tuple[KernelTime, ...]:
    """Matrix products, attention and streaming of one microbatch on one GPU of a stage, forward and backward."""
    model, gpu, tp = job.model, cluster.gpu, layout.tp
    tokens = layout.microbatch * job.sequence_length
    blocks = model.layers // layout.pp
    queries, values = model.heads * model.head_dim, model.kv_heads * model.head_dim
    up = (2 if model.gated_mlp else 1) * model.ffn
    shapes = [
        ((queries + 2 * values) // tp, model.hidden),
        (model.hidden, queries // tp),
        (up // tp, model.hidden),
        (model.hidden, model.ffn // tp),
    ]
    again = job.recompute is Recompute.full
    products = [(n, k, blocks, 2 if again else 1) for n, k in shapes]
    attention = _attention(job, layout, cluster)
    # Norms and residuals, which only sequence parallelism divides; rotary embedding; the gate.
    share = 1 / tp if job.sequence_parallel else 1.0
    wide = 8 * model.hidden * share + (4 * (queries + values) + 3 * model.ffn) / tp
    forward_bytes = tokens * element_bytes(job) * wide
    passes = 3.6 + (1 if again else 0.5 if job.recompute is Recompute.selective else 0)
    traffic = blocks * passes * forward_bytes
    # Every microbatch adds its gradients to the sum: two reads and a write of each.
    traffic += 3 * element_bytes(job) * stage_parameters(job, layout, stage)
    if stage == 0:
        traffic += 6 * tokens * model.hidden * element_bytes(job)
    if stage == layout.pp - 1:
        products.append((-(-model.vocab // tp), model.hidden, 1, 1))
        traffic += 22 * tokens * model.vocab / tp
    times = [_product(job, cluster, tokens, n, k, count, forwards) for n, k, count, forwards in products]
    core = sum(time.core_s for time in times)
    busy = sum(time.core_s * time.intensity for time in times) / core
    matrix = KernelTime(core_s=core, memory_s=sum(time.memory_s for time in times), intensity=busy)
    fused = KernelTime(core_s=blocks * attention.core_s, memory_s=blocks * attention.memory_s)
    return matrix, fused, streaming(gpu, traffic)


def _product(job: TrainingJob, cluster: Cluster, m: int, n: int, k: int, count: int, forwards: int) -> KernelTime:
    forward = gemm(cluster.gpu, job, m, n, k)
    inputs = gemm(cluster.gpu, job, m, k, n)
    weights = gemm(cluster.gpu, job, n, k, m)
    total = forwards * forward.core_s + inputs.core_s + weights.core_s
    memory = forwards * forward.memory_s + inputs.memory_s + weights.memory_s
    busy = forwards * forward.core_s * forward.intensity + inputs.core_s * inputs.intensity
    busy += weights.core_s * weights.intensity
    return KernelTime(core_s=count * total, memory_s=count * memory, intensity=busy / total)


def _attention(job: TrainingJob, layout: Layout, cluster: Cluster) -> KernelTime:
    heads = job.model.heads / layout.tp
    forward = flash_attention(cluster.gpu, job, layout.microbatch, heads, backward=False)
    backward = flash_attention(cluster.gpu, job, layout.microbatch, heads, backward=True)
    passes = 1 if job.recompute is Recompute.none else 2
    return KernelTime(
        core_s=passes * forward.core_s + backward.core_s, memory_s=passes * forward.memory_s + backward.memory_s
    )


def _tensor_parallel(job: TrainingJob, layout: Layout, cluster: Cluster, topology: Topology) -> Array:
    """Two all-reduces a block in each pass (Shoeybi et al. 2019); sequence parallelism only splits them in halves."""
    group = Group(layout.tp, topology.tp_nodes)
    payload = layout.microbatch * job.sequence_length * job.model.hidden * element_bytes(job)
    once = all_reduce_s(cluster, group, payload)
    passes = 6 if job.recompute is Recompute.full else 4
    total = np.full(layout.pp, passes * job.model.layers / layout.pp * once)
    total[0] += once
    total[-1] += 1.5 * once
    return total


def _sends(job: TrainingJob, layout: Layout, cluster: Cluster, topology: Topology) -> Array:
    share = 1 / layout.tp if job.sequence_parallel else 1.0
    payload = layout.microbatch * job.sequence_length * job.model.hidden * element_bytes(job) * share
    total = np.zeros(layout.pp)
    for stage, crosses in enumerate(topology.crossings):
        total[stage] = 2 * send_s(cluster, payload, crosses=crosses)
    return total


def _data_parallel(job: TrainingJob, cluster: Cluster, group: Group, weights: int) -> tuple[float, float, float]:
    """Seconds of ZeRO traffic a microbatch, of gradient reduction a step, and of weight gathering a step.

    Which of them a stage of ZeRO needs follows Rajbhandari et al. 2020: stage 2 scatters gradients and stage 3 gathers
    weights in every microbatch, as neither is kept whole.
    """
    gather = reduce_scatter_s(cluster, group, weights * element_bytes(job))
    # Gradients are summed in fp32, the default of Megatron-LM and torchtitan.
    reduce = reduce_scatter_s(cluster, group, weights * 4)
    match job.zero_stage:
        case 0:
            return 0.0, 2 * reduce, 0.0
        case 1:
            return 0.0, reduce, gather
        case 2:
            return reduce, 0.0, gather
        case _:
            return 2 * gather + reduce, 0.0, 0.0


def _optimizer_bytes(job: TrainingJob) -> int:
    # Adam reads and writes both moments and the master weights in fp32, reads the gradient, writes the weight.
    return 28 if job.precision is Precision.fp32 else 32
