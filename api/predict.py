"""``paretune predict``: files in, predictions out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from api.predicting import MOST_ANSWERS, Knowledge, check_predictable, predict_each, predict_frontier
from api.prediction_answers import PredictionsAnswer
from api.render_predictions import predictions
from api.studyfile import load_job, read_json, read_text
from api.writing import writing
from tuner.candidates import read_configurations, space_candidates
from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.measured import measured_trials
from tuner.physics.configurations import Configurations
from tuner.predictions import write_predictions
from tuner.table import parse_table

# What a machine of some 8 GB can hold.
MOST_CONFIGURATIONS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files that the command names.

    Args:
        job: The job or study file.
        configurations: CSV of what to predict; ``None`` for the whole space.
        calibrate: Measured table to calibrate on.
        calibration: A saved calibration to use.
        save_calibration: Where to save the calibration.
        output: CSV to write every prediction to.
    """

    job: Path
    configurations: Path | None
    calibrate: Path | None
    calibration: Path | None
    save_calibration: Path | None
    output: Path | None


def predict(files: Files, output: Console, notes: Console, *, as_json: bool) -> None:
    """Predict, and write and show what was predicted.

    Args:
        files: What to read and write.
        output: Console for the findings.
        notes: Console for what was written where.
        as_json: Whether to print the findings as JSON.

    Raises:
        InvalidInput: A file cannot be read or written, or what it holds cannot be.
    """
    spec = load_job(files.job)
    job, cluster = spec.training_job(), spec.hardware()
    check_predictable(job)
    if files.save_calibration is not None and files.calibrate is None:
        raise InvalidInput.of("--save-calibration", str(files.save_calibration), "needs --calibrate MEASURED.csv")
    if files.configurations is None:
        asked = space_candidates(spec.space, job, cluster, MOST_CONFIGURATIONS)
    else:
        asked = _read_configurations(files.configurations, job, cluster)
        if len(asked) > MOST_ANSWERS and (files.output is None or as_json):
            reason = f"are more than the {MOST_ANSWERS:,} that can be shown; use --output OUT.csv without --json"
            raise InvalidInput.of("--configurations", f"{len(asked):,} rows", reason)
    knowledge = _knowledge(files, job, cluster)
    if files.save_calibration is not None and knowledge.file is not None:
        with writing(files.save_calibration, "--save-calibration") as stream:
            stream.write(json.dumps(knowledge.file.to_document()) + "\n")
        notes.print(f"calibration: {files.save_calibration}")
    if files.output is not None:
        _write_csv(files.output, job, cluster, asked, knowledge, notes)
    if files.configurations is None:
        _show(predict_frontier(job, cluster, asked, knowledge), output, as_json=as_json)
    elif files.output is None or as_json:
        _show(predict_each(job, cluster, asked, knowledge), output, as_json=as_json)


def _show(answer: PredictionsAnswer, output: Console, *, as_json: bool) -> None:
    if as_json:
        print(answer.model_dump_json(indent=2), file=output.file)
    else:
        output.print(predictions(answer))


def _knowledge(files: Files, job: TrainingJob, cluster: Cluster) -> Knowledge:
    knowledge = Knowledge()
    if files.calibration is not None:
        document = read_json(files.calibration, "--calibration")
        knowledge = Knowledge.saved(document, cluster, "--calibration")
    if files.calibrate is None:
        return knowledge
    field = "--calibrate"
    rows = parse_table(read_text(files.calibrate, field), field, repeats=True)
    measured = measured_trials(rows, job, cluster, field, lambda row, name: f"{field} line {rows[row].line}, {name}")
    return knowledge.fitted(job, cluster, measured, to=files.calibrate.name)


def _read_configurations(path: Path, job: TrainingJob, cluster: Cluster) -> Configurations:
    field = "--configurations"
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return read_configurations(stream, job, cluster, field, MOST_CONFIGURATIONS)
    except OSError as error:
        raise InvalidInput.of(field, str(path), f"must be a readable file ({error.strerror})") from None


def _write_csv(
    path: Path, job: TrainingJob, cluster: Cluster, asked: Configurations, knowledge: Knowledge, notes: Console
) -> None:
    with writing(path, "--output") as stream:
        fitting = write_predictions(stream, job, cluster, asked, knowledge.calibration)
    after = knowledge.calibration.trials
    basis = f"calibrated on {after} trials" if after else "uncalibrated"
    notes.print(f"{len(asked):,} configurations PREDICTED ({basis}), {fitting:,} of them fit: {path}")
