"""Predictions: what a configuration would do, without a GPU."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import Store
from api.predicting import Knowledge, check_predictable, predict_each, predict_frontier
from api.prediction_answers import PredictionsAnswer
from api.prediction_request import PredictionRequest, asked_configurations
from api.routes.studies import Document
from tuner.candidates import space_candidates
from tuner.document import parse_as
from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.measured import measured_trials
from tuner.spec import StudySpec
from tuner.states import TrialState
from tuner.store.records import TrialRecord
from tuner.store.repository import Repository
from tuner.table import TableRow
from tuner.trial import FailureKind

router = APIRouter(prefix="/v1", tags=["predictions"])
MOST_CONFIGURATIONS = 200_000


@router.post("/predictions")
def create_predictions(document: Document, store: Store) -> PredictionsAnswer:
    """Predict a space's frontier, or the configurations asked for, without a GPU. Nothing is measured or stored."""
    request = parse_as(PredictionRequest, document)
    job, cluster = request.training_job(), request.hardware()
    check_predictable(job)
    if request.configurations is None:
        asked = space_candidates(request.space, job, cluster, MOST_CONFIGURATIONS)
    else:
        asked = asked_configurations(request.configurations, job, cluster)
    knowledge = Knowledge()
    if request.calibration is not None:
        knowledge = Knowledge.saved(request.calibration, cluster, "calibration")
    if request.study is not None:
        knowledge = _with_study(knowledge, store, request.study, cluster)
    predict = predict_frontier if request.configurations is None else predict_each
    return predict(job, cluster, asked, knowledge)


def _with_study(knowledge: Knowledge, store: Repository, key: str, cluster: Cluster) -> Knowledge:
    """What is known, corrected by the trials of a study on the same GPU model."""
    record = store.study(key)
    spec = StudySpec.parse(record.spec)
    job, measured_on = spec.training_job(), spec.hardware()
    check_predictable(job)
    if measured_on.gpu.name != cluster.gpu.name:
        reason = f"ran on {measured_on.gpu.name}, and the cluster has {cluster.gpu.name}"
        raise InvalidInput.of("study", record.name, reason)
    rows = [row for trial in store.trials(record.id) if (row := _row(trial)) is not None]
    where = f"study {record.name}, trial"
    measured = measured_trials(rows, job, measured_on, "study", lambda row, name: f"{where} {rows[row].line}, {name}")
    kind = {"simulated": " (simulated)", "replay": " (replayed)"}.get(spec.runner.kind, "")
    return knowledge.fitted(job, measured_on, measured, to=f"study {record.name}{kind}")


def _row(trial: TrialRecord) -> TableRow | None:
    """A trial as a row of a measured table; ``None`` where it says nothing about the configuration."""
    measurement = trial.measurement if trial.state is TrialState.complete else None
    if measurement is None and trial.failure_kind is not FailureKind.out_of_memory:
        return None
    return TableRow(
        line=trial.number,
        configuration=trial.configuration,
        zero_stage=None,
        recompute=None,
        launch_s=0.0,
        step_time_s=None if measurement is None else measurement.step_time_s,
        energy_j=None if measurement is None else measurement.energy_j,
        peak_memory_gib=None if measurement is None else measurement.peak_memory_gib,
    )
