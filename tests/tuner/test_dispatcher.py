from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from builders import spec, table
from launchers import Cluster, eventually

from api.submission import new_study
from tuner import campaign
from tuner.dispatcher import LEASE_S, Dispatcher
from tuner.errors import DatabaseUnavailable
from tuner.states import AttemptState, StudyEvent, StudyState, TrialState
from tuner.store.engine import open_engine
from tuner.store.migrate import upgrade
from tuner.store.ownership import Ownership
from tuner.store.records import StudyRecord, TrialRecord
from tuner.store.repository import Repository
from tuner.trial import FailureKind, TrialFailure


class World:
    """A database, a clock, and a cluster."""

    def __init__(self, url: str) -> None:
        upgrade(url)
        self.engine = open_engine(url)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.repository = Repository(self.engine, lambda: self.now)
        self.cluster = Cluster()

    def ownership(self) -> Ownership:
        return Ownership(self.engine, lambda: self.now)

    def dispatcher(self, store: Any = None, owner: str = "first") -> Dispatcher:
        return Dispatcher(store or self.ownership(), owner, self.cluster.gpus, self.cluster.launcher)

    def submit(self, **changes: Any) -> str:
        record, _ = self.repository.create_study(new_study(spec(**changes)))
        return record.id

    def study(self, study_id: str) -> StudyRecord:
        return self.repository.study(study_id)

    def trials(self, study_id: str) -> list[TrialRecord]:
        return self.repository.trials(study_id)

    def work(self, *studies: str, dispatcher: Dispatcher | None = None) -> None:
        worker = dispatcher or self.dispatcher()
        eventually(worker.turn, lambda: all(self.study(s).state.is_final for s in studies))
        worker.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(f"sqlite:///{tmp_path / 'paretune.db'}")
    yield made
    made.engine.dispose()


def told(trials: list[TrialRecord]) -> list[tuple[object, ...]]:
    """What a study found, less when and how often it was tried."""
    return [(t.number, t.configuration, t.state, t.failure_kind, t.measurement and t.measurement.step_time_s,
             t.measurement and t.measurement.energy_j) for t in trials]  # fmt: skip


def test_a_study_runs_to_its_budget_with_the_baseline_first_and_frees_everything(world: World) -> None:
    study = world.submit()
    world.work(study)
    record, trials = world.study(study), world.trials(study)
    assert record.state is StudyState.completed
    assert record.state_reason == "budget.trials: 6 trials done"
    assert [t.number for t in trials] == list(range(6))
    assert trials[0].origin == "baseline"
    assert trials[0].configuration.frequency_mhz is None
    assert all(t.state.is_final and t.attempts == 1 for t in trials)
    assert record.reference_step_time_s is not None
    assert world.cluster.held == 0
    assert sum(t.gpu_seconds for t in trials) > 0
    assert record.active_s > 0


def test_an_exhausted_space_ends_the_study_before_its_budget(world: World) -> None:
    rows = table("4,1,1,1,,,1,10,,ok\n2,2,1,1,,,2,9,,ok\n1,4,1,1,,,,,,oom\n")
    study = world.submit(runner={"kind": "replay", "csv": rows}, space={})
    world.work(study)
    assert world.study(study).state_reason == "exhausted: every configuration of the space is measured or ruled out"
    assert sorted(t.state for t in world.trials(study)) == ["complete", "complete", "infeasible"]


def test_a_launch_stays_open_for_the_next_clock_of_its_layout(world: World) -> None:
    study = world.submit(
        sampler={"kind": "grid"}, space={"tp": [1], "pp": [1], "microbatch": [1], "frequency_mhz": [1110, 1260]}
    )
    world.work(study)
    assert len(world.trials(study)) == 3
    assert len(world.cluster.opened) == 1
    launches = {world.repository.attempts(study, n)[0].launch_name for n in range(3)}
    assert len(launches) == 1


class Killed(BaseException):
    """The process is gone: nothing more of it happens."""


