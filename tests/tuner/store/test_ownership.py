from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import configuration, measurement
from databases import TTL, Clock, dump, new, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from tuner.errors import Conflict, LeaseLost, NotFound
from tuner.owner import this_owner
from tuner.states import TRIAL_TRANSITIONS, AttemptState, StudyEvent, StudyState, TrialEvent, TrialState
from tuner.store.ownership import MAX_ORPHANED, Ownership
from tuner.store.records import Completed, Lease
from tuner.store.repository import Repository
from tuner.trial import FailureKind, TrialFailure

CRASH = TrialFailure(FailureKind.crashed, "rank 3 died", "Traceback")
LOST = TrialFailure(FailureKind.node_lost, "node 1 is gone")
OUTCOMES: dict[TrialEvent, Completed | TrialFailure] = {
    TrialEvent.complete: Completed(measurement(), 20.0),
    TrialEvent.refute: TrialFailure(FailureKind.out_of_memory, "needs 90 GiB of 80"),
    TrialEvent.fail: CRASH,
    TrialEvent.retry: LOST,
    TrialEvent.give_up: LOST,
    TrialEvent.stop: TrialFailure(FailureKind.cancelled, "killed on request"),
}


def begun(ownership: Ownership, lease: Lease, tp: int = 1) -> int:
    """The attempt at a new trial."""
    trial = ownership.add_trial(lease, configuration(tp=tp), "sampler", {})
    return ownership.start_attempt(lease, trial.number, f"launch-{trial.number}", True).id


def taken_over(ownership: Ownership, clock: Clock, lease: Lease, owner: str = "second") -> Lease:
    clock.move(TTL.total_seconds())
    taken = ownership.claim(owner, TTL, only=lease.study_id)
    assert taken is not None
    return taken


