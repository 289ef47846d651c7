"""Time of one optimizer step when every row of boards runs at its own clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.simulator.quirks import Quirks
from workers.simulator.topology import Topology
from workers.simulator.work import Work

Array = NDArray[np.float64]

_COMM_CORE_SHARE = 0.12  # NCCL's copy and reduce kernels run on SMs, so a small part of a collective follows the clock.
_CONTENTION = 0.14  # Kernels beside a collective lose SMs and bandwidth to it (Rashidi et al. 2021).
_HIDEABLE = 0.80  # Share of the backward pass behind which the reduction's buckets can hide.
_ASYNC = 0.5  # Share of tensor-parallel traffic that a chunked product hides (torchtitan's async tensor parallelism).
_TAIL = 0.06  # The last bucket has nothing left to hide behind.
_STIFF_CLOCK = 0.8  # Relative clock at which a stiff kernel is as fast as one that follows the clock.
_BANDWIDTH_KNEE = 0.45  # Relative clock under which the SMs no longer keep the memory busy.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Busy:
    """What the boards of each row do in one microbatch.

    Args:
        phases_s: Seconds of matrix products, attention, streaming, exposed communication, and of gaps in which the host
            has not launched the next kernel or the allocator holds it up; shape ``(..., rows, 5)``.
        hidden_s: Seconds of communication beside kernels, shape ``(..., rows)``.
    """

    phases_s: Array
    hidden_s: Array

    @property
    def total_s(self) -> Array:
        """Seconds of one microbatch, shape ``(..., rows)``."""
        total: Array = self.phases_s.sum(axis=-1)
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One optimizer step.

    Args:
        time_s: Seconds of the step.
        exposed_s: Seconds of data-parallel communication that nothing hides, shape ``(rows,)``.
        hidden_s: Seconds of data-parallel communication beside the backward pass, shape ``(rows,)``.
        optimizer_s: Seconds of the optimizer update, shape ``(rows,)``.
        busy_s: Seconds in microbatches, shape ``(rows,)``; what is left of the step is waiting.
    """

    time_s: float
    exposed_s: Array
    hidden_s: Array
    optimizer_s: Array
    busy_s: Array


def microbatch(work: Work, topology: Topology, quirks: Quirks, relative_clock: Array) -> Busy:
    """Work of one microbatch on each row, forward and backward, at the rows' clocks, shape ``(..., rows)``."""
    stage = topology.stage
    slow = (quirks.compute * quirks.node_slowdown[topology.node])[..., None]
    clock = relative_clock[..., None]
    core = work.core_s[stage] * ((1 - quirks.stiffness) / clock + quirks.stiffness / _STIFF_CLOCK)
    memory = work.memory_s[stage] * _memory_slowdown(clock)
    # A kernel is as slow as its tighter bound, and a little slower where both are near.
    kernels = slow * (core**5 + memory**5) ** 0.2
    running = kernels.sum(axis=-1)
    shard = work.shard_s[stage] * quirks.network * _comm_slowdown(relative_clock)
    tensor = work.tensor_s[stage] * quirks.link * _comm_slowdown(relative_clock)
    hidden = np.minimum(shard * (1 - _TAIL) + _ASYNC * tensor, _HIDEABLE * running)
    kernels = kernels * (1 + _CONTENTION * hidden / running)[..., None]
    running = kernels.sum(axis=-1)
    gaps = (running**4 + work.launch_s[stage] ** 4) ** 0.25 - running + quirks.stall * work.core_s[stage].sum(axis=-1)
    sends = 0.5 * (work.send_s + np.concatenate(([0.0], work.send_s[:-1])))[stage] * quirks.network
    exposed = tensor + shard - hidden + sends * _comm_slowdown(relative_clock)
    return Busy(
        phases_s=np.concatenate([kernels, exposed[..., None], gaps[..., None]], axis=-1),
        hidden_s=np.broadcast_to(hidden, running.shape),
    )


def optimizer_step(work: Work, topology: Topology, quirks: Quirks, relative_clock: Array, busy: Busy) -> Step:
    """Put microbatches, the pipeline, and the end of the step together.

    Args:
        work: Work of the stages.
        topology: Where the stages are.
        quirks: Deviations of the layout.
        relative_clock: Clock of each row over the highest, shape ``(rows,)``.
        busy: The rows' microbatches at those clocks.
    """
    stages = len(work.launch_s)
    each = busy.total_s
    # The slowest node holds up its stage, and the slowest stage the pipeline (1F1B, Narayanan et al. 2021).
    stage_s = _slowest(each, topology, stages)
    pipeline_s = stage_s.sum() + (work.microbatches - 1) * stage_s.max() + 0.5 * work.send_s.sum() * quirks.network
    slowdown = _comm_slowdown(_slowest(relative_clock, topology, stages, worst=np.minimum)) * quirks.network
    reduce_s, gather_s = work.reduce_s * slowdown, work.gather_s * slowdown
    backward_s = work.backward * stage_s
    hidden_s = np.minimum(reduce_s * (1 - _TAIL), _HIDEABLE * backward_s)
    late_s = reduce_s - hidden_s + _CONTENTION * hidden_s
    # Stage i finishes its last backward before the stages in front of it do, so its reduction has a head start.
    head_start_s = np.concatenate(([0.0], np.cumsum(backward_s)[:-1]))
    end_s = pipeline_s + np.max(late_s - head_start_s)
    optimizer_s = work.optimizer_s * quirks.compute
    return Step(
        time_s=float(end_s + np.max(optimizer_s + gather_s)),
        exposed_s=(reduce_s - hidden_s + gather_s)[topology.stage],
        hidden_s=hidden_s[topology.stage],
        optimizer_s=optimizer_s[topology.stage],
        busy_s=work.microbatches * each + (_CONTENTION * hidden_s)[topology.stage],
    )


def _comm_slowdown(relative_clock: Array) -> Array:
    return 1 - _COMM_CORE_SHARE + _COMM_CORE_SHARE / relative_clock


def _memory_slowdown(relative_clock: Array) -> Array:
    slowdown: Array = (1 + (_BANDWIDTH_KNEE / relative_clock) ** 4) ** 0.25
    return slowdown


def _slowest(values: Array, topology: Topology, stages: int, worst: np.ufunc = np.maximum) -> Array:
    result = np.full(stages, -np.inf if worst is np.maximum else np.inf)
    worst.at(result, topology.stage, values)
    return result