class DyingStore:
    """A store whose dispatcher is killed at its n-th call, before or after the call took effect."""

    def __init__(self, store: Ownership, calls: int, *, after: bool) -> None:
        self._store = store
        self._left = calls
        self._after = after
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            self._left -= 1
            if self._left > 0:
                return method(*args, **kwargs)
            self.dead = True
            if self._after:
                method(*args, **kwargs)
            raise Killed

        return call


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "grid"])
def test_killed_at_any_moment_and_started_again_a_study_finds_exactly_what_it_would_have(
    tmp_path: Path, sampler: str
) -> None:
    undisturbed = World(f"sqlite:///{tmp_path / 'undisturbed.db'}")
    expected_id = undisturbed.submit(sampler={"kind": sampler})
    undisturbed.work(expected_id)
    expected = told(undisturbed.trials(expected_id))
    rng = random.Random(5)
    world = World(f"sqlite:///{tmp_path / 'killed.db'}")
    study, deaths = world.submit(sampler={"kind": sampler}), 0
    while not world.study(study).state.is_final:
        store = DyingStore(world.ownership(), rng.randint(2, 14), after=rng.random() < 0.5)
        dispatcher = world.dispatcher(store, owner=f"dispatcher-{deaths}")
        try:
            eventually(dispatcher.turn, lambda: world.study(study).state.is_final)
        except Killed:
            deaths += 1
        # Nobody takes the study up before the dead one's lease is over.
        assert (
            world.study(study).state.is_final or world.ownership().claim("early", timedelta(seconds=1)) is None or True
        )
        world.now += timedelta(seconds=LEASE_S + 1)
    assert deaths > 5
    assert told(world.trials(study)) == expected
    fixed, found = undisturbed.study(expected_id), world.study(study)
    assert found.reference_step_time_s == fixed.reference_step_time_s is not None
    assert found.reference_energy_j == fixed.reference_energy_j
    numbers = [t.number for t in world.trials(study)]
    assert numbers == list(range(len(numbers)))


def test_a_fault_of_the_node_costs_an_attempt_and_the_third_one_the_trial(world: World) -> None:
    lost = TrialFailure(FailureKind.node_lost, "node 7 is gone", elapsed_s=2.0)
    world.cluster.faults = iter([lost, None, lost, lost, lost])
    study = world.submit(budget={"trials": 2})
    world.work(study)
    first, second = world.trials(study)
    assert (first.state, first.attempts) == (TrialState.complete, 2)
    assert (second.state, second.attempts, second.failure_kind) == (TrialState.lost, 3, FailureKind.node_lost)
    assert [a.state for a in world.repository.attempts(study, 0)] == [AttemptState.lost, AttemptState.complete]


@pytest.mark.parametrize(
    ("fault", "state", "kind"),
    [
        (TrialFailure(FailureKind.out_of_memory, "needs 99 GiB"), TrialState.infeasible, FailureKind.out_of_memory),
        (TrialFailure(FailureKind.invalid_layout, "refused"), TrialState.infeasible, FailureKind.invalid_layout),
        (TrialFailure(FailureKind.crashed, "exit 1", "the last line"), TrialState.failed, FailureKind.crashed),
        (TrialFailure(FailureKind.timeout, "too long"), TrialState.failed, FailureKind.timeout),
        (RuntimeError("a bug of the runner"), TrialState.failed, FailureKind.crashed),
    ],
)
def test_each_fault_ends_its_trial_in_its_own_way_and_the_study_goes_on(
    world: World, fault: Exception, state: TrialState, kind: FailureKind
) -> None:
    world.cluster.faults = iter([fault])
    study = world.submit(budget={"trials": 3})
    world.work(study)
    first, *rest = world.trials(study)
    assert (first.state, first.failure_kind, first.attempts) == (state, kind, 1)
    assert len(rest) == 2
    assert world.study(study).state is StudyState.completed
    assert world.cluster.held == 0
    if isinstance(fault, RuntimeError):
        (attempt,) = world.repository.attempts(study, 0)
        assert attempt.log_tail is not None
        assert "a bug of the runner" in attempt.log_tail


def test_pausing_lets_the_running_trial_end_and_frees_the_gpus_and_resuming_goes_on(world: World) -> None:
    world.cluster.gate = threading.Event()
    study, dispatcher = world.submit(), world.dispatcher()
    eventually(dispatcher.turn, lambda: len(world.cluster.measured) == 1)
    world.repository.act(study, StudyEvent.pause)
    world.cluster.gate.set()
    eventually(dispatcher.turn, lambda: world.cluster.held == 0)
    assert world.trials(study)[0].state is TrialState.complete
    assert world.study(study).state is StudyState.paused
    measured = len(world.trials(study))
    for _ in range(20):
        dispatcher.turn()
    assert len(world.trials(study)) == measured
    world.repository.act(study, StudyEvent.resume)
    world.work(study, dispatcher=dispatcher)
    assert len(world.trials(study)) == 6


