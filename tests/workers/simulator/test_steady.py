from __future__ import annotations

import itertools

import pytest

from tuner.hardware import Cluster, find_gpu, gpu_catalogue
from tuner.job import TrainingJob
from tuner.layout import Layout
from workers.simulator.steady import steady_state

LAYOUTS = [Layout(16, 1, 1, 2), Layout(8, 2, 1, 2), Layout(4, 2, 2, 4), Layout(1, 1, 16, 1), Layout(2, 8, 1, 1)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_the_mean_power_never_passes_the_limit(job: TrainingJob, cluster: Cluster, layout: Layout, seed: int) -> None:
    for clock in cluster.gpu.clocks_mhz[::8]:
        steady = steady_state(seed, job, layout, cluster, clock)
        assert steady.energy_j / steady.step_time_s < 1.002 * cluster.world_size * cluster.gpu.power_limit_w
        assert steady.achieved_mhz <= clock
        assert steady.achieved_mhz in cluster.gpu.clocks_mhz


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_lower_clock_never_makes_the_step_faster(job: TrainingJob, cluster: Cluster, layout: Layout) -> None:
    times = [steady_state(1, job, layout, cluster, clock).step_time_s for clock in cluster.gpu.clocks_mhz[::3]]
    # While the cap holds the busy boards, a lower clock cools the waiting ones: less leakage, a hair more room.
    assert all(slower > 0.9999 * faster for faster, slower in itertools.pairwise(times))
    assert times[-1] > 2 * times[0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_energy_has_its_minimum_between_the_lowest_and_the_highest_clock(
    job: TrainingJob, cluster: Cluster, layout: Layout
) -> None:
    clocks = cluster.gpu.clocks_mhz
    energies = {clock: steady_state(1, job, layout, cluster, clock).energy_j for clock in clocks[::4]}
    best = min(energies, key=lambda clock: energies[clock])
    assert 0.4 < best / clocks[0] < 0.8
    assert energies[clocks[0]] > 1.1 * energies[best]


def test_the_cap_holds_compute_heavy_layouts_lower_than_communication_heavy_ones(
    job: TrainingJob, cluster: Cluster
) -> None:
    heavy, light = (steady_state(1, job, each, cluster, 1980) for each in (Layout(16, 1, 1, 2), Layout(2, 8, 1, 1)))
    assert heavy.achieved_mhz < light.achieved_mhz
    assert heavy.power_cap_share > 0.9


def test_below_the_cap_the_clock_is_the_one_asked_for(job: TrainingJob, cluster: Cluster) -> None:
    steady = steady_state(1, job, Layout(16, 1, 1, 2), cluster, 1200)
    assert steady.achieved_mhz == 1200
    assert steady.power_cap_share == 0


@pytest.mark.parametrize("name", gpu_catalogue())
def test_every_gpu_of_the_catalogue_trains_at_a_believable_share_of_its_peak(job: TrainingJob, name: str) -> None:
    gpu = find_gpu(name)
    node = Cluster(gpu=gpu, nodes=1, gpus_per_node=8, intra_node_gb_s=gpu.link_gb_s, inter_node_gb_s=gpu.network_gb_s)
    steady = steady_state(0, job, Layout(8, 1, 1, 2), node, gpu.max_clock_mhz)
    flops = 6 * job.model.parameters * job.tokens_per_step
    assert 0.25 < flops / steady.step_time_s / 8 / (gpu.peak_bf16_tflops * 1e12) < 0.5
    assert 0.6 * gpu.power_limit_w < steady.energy_j / steady.step_time_s / 8 < gpu.power_limit_w