def test_studies_are_claimed_oldest_first_and_each_by_one_dispatcher_only(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    ids = []
    for name in ("c", "a", "b"):
        clock.move(1)
        ids.append(repository.create_study(new(name))[0].id)
    leases = [ownership.claim(owner, TTL) for owner in ("first", "second", "first", "third")]
    assert [lease and lease.study_id for lease in leases] == [*ids, None]
    assert leases[1] == Lease(study_id=ids[1], owner="second", token=1, expires_at=clock.now + TTL)


def test_a_claim_leaves_out_what_is_excluded_and_can_ask_for_one_study_only(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    ids = []
    for name in ("a", "b", "c"):
        clock.move(1)
        ids.append(repository.create_study(new(name))[0].id)
    excluding = ownership.claim("first", TTL, exclude=ids[:2])
    assert excluding is not None
    assert excluding.study_id == ids[2]
    only = ownership.claim("first", TTL, only=ids[1])
    assert only is not None
    assert only.study_id == ids[1]
    assert ownership.claim("first", TTL, only=ids[1]) is None
    assert ownership.claim("first", TTL, exclude=ids) is None


@pytest.mark.parametrize("state", list(StudyState))
def test_only_a_study_with_work_is_claimed(
    engine: Engine, repository: Repository, ownership: Ownership, state: StudyState
) -> None:
    repository.create_study(new())
    with engine.begin() as connection:
        connection.execute(text("UPDATE study SET state = :state"), {"state": state})
    assert (ownership.claim("first", TTL) is not None) == (
        state.value in ("queued", "running", "stopping", "cancelling")
    )


def test_a_paused_study_is_claimed_only_while_a_dead_dispatchers_trial_seems_to_run(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    begun(ownership, lease)
    repository.act("small", StudyEvent.pause)
    taken = taken_over(ownership, clock, lease)
    assert ownership.requeue_orphans(taken) == 1
    ownership.release(taken)
    assert ownership.claim("third", TTL) is None


def test_many_dispatchers_at_once_share_the_studies_without_one_being_claimed_twice(
    repository: Repository, ownership: Ownership
) -> None:
    ids = {repository.create_study(new(f"study-{number}"))[0].id for number in range(20)}
    barrier = threading.Barrier(6)

    def claim_all(owner: int) -> list[str]:
        barrier.wait()
        claimed: list[str] = []
        misses = 0
        # Under PostgreSQL a study that another one is just claiming is passed by: nothing does not yet mean the end.
        while misses < 3:
            lease = ownership.claim(f"owner-{owner}", TTL)
            if lease is None:
                misses += 1
            else:
                claimed.append(lease.study_id)
        return claimed

    with ThreadPoolExecutor(6) as threads:
        claims = [study_id for claimed in threads.map(claim_all, range(6)) for study_id in claimed]
    assert len(claims) == 20
    assert set(claims) == ids
    assert {repository.study(study_id).lease_token for study_id in ids} == {1}


def test_a_lease_is_taken_over_only_once_it_is_over_and_with_a_higher_token(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    clock.move(TTL.total_seconds() - 0.001)
    assert ownership.claim("second", TTL) is None
    clock.move(0.001)
    taken = ownership.claim("second", TTL)
    assert taken is not None
    assert (taken.study_id, taken.owner, taken.token) == (lease.study_id, "second", lease.token + 1)


def test_the_lease_of_a_process_of_this_machine_that_is_gone_is_taken_over_at_once(
    repository: Repository, ownership: Ownership
) -> None:
    machine, _, process = this_owner().rpartition("/")
    gone = f"{machine}/{process.partition('-')[0]}-1"
    for name, owner in (("living", this_owner()), ("dead", gone)):
        running(repository, ownership, name, owner)
    taken = ownership.claim("second", TTL)
    assert taken is not None
    assert taken.study_id == repository.study("dead").id
    assert ownership.claim("second", TTL) is None


def test_a_dispatcher_keeps_writing_under_a_lease_that_is_over_as_long_as_nobody_took_it(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    clock.move(10 * TTL.total_seconds())
    ownership.set_waiting(lease, "still here")
    renewed = ownership.renew(lease, TTL)
    assert renewed.expires_at == clock.now + TTL
    assert ownership.claim("second", TTL) is None


def test_a_renewed_lease_lasts_longer_with_the_same_token(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    clock.move(TTL.total_seconds() - 1)
    renewed = ownership.renew(lease, 2 * TTL)
    assert (renewed.token, renewed.expires_at) == (lease.token, clock.now + 2 * TTL)
    clock.move(2 * TTL.total_seconds() - 1)
    assert ownership.claim("second", TTL) is None
    # The older record of the same claim still writes: what fences is the token.
    ownership.set_waiting(lease, "GPUs")


def test_a_released_study_can_be_claimed_at_once(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    ownership.release(lease)
    assert repository.live_owners() == 0
    taken = ownership.claim("second", TTL)
    assert taken is not None
    assert taken.token == lease.token + 1


FENCED: dict[str, Callable[[Ownership, Lease, int], object]] = {
    "renew": lambda store, lease, _: store.renew(lease, TTL),
    "study": lambda store, lease, _: store.study(lease),
    "trials": lambda store, lease, _: store.trials(lease),
    "apply": lambda store, lease, _: store.apply(lease, StudyEvent.complete),
    "set_waiting": lambda store, lease, _: store.set_waiting(lease, "GPUs"),
    "add_active_time": lambda store, lease, _: store.add_active_time(lease, 1.0),
    "requeue_orphans": lambda store, lease, _: store.requeue_orphans(lease),
    "stop_trials": lambda store, lease, _: store.stop_trials(lease),
    "add_trial": lambda store, lease, _: store.add_trial(lease, configuration(tp=4), "sampler", {}),
    "start_attempt": lambda store, lease, _: store.start_attempt(lease, 1, "launch", True),
    "finish_attempt": lambda store, lease, attempt: store.finish_attempt(
        lease, attempt, OUTCOMES[TrialEvent.complete], 1.0, TrialEvent.complete
    ),
}


def test_every_method_under_a_lease_is_known_to_be_fenced() -> None:
    under_lease = {
        name
        for name, method in inspect.getmembers(Ownership, inspect.isfunction)
        if not name.startswith("_") and "lease" in inspect.signature(method).parameters
    }
    assert under_lease - {"release"} == set(FENCED)


@pytest.mark.parametrize("way", ["taken over", "taken over by the same owner", "released", "deleted"])
def test_nothing_can_be_done_under_a_lost_lease_and_nothing_changes(
    engine: Engine, repository: Repository, ownership: Ownership, clock: Clock, way: str
) -> None:
    lease = running(repository, ownership)
    attempt = begun(ownership, lease)
    ownership.add_trial(lease, configuration(tp=2), "sampler", {})
    if way == "released":
        ownership.release(lease)
    elif way == "deleted":
        ownership.apply(lease, StudyEvent.complete)
        repository.delete_study(lease.study_id)
    else:
        taken_over(ownership, clock, lease, lease.owner if "same" in way else "second")
    before = dump(engine)
    for name, method in FENCED.items():
        with pytest.raises(LeaseLost, match=lease.study_id):
            method(ownership, lease, attempt)
        assert dump(engine) == before, name
    ownership.release(lease)
    assert dump(engine) == before


def test_a_lease_of_one_study_finishes_no_attempt_of_another(
    engine: Engine, repository: Repository, ownership: Ownership
) -> None:
    attempt = begun(ownership, running(repository, ownership, "a"))
    other = running(repository, ownership, "b")
    before = dump(engine)
    with pytest.raises(NotFound):
        ownership.finish_attempt(other, attempt, CRASH, 1.0, TrialEvent.fail)
    with pytest.raises(NotFound):
        ownership.start_attempt(other, 0, "launch", True)
    assert dump(engine) == before


def test_a_dispatcher_moves_its_study_with_a_reason(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    ended = ownership.apply(lease, StudyEvent.fail, "no node has 8 GPUs")
    assert (ended.state, ended.state_reason) == (StudyState.failed, "no node has 8 GPUs")
    assert ended == repository.study("small")
    with pytest.raises(Conflict, match="failed study cannot complete"):
        ownership.apply(lease, StudyEvent.complete)


def test_what_a_study_waits_for_is_said_and_gone_once_it_moves_on(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    ownership.set_waiting(lease, "needs 8 GPUs; 2 are free")
    assert ownership.study(lease).state_reason == "needs 8 GPUs; 2 are free"
    assert repository.events(0)[-1].payload == {"reason": "needs 8 GPUs; 2 are free"}
    assert ownership.apply(lease, StudyEvent.complete).state_reason is None


def test_the_reference_is_fixed_with_the_first_measurement_and_never_moves(
    repository: Repository, ownership: Ownership
) -> None:
    lease = running(repository, ownership)
    for number, reference in enumerate([None, (2.0, None), (1.0, 5.0)]):
        ownership.add_trial(lease, configuration(microbatch=number + 1), "sampler", {})
        attempt = ownership.start_attempt(lease, number, "launch", True)
        done = Completed(measurement(), None)
        ownership.finish_attempt(lease, attempt.id, done, 1.0, TrialEvent.complete, reference)
        found = ownership.study(lease)
        expected = (None, None) if number == 0 else (2.0, None)
        assert (found.reference_step_time_s, found.reference_energy_j) == expected


def test_a_trial_that_sees_too_many_dispatchers_die_is_given_up(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    ownership.add_trial(lease, configuration(), "baseline", {})
    for deaths in range(MAX_ORPHANED):
        (trial,) = ownership.trials(lease)
        assert (trial.state, trial.attempts) == (TrialState.queued, deaths)
        ownership.start_attempt(lease, 0, "launch", True)
        lease = taken_over(ownership, clock, lease, f"dispatcher-{deaths}")
        ownership.requeue_orphans(lease)
    (trial,) = ownership.trials(lease)
    assert (trial.state, trial.failure_kind) == (TrialState.lost, FailureKind.crashed)
    assert trial.message == "20 dispatchers died while they ran it"


def test_active_time_adds_up(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    ownership.add_active_time(lease, 1.5)
    ownership.add_active_time(lease, 2.0)
    assert ownership.study(lease).active_s == 3.5


def test_trials_are_numbered_without_gaps_whatever_becomes_of_them(
    repository: Repository, ownership: Ownership
) -> None:
    lease = running(repository, ownership)
    numbers = []
    for number, mhz in enumerate((None, 1110, 1260, 1410)):
        trial = ownership.add_trial(lease, configuration(mhz=mhz), "sampler", {"note": [number, 0.5, None]})
        numbers.append(trial.number)
        with pytest.raises(IntegrityError):
            ownership.add_trial(lease, configuration(mhz=mhz), "sampler", {})
        ownership.stop_trials(lease)
    assert numbers == [0, 1, 2, 3]
    assert [trial.sampler_attrs for trial in ownership.trials(lease)] == [{"note": [n, 0.5, None]} for n in range(4)]


def test_a_configuration_is_queued_once_a_repeat_and_again_in_another_study(
    engine: Engine, repository: Repository, ownership: Ownership
) -> None:
    lease = running(repository, ownership)
    ownership.add_trial(lease, configuration(), "baseline", {})
    before = dump(engine)
    with pytest.raises(IntegrityError):
        ownership.add_trial(lease, configuration(), "sampler", {})
    assert dump(engine) == before
    again = ownership.add_trial(lease, configuration(), "sampler", {}, repeat=1)
    assert (again.number, again.repeat) == (1, 1)
    other = running(repository, ownership, "other")
    assert ownership.add_trial(other, configuration(), "baseline", {}).number == 0


def test_an_attempt_starts_only_at_a_queued_trial(repository: Repository, ownership: Ownership, clock: Clock) -> None:
    lease = running(repository, ownership)
    ownership.add_trial(lease, configuration(), "baseline", {})
    clock.move(1)
    attempt = ownership.start_attempt(lease, 0, "launch-a", True)
    assert (attempt.number, attempt.state, attempt.lease_token) == (1, AttemptState.running, lease.token)
    assert (attempt.launch_name, attempt.new_launch, attempt.started_at) == ("launch-a", True, clock.now)
    assert repository.attempts(lease.study_id, 0) == [attempt]
    assert ownership.trials(lease)[0].started_at == clock.now
    with pytest.raises(Conflict, match="running trial cannot start"):
        ownership.start_attempt(lease, 0, "launch-b", True)
    with pytest.raises(NotFound, match="no trial 1"):
        ownership.start_attempt(lease, 1, "launch-b", True)
    assert repository.attempts(lease.study_id, 0) == [attempt]


@pytest.mark.parametrize("event", list(OUTCOMES))
def test_an_attempt_ends_with_its_trial_and_can_end_only_once(
    engine: Engine, repository: Repository, ownership: Ownership, clock: Clock, event: TrialEvent
) -> None:
    lease = running(repository, ownership)
    attempt_id = begun(ownership, lease)
    clock.move(10)
    outcome = OUTCOMES[event]
    trial = ownership.finish_attempt(lease, attempt_id, outcome, 40.0, event)
    assert trial == repository.trials(lease.study_id)[0]
    assert trial.state is TRIAL_TRANSITIONS[TrialState.running, event]
    assert (trial.attempts, trial.gpu_seconds) == (1, 40.0)
    assert trial.ended_at == (clock.now if trial.state.is_final else None)
    attempt = repository.attempts(lease.study_id, 0)[0]
    assert (attempt.ended_at, attempt.gpu_seconds) == (clock.now, 40.0)
    if isinstance(outcome, Completed):
        assert (trial.measurement, trial.failure_kind, attempt.launch_s) == (outcome.measurement, None, 20.0)
    else:
        assert trial.measurement is None
        assert (attempt.failure_kind, attempt.message) == (outcome.kind, outcome.message)
        assert attempt.log_tail == (outcome.log_tail or None)
        # A trial that goes back into the queue has not failed.
        assert trial.failure_kind == (None if event is TrialEvent.retry else outcome.kind)
    before = dump(engine)
    with pytest.raises(Conflict):
        ownership.finish_attempt(lease, attempt_id, outcome, 40.0, event)
    assert dump(engine) == before


def test_an_earlier_attempt_cannot_end_the_trial_that_a_later_one_is_at(
    engine: Engine, repository: Repository, ownership: Ownership
) -> None:
    lease = running(repository, ownership)
    first = begun(ownership, lease)
    ownership.finish_attempt(lease, first, LOST, 3.0, TrialEvent.retry)
    second = ownership.start_attempt(lease, 0, "launch-b", True)
    before = dump(engine)
    with pytest.raises(Conflict, match="attempt 1 at trial 0 of study small is lost already"):
        ownership.finish_attempt(lease, first, OUTCOMES[TrialEvent.complete], 1.0, TrialEvent.complete)
    assert dump(engine) == before
    done = ownership.finish_attempt(lease, second.id, OUTCOMES[TrialEvent.complete], 4.0, TrialEvent.complete)
    assert (done.attempts, done.gpu_seconds, done.state) == (2, 7.0, TrialState.complete)
    assert (done.failure_kind, done.message) == (None, None)


def test_a_measurement_that_cannot_be_stored_leaves_nothing_of_its_attempt_behind(
    engine: Engine, repository: Repository, ownership: Ownership
) -> None:
    lease = running(repository, ownership)
    attempt = begun(ownership, lease)
    before = dump(engine)
    unstorable = Completed(measurement(tokens_per_s=None), 20.0)
    with pytest.raises(IntegrityError):
        ownership.finish_attempt(lease, attempt, unstorable, 1.0, TrialEvent.complete)
    assert dump(engine) == before
    done = ownership.finish_attempt(lease, attempt, Completed(measurement(), 20.0), 1.0, TrialEvent.complete)
    assert done.state is TrialState.complete


def test_a_log_with_any_bytes_in_it_can_be_stored(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    attempt = begun(ownership, lease)
    tail = b"CUDA error \xff\0 at 0x7f \xe2\x82\xac".decode("utf-8", "surrogateescape")
    failure = TrialFailure(FailureKind.crashed, f"died: {tail}", tail)
    trial = ownership.finish_attempt(lease, attempt, failure, 1.0, TrialEvent.fail)
    assert trial == repository.trials(lease.study_id)[0]
    assert repository.attempts(lease.study_id, 0)[0].log_tail == "CUDA error \ufffd\ufffd at 0x7f \u20ac"
    ended = ownership.apply(lease, StudyEvent.fail, tail)
    assert ended == repository.study("small")
    assert len(repository.events(0)) == ended.revision


def test_a_former_dispatchers_running_trials_go_back_into_the_queue_and_nothing_else_is_touched(
    engine: Engine, repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    done = begun(ownership, lease, tp=1)
    ownership.finish_attempt(lease, done, OUTCOMES[TrialEvent.complete], 5.0, TrialEvent.complete)
    begun(ownership, lease, tp=2)
    ownership.add_trial(lease, configuration(tp=4), "sampler", {})
    other = running(repository, ownership, "other", "third")
    begun(ownership, other)
    untouched = ownership.trials(lease)
    taken = taken_over(ownership, clock, lease)
    others = ownership.trials(other)
    assert ownership.requeue_orphans(taken) == 1
    trials = ownership.trials(taken)
    assert [t.state for t in trials] == [TrialState.complete, TrialState.queued, TrialState.queued]
    assert [trials[0], trials[2]] == [untouched[0], untouched[2]]
    assert (trials[1].attempts, trials[1].gpu_seconds, trials[1].failure_kind) == (1, 0.0, None)
    lost = repository.attempts(lease.study_id, 1)[0]
    assert (lost.state, lost.ended_at, lost.gpu_seconds) == (AttemptState.lost, clock.now, 0.0)
    assert ownership.trials(other) == others
    assert repository.events(0, lease.study_id)[-1].kind == "trial.requeued"
    before = dump(engine)
    assert ownership.requeue_orphans(taken) == 0
    assert dump(engine) == before


def test_a_dispatchers_own_running_trials_are_no_orphans(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    begun(ownership, lease)
    assert ownership.requeue_orphans(lease) == 0
    assert ownership.trials(lease)[0].state is TrialState.running


def test_stopping_the_trials_ends_the_queued_ones_and_lets_the_running_ones_be(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    begun(ownership, lease)
    for tp in (2, 4):
        ownership.add_trial(lease, configuration(tp=tp), "sampler", {})
    clock.move(1)
    ownership.stop_trials(lease)
    assert [(t.state, t.ended_at) for t in ownership.trials(lease)] == [
        (TrialState.running, None),
        (TrialState.stopped, clock.now),
        (TrialState.stopped, clock.now),
    ]
    revision = repository.study("small").revision
    ownership.stop_trials(lease)
    assert repository.study("small").revision == revision


class Model:
    """What must be stored after any steps."""

    def __init__(self) -> None:
        self.states: list[TrialState] = []
        self.attempts: list[list[int]] = []
        self.changes = 2

    def move(self, number: int, event: TrialEvent) -> None:
        self.states[number] = TRIAL_TRANSITIONS[self.states[number], event]
        self.changes += 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "start", "finish", "take over", "stop"]),
        st.integers(0, 5),
        st.sampled_from(sorted(OUTCOMES)),
    ),
    max_size=20,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_after_any_steps_every_trial_is_where_its_table_says_and_every_change_left_its_event(
    repository: Repository, ownership: Ownership, clock: Clock, steps: list[tuple[str, int, TrialEvent]]
) -> None:
    name = f"study-{repository.last_event_id()}"
    lease, model = running(repository, ownership, name), Model()
    for step, pick, event in steps:
        lease = take_step(ownership, clock, lease, model, step, pick, TrialEvent(event))
        trials = repository.trials(lease.study_id)
        assert [t.state for t in trials] == model.states
        assert [t.number for t in trials] == list(range(len(model.states)))
        assert [t.attempts for t in trials] == [len(ids) for ids in model.attempts]
        assert all((t.measurement is not None) == (t.state is TrialState.complete) for t in trials)
        study = repository.study(name)
        revisions = [e.revision for e in repository.events(0, study.id)]
        assert study.revision == model.changes
        assert revisions == list(range(1, study.revision + 1))


def take_step(
    ownership: Ownership, clock: Clock, lease: Lease, model: Model, step: str, pick: int, event: TrialEvent
) -> Lease:
    number = pick % len(model.states) if model.states else 0
    if step == "add":
        ownership.add_trial(lease, configuration(mhz=1000 + len(model.states)), "sampler", {})
        model.states.append(TrialState.queued)
        model.attempts.append([])
        model.changes += 1
    elif step == "take over":
        lease = taken_over(ownership, clock, lease)
        orphans = [n for n, state in enumerate(model.states) if state is TrialState.running]
        assert ownership.requeue_orphans(lease) == len(orphans)
        for orphan in orphans:
            model.move(orphan, TrialEvent.retry)
    elif step == "stop":
        ownership.stop_trials(lease)
        for queued in [n for n, state in enumerate(model.states) if state is TrialState.queued]:
            model.move(queued, TrialEvent.stop)
    elif model.states and step == "start":
        start(ownership, lease, model, number)
    elif model.states and model.attempts[number]:
        finish(ownership, lease, model, number, event)
    return lease


def start(ownership: Ownership, lease: Lease, model: Model, number: int) -> None:
    if model.states[number] is not TrialState.queued:
        with pytest.raises(Conflict):
            ownership.start_attempt(lease, number, "launch", False)
        return
    model.attempts[number].append(ownership.start_attempt(lease, number, "launch", False).id)
    model.move(number, TrialEvent.start)


def finish(ownership: Ownership, lease: Lease, model: Model, number: int, event: TrialEvent) -> None:
    attempt = model.attempts[number][-1]
    if model.states[number] is not TrialState.running:
        with pytest.raises(Conflict):
            ownership.finish_attempt(lease, attempt, OUTCOMES[event], 1.0, event)
        return
    ownership.finish_attempt(lease, attempt, OUTCOMES[event], 1.0, event)
    model.move(number, event)
