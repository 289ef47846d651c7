from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from physics_cases import JOB, MODEL, cluster_of, configurations

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.layout import Layout
from tuner.physics.coefficients import Coefficients
from tuner.physics.step_time import PARTS, StepModel, StepTime, clock_factor

CLUSTER, C = cluster_of(), Coefficients()
# Equal stages: without a head that counts, and with a word list so small that it costs nothing.
EVEN = replace(JOB, model=replace(MODEL, vocab=1))


def step(
    layout: Layout, job: TrainingJob = JOB, cluster: Cluster = CLUSTER, mhz: float = 1980.0, **how: object
) -> StepTime:
    x = configurations(layout, **how)  # type: ignore[arg-type]
    return StepModel(job, cluster, x, C).at(np.array([mhz]))


def seconds(part: str, layout: Layout, job: TrainingJob = JOB, **how: object) -> float:
    return float(step(layout, job, **how).parts[part][0])  # type: ignore[arg-type]


def test_parts_add_up_to_the_step() -> None:
    found = step(Layout(2, 4, 4, 1))
    assert tuple(found.parts) == PARTS
    assert found.total_s[0] == pytest.approx(sum(part[0] for part in found.parts.values()))


def test_what_a_layout_does_without_costs_nothing() -> None:
    assert seconds("tp_s", Layout(32, 1, 1, 1)) == 0
    assert seconds("pp_s", Layout(32, 1, 1, 1)) == 0
    assert seconds("bubble_s", Layout(32, 1, 1, 1)) == pytest.approx(0, abs=1e-12)
    assert seconds("dp_s", Layout(1, 8, 4, 1)) == pytest.approx(0, abs=1e-12)
    assert seconds("zero_s", Layout(32, 1, 1, 1)) == 0


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_the_bubble_of_equal_stages_is_pp_minus_1_microbatches(pp: int) -> None:
    found = step(Layout(32 // pp, 1, pp, 1), EVEN)
    microbatches = 128 // (32 // pp)
    of_all = sum(found.parts[part][0] for part in ("compute_s", "memory_s", "host_s", "tp_s", "zero_s"))
    waiting = max(pp - 3, 0) * C.handover_s
    assert found.parts["bubble_s"][0] == pytest.approx((pp - 1) * of_all / microbatches + waiting, rel=0.05)


def test_more_microbatches_hide_the_bubble() -> None:
    few, many = (replace(JOB, global_batch_size=batch) for batch in (8, 256))
    shares = [
        step(Layout(1, 8, 4, 1), job).parts["bubble_s"][0] / step(Layout(1, 8, 4, 1), job).total_s[0]
        for job in (few, many)
    ]
    assert shares[0] > 4 * shares[1]


def test_tensor_parallelism_across_nodes_is_dear() -> None:
    inside, across = seconds("tp_s", Layout(4, 8, 1, 1)), seconds("tp_s", Layout(2, 16, 1, 1))
    # Twice as many microbatches go through each rank, and the rest is the network.
    assert across > 4 * inside


def test_small_products_reach_less_of_the_peak() -> None:
    small = replace(JOB, model=replace(MODEL, hidden=512, ffn=1792, head_dim=16), sequence_length=512)
    flops = {job: 6 * job.model.layers * job.model.layer_parameters * job.tokens_per_step for job in (JOB, small)}
    reached = {job: flops[job] / seconds("compute_s", Layout(32, 1, 1, 1), job) for job in flops}
    assert reached[small] < 0.6 * reached[JOB]


def test_each_stage_of_zero_sends_what_it_shards() -> None:
    layout = Layout(32, 1, 1, 1)
    traffic = [seconds("zero_s", layout, zero_stage=stage) for stage in range(4)]
    assert traffic[0] == traffic[1] == 0 < traffic[2] < traffic[3]
    once = [seconds("dp_s", layout, zero_stage=stage) for stage in range(4)]
    assert once[3] == pytest.approx(0, abs=1e-12)
    assert once[2] < once[1]
    assert seconds("optimizer_s", layout, zero_stage=0) == pytest.approx(32 * seconds("optimizer_s", layout))


def test_full_recomputation_runs_the_forward_pass_again() -> None:
    layout = Layout(32, 1, 1, 1)
    ratio = seconds("compute_s", layout, recompute="full") / seconds("compute_s", layout)
    assert 1.25 < ratio < 1.4
    selective = seconds("compute_s", layout, recompute="selective") / seconds("compute_s", layout)
    assert 1 < selective < 1.1


def test_the_reduction_hides_in_part_behind_the_backward_pass() -> None:
    slow = replace(CLUSTER, inter_node_gb_s=CLUSTER.inter_node_gb_s / 100)
    x = configurations(Layout(32, 1, 1, 4))
    fast_s, slow_s = (StepModel(JOB, each, x, C).at(np.array([1980.0])).parts["dp_s"][0] for each in (CLUSTER, slow))
    assert slow_s > 20 * fast_s
    no_overlap = replace(C, overlap=1e-9)
    assert StepModel(JOB, CLUSTER, x, no_overlap).at(np.array([1980.0])).parts["dp_s"][0] > fast_s


def test_compute_follows_the_clock_and_the_rest_does_not() -> None:
    layout = Layout(2, 4, 4, 1)
    fast, slow = step(layout, mhz=1980.0), step(layout, mhz=990.0)
    factor = slow.parts["compute_s"][0] / fast.parts["compute_s"][0]
    assert factor == pytest.approx((2 + C.clock_free) / (1 + C.clock_free))
    for part in ("memory_s", "tp_s", "pp_s", "optimizer_s", "other_s"):
        assert slow.parts[part][0] == fast.parts[part][0]
    assert clock_factor(np.array([1980.0]), CLUSTER, C)[0] == pytest.approx(1.0)
