"""What every runner must do, each proving itself by a fixture."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from builders import document, spec, table

from tuner.layout import Layout
from tuner.trial import FailureKind, MeasurementPlan, Placement, Runner, Source, TrialFailure
from workers.runners.make import RunnerChoice, make_runner

ROWS = table("4,1,1,1,,20,1,1000,40,ok\n4,1,1,1,1110,20,1.2,800,40,ok\n2,2,1,1,,20,,,,oom\n2,2,1,1,1110,20,,,,oom\n")
PLAN = MeasurementPlan()
PLACEMENT = Placement(name="contract", nodes=1, gpus_per_node=4)
JOB = spec().training_job()
# Long sequences, so that four of them fill the memory of any GPU; a table does not care.
LONG_JOB = spec(job=document()["job"] | {"sequence_length": 262_144}).training_job()


@dataclass(frozen=True)
class Case:
    make: Callable[[], Runner]
    source: Source
    layout: Layout
    clock: int
    too_large: Layout
    bad_clock: int


CASES = {
    "replay": Case(
        lambda: make_runner(RunnerChoice(kind="replay", cluster=spec().hardware(), csv=ROWS)),
        Source.replayed,
        Layout(4, 1, 1, 1),
        1110,
        Layout(2, 2, 1, 1),
        1125,
    ),
    "simulated": Case(
        lambda: make_runner(RunnerChoice(kind="simulated", cluster=spec().hardware(), seed=1)),
        Source.simulated,
        Layout(4, 1, 1, 1),
        1110,
        Layout(4, 1, 1, 4),
        1111,
    ),
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_a_launch_measures_several_clocks_and_says_where_its_numbers_come_from(case: Case) -> None:
    launch = case.make().open(JOB, case.layout, PLACEMENT)
    assert launch.launch_s > 0
    for clock in (None, case.clock):
        measured = launch.measure(clock, PLAN)
        assert measured.source is case.source
        assert measured.energy_source is not None
        assert measured.energy_source.value == case.source.value
        assert measured.requested_mhz == clock
        assert measured.steps >= PLAN.min_steps
        assert measured.window_s >= PLAN.window_s
        assert measured.duration_s > measured.window_s
        assert measured.tokens_per_s == pytest.approx(JOB.tokens_per_step / measured.step_time_s)
        assert measured.energy_j is not None
        assert measured.average_power_w == pytest.approx(measured.energy_j / measured.step_time_s)
    launch.close()


def test_the_same_configuration_gives_the_same_numbers_in_a_fresh_launch(case: Case) -> None:
    fresh = case.make().open(JOB, case.layout, PLACEMENT).measure(case.clock, PLAN)
    used = case.make().open(JOB, case.layout, PLACEMENT)
    used.measure(None, PLAN)
    again = used.measure(case.clock, PLAN)
    assert (again.step_time_s, again.energy_j) == (fresh.step_time_s, fresh.energy_j)


def test_what_does_not_fit_fails_as_out_of_memory_with_what_it_cost(case: Case) -> None:
    with pytest.raises(TrialFailure) as caught:
        case.make().open(LONG_JOB, case.too_large, PLACEMENT).measure(None, PLAN)
    assert caught.value.kind is FailureKind.out_of_memory
    assert caught.value.elapsed_s is not None
    assert caught.value.elapsed_s > 0


def test_a_clock_that_is_not_there_is_refused_and_the_launch_stays_open(case: Case) -> None:
    launch = case.make().open(JOB, case.layout, PLACEMENT)
    with pytest.raises(TrialFailure) as caught:
        launch.measure(case.bad_clock, PLAN)
    assert caught.value.kind is FailureKind.clock_refused
    assert launch.measure(case.clock, PLAN).step_time_s > 0


def test_a_layout_of_another_number_of_gpus_is_invalid(case: Case) -> None:
    with pytest.raises(TrialFailure) as caught:
        case.make().open(JOB, Layout(8, 1, 1, 1), PLACEMENT)
    assert caught.value.kind is FailureKind.invalid_layout


def test_closing_twice_is_allowed_and_measuring_afterwards_is_cancelled(case: Case) -> None:
    launch = case.make().open(JOB, case.layout, PLACEMENT)
    launch.close()
    launch.close()
    with pytest.raises(TrialFailure) as caught:
        launch.measure(None, PLAN)
    assert caught.value.kind is FailureKind.cancelled


def test_measurements_cross_processes_unchanged(case: Case) -> None:
    measured = case.make().open(JOB, case.layout, PLACEMENT).measure(None, PLAN)
    assert pickle.loads(pickle.dumps(measured)) == measured
