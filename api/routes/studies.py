"""Creating, reading and steering studies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Response

from api.deps import Store
from api.reading import layouts_answer, read_study, study_detail
from api.schemas import (
    FrontierAnswer,
    LayoutsAnswer,
    RecommendationAnswer,
    StudiesAnswer,
    StudyAnswer,
    StudyDetailAnswer,
    TrialAnswer,
    TrialsAnswer,
)
from api.submission import new_study
from tuner.errors import InvalidInput, NotFound
from tuner.policy import Policy, PolicyKind
from tuner.spec import StudySpec
from tuner.states import StudyEvent, StudyState

router = APIRouter(prefix="/v1", tags=["studies"])
Key = Annotated[str, Path(description="A study's id or name.", min_length=1, max_length=120)]
Document = Annotated[dict[str, Any], Body(description="A study document; see the study file reference.")]


@router.post("/studies", status_code=201)
def create_study(document: Document, store: Store, response: Response) -> StudyDetailAnswer:
    """Create a study, or get it where it exists with the same spec (200); another spec under the name is a conflict."""
    record, created = store.create_study(new_study(StudySpec.parse(document)))
    if not created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/studies/{record.id}"
    return study_detail(store, record.id)


@router.get("/studies")
def list_studies(
    store: Store,
    state: StudyState | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=200, description="The ``next`` of the page before.")] = None,
) -> StudiesAnswer:
    """Studies, newest first."""
    records, following = store.studies(state=state, limit=limit, cursor=cursor)
    return StudiesAnswer(studies=[StudyAnswer.of(record) for record in records], next=following)


@router.get("/studies/{study}")
def read_one(study: Key, store: Store) -> StudyDetailAnswer:
    """A study with its spec and counts."""
    return study_detail(store, study)


@router.delete("/studies/{study}", status_code=204)
def delete_study(study: Key, store: Store) -> None:
    """Delete a study with its trials; one that is being worked on is a conflict."""
    store.delete_study(study)


@router.post("/studies/{study}/{action}")
def steer_study(study: Key, action: Literal["pause", "resume", "stop", "cancel"], store: Store) -> StudyDetailAnswer:
    """Pause (running trials end, GPUs are freed), resume, stop (running trials end) or cancel (they are killed)."""
    record = store.act(study, StudyEvent(action))
    return study_detail(store, record.id)


@router.get("/studies/{study}/trials")
def list_trials(
    study: Key,
    store: Store,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    cursor: Annotated[str | None, Query(max_length=20, description="The ``next`` of the page before.")] = None,
) -> TrialsAnswer:
    """Trials, by number."""
    record = store.study(study)
    after = _trial_cursor(cursor)
    trials = store.trials(record.id, after_number=after, limit=limit + 1)
    following = str(trials[limit - 1].number) if len(trials) > limit else None
    return TrialsAnswer(trials=[TrialAnswer.of(trial) for trial in trials[:limit]], next=following)


@router.get("/studies/{study}/trials/{number}")
def read_trial(study: Key, number: Annotated[int, Path(ge=0, le=2**31 - 1)], store: Store) -> TrialAnswer:
    """One trial."""
    record = store.study(study)
    for trial in store.trials(record.id, after_number=number - 1, limit=1):
        if trial.number == number:
            return TrialAnswer.of(trial)
    raise NotFound(f"study {record.name} has no trial {number}")


@router.get("/studies/{study}/frontier")
def read_frontier(study: Key, store: Store) -> FrontierAnswer:
    """The time-energy Pareto frontier, and everything it was chosen from."""
    return read_study(store, study).frontier()


@router.get("/studies/{study}/recommendation")
def read_recommendation(
    study: Key,
    store: Store,
    policy: PolicyKind = PolicyKind.least_energy,
    max_slowdown: Annotated[float | None, Query(description="0.05 allows 5 % more time than the baseline.")] = None,
    max_average_power_w: Annotated[float | None, Query(description="Average power of the whole launch.")] = None,
) -> RecommendationAnswer:
    """The configuration to run under a policy; 409 where no measured one satisfies it."""
    chosen = Policy(kind=policy, max_slowdown=max_slowdown, max_average_power_w=max_average_power_w)
    return read_study(store, study).recommendation(chosen)


@router.post("/layouts")
def read_layouts(document: Document) -> LayoutsAnswer:
    """The space that a study document describes: valid layouts, and the refused ones with reasons. Creates nothing."""
    return layouts_answer(StudySpec.parse(document))


def _trial_cursor(cursor: str | None) -> int:
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise InvalidInput.of("cursor", cursor, "must be the next of the page before")
    return int(cursor)
