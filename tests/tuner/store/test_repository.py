from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from builders import configuration, measurement
from databases import TTL, Clock, dump, new, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from tuner.errors import Conflict, InvalidInput, NotFound
from tuner.states import STUDY_TRANSITIONS, StudyEvent, StudyState, TrialEvent
from tuner.store.engine import open_engine, write
from tuner.store.journal import change_study
from tuner.store.ownership import Ownership
from tuner.store.records import Completed
from tuner.store.repository import Repository
from tuner.store.tables import StudyRow


def pages(repository: Repository, limit: int, **query: Any) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page, cursor = repository.studies(limit=limit, cursor=cursor, **query)
        found.append([study.name for study in page])
        if cursor is None:
            return found


def put_in(engine: Engine, study_id: str, state: StudyState) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE study SET state = :state WHERE id = :id"), {"state": state, "id": study_id})


def test_a_study_is_created_once_and_got_after_that(repository: Repository, clock: Clock) -> None:
    first, created = repository.create_study(new(budget={"trials": 3}))
    assert created
    assert (first.state, first.revision, first.created_at) == (StudyState.queued, 1, clock.now)
    assert first.spec == {"name": "small", "budget": {"trials": 3}}
    clock.move(5)
    assert repository.create_study(new(budget={"trials": 3})) == (first, False)
    assert [event.kind for event in repository.events(0)] == ["study.created"]


def test_a_name_taken_by_another_spec_is_a_conflict_that_names_each_difference(repository: Repository) -> None:
    repository.create_study(new(budget={"trials": 3, "patience": 2}, runner={"seed": 1}, limits={}))
    with pytest.raises(Conflict, match="small") as caught:
        repository.create_study(new(budget={"trials": 4, "patience": 2}, runner={"kind": "replay"}, limits={}))
    assert [str(d) for d in caught.value.differences] == [
        "budget.trials: 4: is 3 there and 4 here",
        "runner.kind: 'replay': is None there and 'replay' here",
        "runner.seed: missing: is 1 there and None here",
    ]
    assert len(repository.studies()[0]) == 1


def test_the_same_name_in_another_project_is_another_study(repository: Repository) -> None:
    here, _ = repository.create_study(new())
    other = new(budget=1)
    there, created = repository.create_study(
        type(other)(**{name: getattr(other, name) for name in other.__dataclass_fields__} | {"project": "theirs"})
    )
    assert created
    assert repository.study("small", "theirs") == there
    assert repository.study("small") == here
    with pytest.raises(NotFound):
        repository.study(there.id)


