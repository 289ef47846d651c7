from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tuner.hardware import Cluster, find_gpu
from tuner.job import ModelShape, TrainingJob
from tuner.layout import Layout
from tuner.trial import EnergySource, FailureKind, Measurement, MeasurementPlan, Placement, Runner, Source, TrialFailure
from workers.runners.simulated import SimulatedRunner

GPU = find_gpu("H100-SXM5-80GB")
CLUSTER = Cluster(gpu=GPU, nodes=2, gpus_per_node=8, intra_node_gb_s=GPU.link_gb_s, inter_node_gb_s=GPU.network_gb_s)
MODEL = ModelShape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
JOB = TrainingJob(model=MODEL, sequence_length=4096, global_batch_size=128)
PLACEMENT = Placement(name="trial", nodes=2, gpus_per_node=8)
PLAN = MeasurementPlan()
CLOCKS = GPU.clocks_mhz[:63:3]
BASELINE = Layout(16, 1, 1, 2)


def measured(layout: Layout = BASELINE, clock: int | None = None, seed: int = 0) -> Measurement:
    return SimulatedRunner(CLUSTER, seed).open(JOB, layout, PLACEMENT).measure(clock, PLAN)


def failure(runner: SimulatedRunner, job: TrainingJob, layout: Layout) -> TrialFailure:
    with pytest.raises(TrialFailure) as caught:
        runner.open(job, layout, PLACEMENT).measure(None, PLAN)
    return caught.value


def test_it_keeps_the_runner_contract_and_says_that_it_is_simulated() -> None:
    runner: Runner = SimulatedRunner(CLUSTER)
    answer = runner.open(JOB, BASELINE, PLACEMENT).measure(1485, PLAN)
    assert (answer.source, answer.energy_source) == (Source.simulated, EnergySource.simulated)
    assert (answer.requested_mhz, answer.achieved_mhz, answer.flags) == (1485, 1485, ())


def test_a_measurement_is_consistent_in_itself() -> None:
    answer = measured()
    assert answer.energy_j is not None
    assert answer.average_power_w is not None
    assert answer.average_power_w * answer.step_time_s == pytest.approx(answer.energy_j)
    assert answer.tokens_per_s * answer.step_time_s == pytest.approx(JOB.tokens_per_step)
    assert answer.steps >= PLAN.min_steps
    assert answer.window_s >= PLAN.window_s
    assert answer.duration_s > answer.window_s + PLAN.warmup_steps * 0.9 * answer.step_time_s
    assert answer.peak_memory_gib == SimulatedRunner(CLUSTER).truth(JOB, BASELINE, None).peak_memory_gib  # type: ignore[union-attr]


def test_measurements_scatter_around_the_truth_as_their_standard_errors_say() -> None:
    runner = SimulatedRunner(CLUSTER, 3)
    launch = runner.open(JOB, BASELINE, PLACEMENT)
    plan = MeasurementPlan(window_s=200.0)
    off = []
    for clock in CLOCKS:
        answer, truth = launch.measure(clock, plan), runner.truth(JOB, BASELINE, clock)
        assert truth is not None
        assert answer.energy_j is not None
        assert answer.energy_j == pytest.approx(truth.energy_j, rel=0.03)
        off.append((answer.step_time_s - truth.step_time_s) / answer.step_time_sem_s)
    assert 0.4 < np.std(off) < 2
    assert abs(np.mean(off)) < 1


def test_the_power_limit_shows_in_the_achieved_clock_and_in_a_flag() -> None:
    default = measured(BASELINE, None)
    assert default.requested_mhz is None
    assert default.achieved_mhz is not None
    assert default.achieved_mhz < GPU.max_clock_mhz
    assert default.flags == ("power_capped",)
    assert default.power_cap_share is not None
    assert 0.5 < default.power_cap_share <= 1
    assert default.average_power_w is not None
    assert default.average_power_w < 1.02 * 16 * GPU.power_limit_w