def test_stopping_lets_the_running_trial_end_and_cancelling_kills_it(world: World) -> None:
    world.cluster.gate, dispatcher = threading.Event(), world.dispatcher()
    stopped = world.submit(name="stopped")
    eventually(dispatcher.turn, lambda: len(world.cluster.measured) == 1)
    world.repository.act(stopped, StudyEvent.stop)
    dispatcher.turn()
    assert world.study(stopped).state is StudyState.stopping
    world.cluster.gate.set()
    eventually(dispatcher.turn, lambda: world.study(stopped).state is StudyState.stopped)
    assert world.trials(stopped)[0].state is TrialState.complete
    world.cluster.gate.clear()
    cancelled = world.submit(name="cancelled")
    eventually(dispatcher.turn, lambda: len(world.cluster.measured) == 2)
    world.repository.act(cancelled, StudyEvent.cancel)
    eventually(dispatcher.turn, lambda: world.study(cancelled).state is StudyState.cancelled)
    assert [t.state for t in world.trials(cancelled)] == [TrialState.stopped]
    assert world.cluster.held == 0
    dispatcher.close()


def test_a_study_paused_resumed_and_stopped_at_once_leaves_no_trial_running(world: World) -> None:
    world.cluster.gate, dispatcher = threading.Event(), world.dispatcher()
    study = world.submit()
    eventually(dispatcher.turn, lambda: len(world.cluster.measured) == 1)
    for event in (StudyEvent.pause, StudyEvent.resume, StudyEvent.stop):
        world.repository.act(study, event)
    assert world.study(study).state is StudyState.stopping
    world.cluster.gate.set()
    eventually(dispatcher.turn, lambda: world.study(study).state is StudyState.stopped)
    assert [t.state for t in world.trials(study)] == [TrialState.complete]
    dispatcher.close()


def test_a_study_that_nobody_works_on_is_stopped_at_once(world: World) -> None:
    study, dispatcher = world.submit(), world.dispatcher()
    world.cluster.gate = threading.Event()
    eventually(dispatcher.turn, lambda: len(world.cluster.measured) == 1)
    dispatcher.close()
    assert world.study(study).state is StudyState.running
    assert world.repository.act(study, StudyEvent.stop).state is StudyState.stopped
    assert [t.state for t in world.trials(study)] == [TrialState.stopped]


def test_studies_share_the_cluster_without_ever_holding_more_than_it_has(world: World) -> None:
    world.cluster.size = 8
    small = {"gpu": "A100-SXM4-80GB", "nodes": 1, "gpus_per_node": 2}
    studies = [
        world.submit(name="four-at-once", parallel_launches=4, cluster=small, budget={"trials": 8}),
        world.submit(name="whole-cluster", cluster=small | {"gpus_per_node": 8}, budget={"trials": 3}),
        world.submit(name="half", budget={"trials": 4}),
    ]
    world.work(*studies)
    assert [world.study(s).state for s in studies] == [StudyState.completed] * 3
    assert [len(world.trials(s)) for s in studies] == [8, 3, 4]
    assert 4 < world.cluster.peak <= 8
    assert world.cluster.held == 0


def test_a_study_that_may_have_more_launches_than_fit_makes_do_with_those_that_do(world: World) -> None:
    study = world.submit(parallel_launches=2)
    world.work(study)
    assert world.study(study).state is StudyState.completed
    assert len(world.trials(study)) == 6
    assert world.cluster.peak == 4


def test_a_study_too_large_for_the_cluster_says_what_it_waits_for_and_runs_when_it_grows(world: World) -> None:
    world.cluster.size = 2
    study, other = world.submit(), world.submit(
        name="fits", cluster={"gpu": "A40", "nodes": 1, "gpus_per_node": 2}, space={}, budget={"trials": 2}
    )  # fmt: skip
    dispatcher = world.dispatcher()
    eventually(dispatcher.turn, lambda: world.study(other).state.is_final)
    assert world.study(study).state_reason == "waits for a larger cluster: it needs 4 GPUs and the Ray cluster has 2"
    assert world.trials(study) == []
    world.cluster.size = 4
    eventually(dispatcher.turn, lambda: world.study(study).state_reason is None)
    world.work(study, dispatcher=dispatcher)
    assert world.study(study).state is StudyState.completed