def test_of_many_who_create_the_same_study_at_once_one_does_and_the_others_get_it(repository: Repository) -> None:
    barrier = threading.Barrier(6)

    def create(_: int) -> tuple[str, bool]:
        barrier.wait()
        study, created = repository.create_study(new())
        return study.id, created

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(create, range(6)))
    assert len({study_id for study_id, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    assert len(repository.events(0)) == 1


def test_a_creator_who_is_overtaken_between_look_and_insert_gets_the_other_ones_study(
    engine: Engine, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    overtaken = Repository(engine)
    looks, look = [], Session.scalar

    def blind_at_first(session: Session, *args: Any, **kwargs: Any) -> Any:
        looks.append(args)
        return None if len(looks) == 1 else look(session, *args, **kwargs)

    study, _ = repository.create_study(new())
    monkeypatch.setattr(Session, "scalar", blind_at_first)
    assert overtaken.create_study(new()) == (study, False)
    assert len(looks) == 2


def test_a_study_is_found_by_its_id_and_by_its_name(repository: Repository) -> None:
    study, _ = repository.create_study(new())
    assert repository.study(study.id) == repository.study("small") == repository.find_study("small") == study


@pytest.mark.parametrize("key", ["", "other", "st_0", "small\0", "sm\u00e4ll", "\udcff", "%", "x" * 1000])
def test_what_does_not_exist_is_not_found_whatever_it_is_called(repository: Repository, key: str) -> None:
    repository.create_study(new())
    with pytest.raises(NotFound):
        repository.study(key)
    with pytest.raises(NotFound):
        repository.act(key, StudyEvent.pause)
    with pytest.raises(NotFound):
        repository.delete_study(key)


def test_a_name_that_does_not_exist_is_none_where_it_is_only_looked_for(repository: Repository) -> None:
    assert repository.find_study("small") is None


def test_pages_hold_every_study_exactly_once_newest_first(repository: Repository, clock: Clock) -> None:
    names = [f"study-{number}" for number in range(7)]
    for number, name in enumerate(names):
        # Two at a time in the same microsecond: the moment alone does not order them.
        clock.move(number % 2)
        repository.create_study(new(name))
    for limit in (1, 2, 3, 7, 8):
        found = pages(repository, limit)
        assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
        flat = [name for page in found for name in page]
        assert sorted(flat) == names
        moments = [repository.study(name).created_at for name in flat]
        assert moments == sorted(moments, reverse=True)


def test_pages_neither_repeat_nor_skip_where_studies_come_and_go_meanwhile(
    repository: Repository, clock: Clock
) -> None:
    for number in range(6):
        clock.move(1)
        repository.create_study(new(f"study-{number}"))
    first, cursor = repository.studies(limit=3)
    clock.move(1)
    repository.create_study(new("late"))
    repository.delete_study("study-3")
    rest, after = repository.studies(limit=3, cursor=cursor)
    assert [s.name for s in first] == ["study-5", "study-4", "study-3"]
    assert [s.name for s in rest] == ["study-2", "study-1", "study-0"]
    assert after is None


def test_pages_hold_only_the_state_that_is_asked_for(repository: Repository, clock: Clock) -> None:
    for number in range(5):
        repository.create_study(new(f"study-{number}"))
        if number % 2:
            repository.act(f"study-{number}", StudyEvent.pause)
    found = pages(repository, 2, state=StudyState.queued)
    assert sorted(name for page in found for name in page) == ["study-0", "study-2", "study-4"]
    assert repository.studies(state=StudyState.failed) == ([], None)


@pytest.mark.parametrize(
    "cursor", ["", "forged", "st_0", "20260101T120000.000000-\0", "20260101T120000.000000-\udcff", "9" * 30]
)
def test_a_cursor_that_no_page_gave_is_refused(repository: Repository, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        repository.studies(cursor=cursor)


def test_a_user_moves_a_study_exactly_as_its_state_table_says(engine: Engine, repository: Repository) -> None:
    study, _ = repository.create_study(new())
    for state in StudyState:
        for event in StudyEvent:
            put_in(engine, study.id, state)
            before = repository.study(study.id)
            if (state, event) not in STUDY_TRANSITIONS:
                with pytest.raises(Conflict, match=f"{state} study cannot {event}"):
                    repository.act(study.id, event)
                assert repository.study(study.id) == before
                continue
            after = repository.act("small", event)
            reached = STUDY_TRANSITIONS[state, event]
            # Nobody works on it, so that what would have to wind down ends at once.
            ends = {StudyState.stopping: StudyState.stopped, StudyState.cancelling: StudyState.cancelled}
            assert after.state is ends.get(reached, reached)
            assert after.revision == before.revision + (2 if reached in ends else 1)
            assert repository.study(study.id) == after


def test_a_study_notes_when_it_started_and_ended(repository: Repository, clock: Clock) -> None:
    repository.create_study(new())
    clock.move(1)
    started = repository.act("small", StudyEvent.start)
    assert (started.started_at, started.ended_at) == (clock.now, None)
    clock.move(1)
    repository.act("small", StudyEvent.pause)
    assert repository.act("small", StudyEvent.resume).started_at == started.started_at
    clock.move(1)
    ended = repository.act("small", StudyEvent.complete)
    assert (ended.started_at, ended.ended_at, ended.updated_at) == (started.started_at, clock.now, clock.now)


@pytest.mark.parametrize("state", list(StudyState))
def test_only_a_study_that_is_not_worked_on_can_be_deleted(
    engine: Engine, repository: Repository, state: StudyState
) -> None:
    study, _ = repository.create_study(new())
    put_in(engine, study.id, state)
    if state in (StudyState.running, StudyState.stopping, StudyState.cancelling):
        before = dump(engine)
        with pytest.raises(Conflict, match=f"small is {state}"):
            repository.delete_study("small")
        assert dump(engine) == before
    else:
        repository.delete_study("small")
        assert repository.find_study("small") is None


def test_a_paused_study_whose_trials_still_run_under_a_lease_is_deleted_only_when_the_lease_is_over(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    running(repository, ownership)
    repository.act("small", StudyEvent.pause)
    with pytest.raises(Conflict, match="paused"):
        repository.delete_study("small")
    clock.move(TTL.total_seconds())
    repository.delete_study("small")


def test_a_final_study_is_deleted_even_while_its_dispatcher_has_not_let_go(
    repository: Repository, ownership: Ownership
) -> None:
    lease = running(repository, ownership)
    ownership.apply(lease, StudyEvent.complete)
    repository.delete_study("small")


def test_deleting_takes_everything_but_the_events_and_frees_the_name(
    engine: Engine, repository: Repository, ownership: Ownership
) -> None:
    for name in ("small", "other"):
        lease = running(repository, ownership, name)
        ownership.add_trial(lease, configuration(), "baseline", {})
        attempt = ownership.start_attempt(lease, 0, "launch", True)
        ownership.finish_attempt(lease, attempt.id, Completed(measurement(), 1.0), 4.0, TrialEvent.complete)
        ownership.apply(lease, StudyEvent.complete)
    deleted = repository.study("small")
    repository.delete_study("small")
    assert {name: len(rows) for name, rows in dump(engine).items() if name != "event"} == {
        "study": 1, "trial": 1, "attempt": 1, "measurement": 1
    }  # fmt: skip
    events = repository.events(0, deleted.id)
    assert [event.revision for event in events] == list(range(1, deleted.revision + 2))
    assert events[-1].kind == "study.deleted"
    again, created = repository.create_study(new())
    assert created
    assert again.id != deleted.id


def test_event_ids_only_grow_even_after_the_newest_study_is_gone(repository: Repository) -> None:
    last = 0
    for _ in range(3):
        repository.create_study(new())
        repository.act("small", StudyEvent.cancel)
        repository.delete_study("small")
        ids = [event.id for event in repository.events(last)]
        assert len(ids) == 3
        assert ids == sorted(set(ids))
        assert ids[0] > last
        last = ids[-1]
    assert repository.last_event_id() == last
    assert repository.events(last) == repository.events(10**30) == []


def test_every_change_counts_the_revision_up_by_one_and_leaves_an_event_that_carries_it(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    lease = running(repository, ownership)
    ownership.set_waiting(lease, "4 GPUs; 2 are free")
    ownership.add_trial(lease, configuration(), "baseline", {})
    ownership.start_attempt(lease, 0, "launch", True)
    repository.act("small", StudyEvent.pause)
    study = repository.study("small")
    events = repository.events(0, study.id)
    assert [(event.revision, event.kind) for event in events] == [
        (1, "study.created"),
        (2, "study.running"),
        (3, "study.waiting"),
        (4, "trial.queued"),
        (5, "trial.running"),
        (6, "study.paused"),
    ]
    assert study.revision == 6
    assert {(event.study_id, event.study_name, event.at) for event in events} == {(study.id, "small", clock.now)}
    assert [event.payload.get("trial") for event in events] == [None, None, None, 0, 0, None]


def test_events_are_read_after_an_id_up_to_a_limit_of_one_study_or_of_all(repository: Repository) -> None:
    ids = {name: repository.create_study(new(name))[0].id for name in ("a", "b")}
    for event in (StudyEvent.pause, StudyEvent.resume):
        for name in ids:
            repository.act(name, event)
    everything = repository.events(0)
    assert [event.study_name for event in everything] == ["a", "b"] * 3
    assert repository.events(everything[1].id, limit=2) == everything[2:4]
    assert repository.events(everything[1].id, ids["b"]) == everything[3::2]


def test_one_who_follows_the_events_misses_none_where_two_studies_change_at_once(
    engine: Engine, repository: Repository, clock: Clock
) -> None:
    """On PostgreSQL ids are drawn before the commit, so the first to draw need not be the first to be seen."""
    slow, _ = repository.create_study(new("slow"))
    repository.create_study(new("quick"))
    seen = [event.id for event in repository.events(0)]
    drawn, may_commit = threading.Event(), threading.Event()

    def change_slowly(session: Session) -> None:
        change_study(session, session.get_one(StudyRow, slow.id), StudyEvent.pause, None, clock.now)
        session.flush()
        drawn.set()
        may_commit.wait(10)

    with ThreadPoolExecutor(2) as threads:
        slowly = threads.submit(write, engine, change_slowly)
        assert drawn.wait(10)
        quickly = threads.submit(repository.act, "quick", StudyEvent.pause)
        threading.Event().wait(0.2)
        seen += [event.id for event in repository.events(seen[-1])]
        may_commit.set()
        slowly.result()
        quickly.result()
    seen += [event.id for event in repository.events(seen[-1])]
    assert seen == [event.id for event in repository.events(0)]
    assert len(seen) == 4


def test_trials_are_paged_by_number(repository: Repository, ownership: Ownership) -> None:
    lease = running(repository, ownership)
    for mhz in (None, 1110, 1260, 1410):
        ownership.add_trial(lease, configuration(mhz=mhz), "sampler", {})
    read = repository.trials(lease.study_id)
    assert [trial.number for trial in read] == [0, 1, 2, 3]
    assert repository.trials(lease.study_id, after_number=0, limit=2) == read[1:3]
    assert repository.trials("st_0") == []
    assert repository.attempts(lease.study_id, 0) == []


def test_live_owners_are_those_whose_lease_is_not_over(
    repository: Repository, ownership: Ownership, clock: Clock
) -> None:
    for name, owner in (("a", "first"), ("b", "first"), ("c", "second")):
        running(repository, ownership, name, owner)
    assert repository.live_owners() == 2
    clock.move(TTL.total_seconds())
    assert repository.live_owners() == 0


def test_moments_come_back_in_utc_whatever_zone_they_or_the_server_are_in(url: str) -> None:
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    if url.startswith("postgresql"):
        url += "&options=-c%20timezone%3DAsia/Kathmandu"
    engine = open_engine(url)
    moments = [datetime(2026, 1, 2, hour, 30, 0, 123456, tzinfo=kathmandu) for hour in range(5)]
    times = iter(moments)
    repository = Repository(engine, lambda: next(times))
    for number in range(5):
        repository.create_study(new(f"study-{number}"))
    found = repository.studies()[0]
    assert [study.created_at for study in found] == moments[::-1]
    assert {study.created_at.tzinfo for study in found} == {UTC}
    assert {event.at.tzinfo for event in repository.events(0)} == {UTC}
    assert [len(page) for page in pages(repository, 2)] == [2, 2, 1]
    engine.dispose()


def test_pages_are_whole_across_the_hour_that_the_servers_zone_has_twice(url: str) -> None:
    if url.startswith("postgresql"):
        url += "&options=-c%20timezone%3DEurope/Berlin"
    engine = open_engine(url)
    clock = Clock()
    clock.now = datetime(2026, 10, 24, 23, 15, tzinfo=UTC)
    repository = Repository(engine, clock)
    for number in range(6):
        clock.move(1800)
        repository.create_study(new(f"study-{number}"))
    assert [name for page in pages(repository, 1) for name in page] == [f"study-{n}" for n in range(5, -1, -1)]
    engine.dispose()


def test_a_moment_without_a_zone_is_refused(engine: Engine) -> None:
    repository = Repository(engine, lambda: datetime(2026, 1, 1))
    with pytest.raises(Exception, match="needs a time zone"):
        repository.create_study(new())
    assert dump(engine)["study"] == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(st.sampled_from(StudyEvent), max_size=12))
def test_any_sequence_of_events_keeps_to_the_table_and_counts_its_changes(
    repository: Repository, events: list[StudyEvent]
) -> None:
    study, _ = repository.create_study(new())
    state = study.state
    for event in events:
        if (state, event) in STUDY_TRANSITIONS:
            state = repository.act("small", event).state
        else:
            with pytest.raises(Conflict):
                repository.act("small", event)
        stored = repository.study("small")
        left = repository.events(0, study.id)
        assert stored.state is state
        assert [e.revision for e in left] == list(range(1, stored.revision + 1))
        assert (stored.ended_at is not None) == state.is_final
    if state in (StudyState.running, StudyState.stopping, StudyState.cancelling):
        repository.act("small", StudyEvent.cancel if state is not StudyState.cancelling else StudyEvent.settle)
        if repository.study("small").state is StudyState.cancelling:
            repository.act("small", StudyEvent.settle)
    repository.delete_study("small")