def test_a_measurement_does_not_depend_on_what_the_launch_did_before() -> None:
    used = SimulatedRunner(CLUSTER, 5).open(JOB, BASELINE, PLACEMENT)
    for clock in (None, 1080, 1710):
        used.measure(clock, PLAN)
    again, fresh = used.measure(1485, PLAN), measured(BASELINE, 1485, seed=5)
    assert replace(again, duration_s=0.0) == replace(fresh, duration_s=0.0)
    assert again.duration_s < fresh.duration_s


def test_another_plan_or_clock_draws_other_noise() -> None:
    runner = SimulatedRunner(CLUSTER)
    launch = runner.open(JOB, BASELINE, PLACEMENT)
    answers = {launch.measure(None, PLAN).step_time_s, launch.measure(1980, PLAN).step_time_s}
    answers.add(launch.measure(None, replace(PLAN, min_steps=6)).step_time_s)
    assert len(answers) == 3
    assert runner.truth(JOB, BASELINE, None) == runner.truth(JOB, BASELINE, 1980)


PROGRAM = """
import pickle, sys
from tuner.trial import MeasurementPlan, Placement
runner, job, layout = pickle.load(sys.stdin.buffer)
launch = runner.open(job, layout, Placement(name="other", nodes=2, gpus_per_node=8))
sys.stdout.buffer.write(pickle.dumps((launch.launch_s, launch.measure(1485, MeasurementPlan()))))
"""


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_measures_the_same_bit_for_bit(hash_seed: str) -> None:
    runner = SimulatedRunner(CLUSTER, 11)
    launch = runner.open(JOB, BASELINE, PLACEMENT)
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=pickle.dumps((runner, JOB, BASELINE)),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
    )
    assert pickle.loads(answer.stdout) == (launch.launch_s, launch.measure(1485, PLAN))


