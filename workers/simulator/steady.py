"""The steady state of a launch at one clock: the noise-free truth behind every simulated measurement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster, GpuSpec
from tuner.job import TrainingJob
from tuner.layout import Layout
from workers.simulator import power
from workers.simulator.quirks import Quirks, draw_quirks
from workers.simulator.step_time import Busy, Step, microbatch, optimizer_step
from workers.simulator.thermal import steady_temperature_c
from workers.simulator.topology import Topology, place
from workers.simulator.work import Work, stage_work

Array = NDArray[np.float64]

_GRID = 64  # Clocks on which busy power is tabulated to find where the cap bites.


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """What a launch settles to.

    Args:
        step_time_s: Seconds of an optimizer step.
        energy_j: Joules of a step over all boards.
        achieved_mhz: Median clock of the boards under load.
        temperature_c: Mean board temperature.
        power_cap_share: Share of time, over all boards, in which the power limit holds the clock down.
    """

    step_time_s: float
    energy_j: float
    achieved_mhz: int
    temperature_c: float
    power_cap_share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """A layout on its boards.

    Args:
        counts: Boards of each row.
        mean_gain: Mean power gain of each row's boards.
        worst_gain: Highest power gain of each row's boards.
        grid: Relative clocks, ascending, shape ``(clocks,)``.
        grid_w: Switching power in a microbatch on that grid, shape ``(clocks, rows)``.
    """

    gpu: GpuSpec
    work: Work
    topology: Topology
    quirks: Quirks
    counts: NDArray[np.int64]
    mean_gain: Array
    worst_gain: Array
    grid: Array
    grid_w: Array


def steady_state(seed: int, job: TrainingJob, layout: Layout, cluster: Cluster, frequency_mhz: int) -> SteadyState:
    """Find the clocks, temperatures, time and energy that a launch settles to.

    Power sets the temperature, the temperature the leakage, and leakage under a power cap the clock, so the three are
    iterated to their fixed point; each round shrinks the error about thirtyfold.
    """
    rows = _prepare(seed, job, layout, cluster)
    requested = np.full(len(rows.counts), frequency_mhz / cluster.gpu.max_clock_mhz)
    ambient = rows.quirks.node_ambient_k[rows.topology.node]
    temperature = np.full(len(rows.counts), 60.0)
    clock = np.zeros(0)
    for _ in range(12):
        allowed = np.minimum(requested, _cap_clock(rows, temperature))
        # Only a capped clock moves with the temperature.
        if not np.array_equal(allowed, clock):
            clock = allowed
            busy = microbatch(rows.work, rows.topology, rows.quirks, clock)
            step = optimizer_step(rows.work, rows.topology, rows.quirks, clock, busy)
        board_j = _board_energy_j(rows, step, busy, clock, requested, temperature)
        before, temperature = temperature, steady_temperature_c(cluster.gpu, board_j / step.time_s, ambient)
        if np.abs(temperature - before).max() < 1e-6:
            break
    capped_s = np.where(clock < requested, step.busy_s, 0.0)
    return SteadyState(
        step_time_s=step.time_s,
        energy_j=float(board_j @ rows.counts),
        achieved_mhz=_nearest_clock(cluster.gpu, frequency_mhz, float(np.median(np.repeat(clock, rows.counts)))),
        temperature_c=float(temperature @ rows.counts / cluster.world_size),
        power_cap_share=float(capped_s @ rows.counts / (step.time_s * cluster.world_size)),
    )


@lru_cache(maxsize=256)
def _prepare(seed: int, job: TrainingJob, layout: Layout, cluster: Cluster) -> _Rows:
    topology = place(layout, cluster)
    quirks = draw_quirks(seed, job, layout, cluster)
    work = stage_work(job, layout, cluster)
    gains = [quirks.board_gain[boards] for boards in topology.boards]
    lowest = cluster.gpu.min_clock_mhz / cluster.gpu.max_clock_mhz
    grid = np.linspace(lowest, 1.0, _GRID)
    clock = np.broadcast_to(grid[:, None], (_GRID, len(gains)))
    busy = microbatch(work, topology, quirks, clock)
    return _Rows(
        gpu=cluster.gpu,
        work=work,
        topology=topology,
        quirks=quirks,
        counts=np.array([len(gain) for gain in gains]),
        mean_gain=np.array([gain.mean() for gain in gains]),
        # Boards of a row work in lockstep, so the hungriest, which the cap slows most, sets the pace of all.
        worst_gain=np.array([gain.max() for gain in gains]),
        grid=grid,
        grid_w=_switching_j(cluster.gpu, work, topology, quirks, busy, clock) / busy.total_s,
    )


def _switching_j(gpu: GpuSpec, work: Work, topology: Topology, quirks: Quirks, busy: Busy, clock: Array) -> Array:
    """Joules of one microbatch on a typical board of each row beyond its standing power, shape as of ``clock``."""
    # Tensor cores that wait for operands or sit out a partial wave still cost part of their power.
    matrix = (0.25 + 0.75 * work.intensity[topology.stage]) * quirks.activity
    phases = (power.MATRIX, power.ATTENTION, power.STREAMING, power.COMMUNICATION, power.WAITING)
    scales: tuple[Array | float, ...] = (matrix, quirks.activity, quirks.activity, 1.0, 1.0)
    joules: Array = busy.hidden_s * power.link_w(gpu)
    for index, (phase, scale) in enumerate(zip(phases, scales, strict=True)):
        joules = joules + power.switching_w(gpu, phase, clock, scale) * busy.phases_s[..., index]
    return joules


def _cap_clock(rows: _Rows, temperature: Array) -> Array:
    """Highest relative clock of each row at which no board passes its power limit while it works."""
    watts = rows.worst_gain * (rows.grid_w + power.standing_w(rows.gpu, rows.grid[:, None], temperature))
    limit = rows.gpu.power_limit_w
    return np.array([np.interp(limit, np.maximum.accumulate(column), rows.grid) for column in watts.T])


def _board_energy_j(rows: _Rows, step: Step, busy: Busy, clock: Array, requested: Array, temperature: Array) -> Array:
    """Joules of one step on the mean board of each row."""
    gpu = rows.gpu
    waiting_s = step.time_s - step.busy_s - step.exposed_s - step.optimizer_s
    joules = step.busy_s / busy.total_s * _switching_j(gpu, rows.work, rows.topology, rows.quirks, busy, clock)
    joules += step.busy_s * power.standing_w(gpu, clock, temperature)
    joules += step.hidden_s * power.link_w(gpu)
    # Outside the microbatches the load is light, and the clock is the one asked for.
    joules += step.exposed_s * power.switching_w(gpu, power.COMMUNICATION, requested)
    joules += step.optimizer_s * power.switching_w(gpu, power.STREAMING, requested)
    joules += waiting_s * power.switching_w(gpu, power.WAITING, requested)
    joules += (step.time_s - step.busy_s) * power.standing_w(gpu, requested, temperature)
    return rows.mean_gain * joules


def _nearest_clock(gpu: GpuSpec, requested_mhz: int, relative_clock: float) -> int:
    steps = round((gpu.max_clock_mhz - relative_clock * gpu.max_clock_mhz) / gpu.clock_step_mhz)
    return min(requested_mhz, gpu.max_clock_mhz - steps * gpu.clock_step_mhz)
