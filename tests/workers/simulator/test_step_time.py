from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuner.hardware import Cluster
from tuner.job import Recompute, TrainingJob
from tuner.layout import Layout
from workers.simulator.quirks import Quirks, draw_quirks
from workers.simulator.step_time import microbatch, optimizer_step
from workers.simulator.topology import place
from workers.simulator.work import stage_work


def plain(cluster: Cluster, job: TrainingJob, layout: Layout) -> Quirks:
    quirks = draw_quirks(0, job, layout, cluster)
    return replace(quirks, compute=1.0, link=1.0, network=1.0, stall=0.0, node_slowdown=np.ones(cluster.nodes))


def step_s(cluster: Cluster, job: TrainingJob, layout: Layout, clock: float = 0.8) -> float:
    topology, work, quirks = place(layout, cluster), stage_work(job, layout, cluster), plain(cluster, job, layout)
    clocks = np.full(len(topology.boards), clock)
    busy = microbatch(work, topology, quirks, clocks)
    return optimizer_step(work, topology, quirks, clocks, busy).time_s


def slowdown(cluster: Cluster, job: TrainingJob, layout: Layout) -> float:
    return step_s(cluster, job, layout, 0.5) / step_s(cluster, job, layout, 0.8) - 1


def test_communication_heavy_layouts_lose_less_at_a_lower_clock(cluster: Cluster, job: TrainingJob) -> None:
    compute_heavy, in_node, over_network = (
        slowdown(cluster, job, layout) for layout in (Layout(16, 1, 1, 2), Layout(2, 8, 1, 2), Layout(1, 16, 1, 2))
    )
    assert compute_heavy > 1.2 * in_node > 1.5 * over_network > 0
    assert compute_heavy < 0.6


def test_a_deep_pipeline_with_few_microbatches_waits(cluster: Cluster, job: TrainingJob) -> None:
    few = replace(job, global_batch_size=16)
    layout = Layout(1, 1, 16, 1)
    assert step_s(cluster, few, layout) > 1.5 * step_s(cluster, job, layout) / 8


def test_the_last_stage_carries_the_output_layer(cluster: Cluster, job: TrainingJob) -> None:
    work = stage_work(job, Layout(1, 1, 16, 1), cluster)
    matrix_s = work.core_s[:, 0]
    assert matrix_s[0] == pytest.approx(matrix_s[1])
    assert 1.2 < matrix_s[-1] / matrix_s[1] < 1.6


def test_full_recompute_costs_about_a_third_more_compute(cluster: Cluster, job: TrainingJob) -> None:
    layout = Layout(16, 1, 1, 1)
    again = step_s(cluster, replace(job, recompute=Recompute.full), layout) / step_s(cluster, job, layout)
    assert 1.2 < again < 1.4


def test_zero_3_gathers_in_every_microbatch(cluster: Cluster, job: TrainingJob) -> None:
    layout = Layout(16, 1, 1, 1)
    work = stage_work(replace(job, zero_stage=3), layout, cluster)
    assert work.shard_s[0] > stage_work(job, layout, cluster).reduce_s[0]
    assert step_s(cluster, replace(job, zero_stage=3), layout) > step_s(cluster, job, layout)


def test_a_straggling_node_holds_up_the_whole_step(cluster: Cluster, job: TrainingJob) -> None:
    layout = Layout(16, 1, 1, 1)
    topology, work, quirks = place(layout, cluster), stage_work(job, layout, cluster), plain(cluster, job, layout)
    clocks = np.full(2, 0.8)
    slow = replace(quirks, node_slowdown=np.array([1.0, 1.05]))
    times = []
    for each in (quirks, slow):
        times.append(optimizer_step(work, topology, each, clocks, microbatch(work, topology, each, clocks)).time_s)
    assert times[1] / times[0] == pytest.approx(1.05, abs=0.01)


def test_short_kernels_wait_for_the_host_whatever_the_clock(cluster: Cluster, job: TrainingJob) -> None:
    short = replace(job, sequence_length=256)
    assert slowdown(cluster, short, Layout(2, 8, 1, 1)) < 0.1
    gaps = microbatch(
        stage_work(short, Layout(2, 8, 1, 1), cluster),
        place(Layout(2, 8, 1, 1), cluster),
        plain(cluster, short, Layout(2, 8, 1, 1)),
        np.ones(2),
    ).phases_s[:, 4]
    assert np.all(gaps > 0.01)