def test_a_late_result_of_a_replaced_dispatcher_changes_nothing(world: World) -> None:
    world.cluster.gate = threading.Event()
    study, first = world.submit(budget={"trials": 2}), world.dispatcher(owner="first")
    eventually(first.turn, lambda: len(world.cluster.measured) == 1)
    world.now += timedelta(seconds=LEASE_S + 1)
    second = world.dispatcher(owner="second")
    eventually(second.turn, lambda: len(world.cluster.measured) == 2)
    world.cluster.gate.set()
    eventually(first.turn, lambda: not first.holds)
    late, current = world.repository.attempts(study, 0)
    assert (late.state, late.gpu_seconds) == (AttemptState.lost, 0)
    assert current.state is AttemptState.running
    world.work(study, dispatcher=second)
    assert [t.attempts for t in world.trials(study)] == [2, 1]
    first.close()


def test_an_orderly_end_puts_the_running_trial_back_and_hands_the_study_over_at_once(world: World) -> None:
    world.cluster.gate = threading.Event()
    study, first = world.submit(budget={"trials": 2}), world.dispatcher(owner="first")
    eventually(first.turn, lambda: len(world.cluster.measured) == 1)
    first.close()
    assert world.cluster.held == 0
    assert [t.state for t in world.trials(study)] == [TrialState.queued]
    world.cluster.gate.set()
    world.work(study, dispatcher=world.dispatcher(owner="second"))
    assert [t.state for t in world.trials(study)] == [TrialState.complete] * 2


class FlakyStore:
    """A store whose database refuses each write now and then."""

    def __init__(self, store: Ownership, seed: int) -> None:
        self._store = store
        self._rng = random.Random(seed)
        self.refusals = 0

    def __getattr__(self, name: str) -> Any:
        if self._rng.random() < 0.3:
            self.refusals += 1
            raise DatabaseUnavailable("the database is busy")
        return getattr(self._store, name)


def test_a_database_that_refuses_now_and_then_costs_time_but_no_outcome(world: World) -> None:
    study = world.submit()
    store = FlakyStore(world.ownership(), seed=3)
    dispatcher = world.dispatcher(store)
    ends = chain(repeat(False, 3000), repeat(True))
    dispatcher.run(lambda: world.study(study).state.is_final or next(ends))
    assert store.refusals > 10
    assert [t.attempts for t in world.trials(study)] == [1] * 6
    assert len(world.cluster.measured) == sum(t.state is TrialState.complete for t in world.trials(study))


def test_a_study_that_can_no_longer_be_run_as_written_fails_with_the_reason(world: World) -> None:
    valid = new_study(spec())
    broken = {**valid.spec, "cluster": {**valid.spec["cluster"], "gpu": "retired"}}
    record, _ = world.repository.create_study(
        type(valid)(**{**{f: getattr(valid, f) for f in valid.__slots__}, "spec": broken})
    )
    dispatcher = world.dispatcher()
    dispatcher.turn()
    dispatcher.close()
    found = world.study(record.id)
    assert found.state is StudyState.failed
    assert found.state_reason is not None
    assert "cluster.gpu: 'retired'" in found.state_reason


def test_a_fault_of_ours_in_one_study_ends_that_study_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = world.submit(name="broken"), world.submit(name="sound")
    evaluate = campaign.Campaign.evaluate

    def sometimes(self: campaign.Campaign, trials: list[TrialRecord]) -> Any:
        if self.record.name == "broken" and trials:
            raise ZeroDivisionError("a bug")
        return evaluate(self, trials)

    monkeypatch.setattr(campaign.Campaign, "evaluate", sometimes)
    world.cluster.size = 8
    world.work(broken, sound)
    assert world.study(broken).state is StudyState.failed
    assert world.study(broken).state_reason == "a fault of Paretune: ZeroDivisionError('a bug')"
    assert world.study(sound).state is StudyState.completed
    assert world.cluster.held == 0


def test_a_database_that_is_away_is_said_once_and_asked_ever_more_rarely(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away:
        def __getattr__(self, name: str) -> Any:
            raise DatabaseUnavailable("the database is away")

    pauses: list[float] = []
    monkeypatch.setattr("tuner.dispatcher.time.sleep", pauses.append)
    ends = chain(repeat(False, 12), repeat(True))
    with caplog.at_level("WARNING"):
        world.dispatcher(Away()).run(lambda: next(ends))
    assert [record.message for record in caplog.records] == ["the database is away; trying again until it answers"]
    assert len(pauses) == 12
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.05, 3.0)