def test_starting_it_loads_neither_the_controller_nor_a_framework() -> None:
    program = (
        "import sys, workers.runners.simulated as _;"
        "print([m for m in ('ray', 'torch', 'pydantic', 'sqlalchemy', 'optuna', 'scipy', 'tuner.study', 'tuner.spec')"
        " if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert answer.stdout.strip() == b"[]"


def test_launches_and_measurements_survive_pickling() -> None:
    launch = SimulatedRunner(CLUSTER, 2).open(JOB, BASELINE, PLACEMENT)
    launch.measure(None, PLAN)
    copy = pickle.loads(pickle.dumps(launch))
    assert copy.measure(1485, PLAN) == launch.measure(1485, PLAN)
    failed = failure(SimulatedRunner(CLUSTER), JOB, Layout(16, 1, 1, 8))
    assert vars(pickle.loads(pickle.dumps(failed))) == vars(failed)


@pytest.mark.parametrize(("nodes", "layout"), [(1, Layout(8, 1, 1, 1)), (2, BASELINE), (16, Layout(64, 2, 1, 1))])
def test_launching_takes_20_to_90_seconds(nodes: int, layout: Layout) -> None:
    runner = SimulatedRunner(replace(CLUSTER, nodes=nodes))
    launch = runner.open(JOB, layout, Placement(name="a", nodes=nodes, gpus_per_node=8))
    assert 20 <= launch.launch_s <= 90


def test_the_first_measurement_of_a_launch_warms_up_longer_and_changing_the_clock_takes_a_second_or_two() -> None:
    launch = SimulatedRunner(CLUSTER).open(JOB, BASELINE, PLACEMENT)
    first, again, same, changed = (launch.measure(clock, PLAN) for clock in (None, None, None, 1980))
    settled = [answer.duration_s - answer.window_s for answer in (first, again, same, changed)]
    assert settled[0] > 2 * settled[1]
    assert settled[1] == pytest.approx(settled[2])
    assert 1 < settled[3] - settled[2] < 2


def test_a_layout_that_does_not_fit_fails_at_open_and_says_what_it_needs() -> None:
    failed = failure(SimulatedRunner(CLUSTER), JOB, Layout(16, 1, 1, 8))
    assert failed.kind is FailureKind.out_of_memory
    assert failed.message.startswith("dp16-tp1-pp1-mb8 needs 1")
    assert failed.message.endswith(" GiB on its fullest GPU, which has 79.6 GiB")
    assert "CUDA out of memory" in failed.log_tail
    assert failed.elapsed_s is not None
    assert 20 <= failed.elapsed_s <= 90


def test_a_layout_that_nearly_fits_fails_in_its_first_step_and_closes_the_launch() -> None:
    needed_gib = SimulatedRunner(CLUSTER).truth(JOB, BASELINE, None).peak_memory_gib  # type: ignore[union-attr]
    tight = replace(CLUSTER, gpu=replace(GPU, memory_gib=needed_gib - 0.5))
    runner = SimulatedRunner(tight)
    launch = runner.open(JOB, BASELINE, PLACEMENT)
    with pytest.raises(TrialFailure) as caught:
        launch.measure(None, PLAN)
    assert caught.value.kind is FailureKind.out_of_memory
    assert caught.value.elapsed_s is not None
    assert caught.value.elapsed_s > 1
    with pytest.raises(TrialFailure, match="cancelled"):
        launch.measure(None, PLAN)
    assert runner.truth(JOB, BASELINE, None) is None


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout(8, 1, 1, 1), "takes 8 GPUs, but the cluster has 16"),
        (Layout(1, 1, 16, 3), "dp * microbatch = 3 does not divide the global batch of 128"),
        (Layout(16, 1, 1, 0), "has a degree below 1"),
    ],
)
def test_a_layout_that_the_job_or_the_cluster_rules_out_is_invalid(layout: Layout, reason: str) -> None:
    failed = failure(SimulatedRunner(CLUSTER), JOB, layout)
    assert failed.kind is FailureKind.invalid_layout
    assert reason in failed.message


@pytest.mark.parametrize(
    ("model", "layout", "reason"),
    [
        (replace(MODEL, layers=30), Layout(4, 1, 4, 1), "pp = 4 does not divide 30 layers"),
        (replace(MODEL, heads=4, kv_heads=4), Layout(2, 8, 1, 1), "tp = 8 does not divide 4 heads"),
    ],
)
def test_a_model_that_the_degrees_do_not_divide_is_invalid(model: ModelShape, layout: Layout, reason: str) -> None:
    failed = failure(SimulatedRunner(CLUSTER), replace(JOB, model=model), layout)
    assert (failed.kind, failed.message) == (FailureKind.invalid_layout, reason)


def test_a_placement_of_another_size_is_invalid() -> None:
    with pytest.raises(TrialFailure, match="needs 16 GPUs, but 8 are reserved"):
        SimulatedRunner(CLUSTER).open(JOB, BASELINE, Placement(name="half", nodes=1, gpus_per_node=8))


def test_an_unsupported_clock_is_refused_with_the_nearest_one_and_the_launch_stays_open() -> None:
    launch = SimulatedRunner(CLUSTER).open(JOB, BASELINE, PLACEMENT)
    with pytest.raises(TrialFailure, match="does not support 1481 MHz; the nearest supported clock is 1485 MHz") as e:
        launch.measure(1481, PLAN)
    assert e.value.kind is FailureKind.clock_refused
    assert launch.measure(1485, PLAN).steps >= 5


def test_closing_twice_is_fine_and_measuring_afterwards_is_cancelled() -> None:
    launch = SimulatedRunner(CLUSTER).open(JOB, BASELINE, PLACEMENT)
    launch.close()
    launch.close()
    with pytest.raises(TrialFailure) as caught:
        launch.measure(None, PLAN)
    assert caught.value.kind is FailureKind.cancelled
