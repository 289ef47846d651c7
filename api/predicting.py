"""Predictions without a GPU: what the route and ``paretune predict`` share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from api.prediction_answers import (
    CalibrationAnswer,
    LayoutMemoryAnswer,
    PredictionAnswer,
    PredictionsAnswer,
    StageAnswer,
    layout_of,
    moved_coefficients,
    prediction_answers,
)
from tuner.calibration_file import CalibrationFile
from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.calibrate import calibrate
from tuner.physics.calibration import DEFAULT, Calibration
from tuner.physics.configurations import Configurations
from tuner.physics.evidence import Measured
from tuner.physics.memory import stage_memory
from tuner.physics.predict import predict
from tuner.predictions import pick_points, predicted_frontier

# One answer holds no more than this many configurations by name.
MOST_ANSWERS = 10_000
# Placing layers on stages takes time by the layer; no transformer comes near.
_MOST_LAYERS = 10_000
_MOST_STAGES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The calibration that predictions use, and where it comes from.

    Args:
        file: The calibration with what it was fitted on; ``None`` for the defaults.
        before: What was known before it was fitted here; ``None`` where nothing was fitted.
    """

    file: CalibrationFile | None = None
    before: Calibration | None = None

    @property
    def calibration(self) -> Calibration:
        """The calibration."""
        return DEFAULT if self.file is None else self.file.calibration

    @classmethod
    def saved(cls, document: object, cluster: Cluster, name: str) -> Knowledge:
        """From a saved calibration.

        Args:
            document: What was saved.
            cluster: Where it is to be used.
            name: What to call it in errors.

        Raises:
            InvalidInput: No calibration, or one of another GPU model.
        """
        file = CalibrationFile.from_document(document, name)
        file.check_gpu(cluster, name)
        return cls(file=file)

    def fitted(self, job: TrainingJob, cluster: Cluster, measured: Measured, to: str) -> Knowledge:
        """With measured trials taken in.

        Args:
            job: The job that was measured.
            cluster: The cluster that it was measured on.
            measured: The trials.
            to: What to call them.
        """
        calibration = calibrate(job, cluster, measured, self.calibration)
        fitted_to = to if self.file is None else f"{self.file.fitted_to}, {to}"
        return Knowledge(file=CalibrationFile.of(calibration, cluster, fitted_to), before=self.calibration)

    def answer(self, cluster: Cluster) -> CalibrationAnswer:
        """As it is shown, where it is used on this cluster."""
        return CalibrationAnswer(
            trials=self.calibration.trials,
            fitted_to=None if self.file is None else self.file.fitted_to,
            moved=[] if self.before is None else moved_coefficients(self.before, self.calibration),
            notes=[] if self.file is None else list(self.file.notes(cluster)),
            document=None if self.file is None else self.file.to_document(),
        )


def check_predictable(job: TrainingJob) -> None:
    """Refuse a job that cannot be predicted in reasonable time.

    Raises:
        InvalidInput: A model with too many layers.
    """
    if job.model.layers > _MOST_LAYERS:
        reason = f"must not exceed {_MOST_LAYERS:,} to be predicted"
        raise InvalidInput.of("job.model.layers", job.model.layers, reason)


def predict_frontier(
    job: TrainingJob, cluster: Cluster, candidates: Configurations, knowledge: Knowledge
) -> PredictionsAnswer:
    """The predicted frontier of a space.

    Args:
        job: The training job.
        cluster: The cluster.
        candidates: The space, at least one configuration.
        knowledge: The calibration.
    """
    prediction = predict(job, cluster, candidates, knowledge.calibration)
    rows = predicted_frontier(prediction)
    frontier = prediction_answers(job, cluster, candidates, prediction, rows)
    picks = pick_points(prediction, rows)
    shown = [frontier[position] for position in picks.values()] + frontier
    return PredictionsAnswer(
        gpu=cluster.gpu.name,
        gpus=cluster.world_size,
        configurations=len(candidates),
        fitting=int(prediction.fits.sum()),
        least_memory_gib=float(prediction.peak_memory_gib.min()),
        frontier=frontier,
        picks=picks,
        predictions=[],
        memory=_memory(job, cluster, shown, knowledge),
        calibration=knowledge.answer(cluster),
    )


def predict_each(
    job: TrainingJob, cluster: Cluster, configurations: Configurations, knowledge: Knowledge
) -> PredictionsAnswer:
    """An answer for each configuration, in order.

    Args:
        job: The training job.
        cluster: The cluster.
        configurations: From one to ``MOST_ANSWERS``, checked.
        knowledge: The calibration.
    """
    prediction = predict(job, cluster, configurations, knowledge.calibration)
    predictions = prediction_answers(job, cluster, configurations, prediction, np.arange(len(configurations)))
    return PredictionsAnswer(
        gpu=cluster.gpu.name,
        gpus=cluster.world_size,
        configurations=len(configurations),
        fitting=int(prediction.fits.sum()),
        least_memory_gib=float(prediction.peak_memory_gib.min()),
        frontier=[],
        picks={},
        predictions=predictions,
        memory=_memory(job, cluster, predictions, knowledge),
        calibration=knowledge.answer(cluster),
    )


def _memory(
    job: TrainingJob, cluster: Cluster, shown: Iterable[PredictionAnswer], knowledge: Knowledge
) -> list[LayoutMemoryAnswer]:
    """The memory picture of each layout once, as long as the bound on stages allows."""
    pictures = []
    left = _MOST_STAGES
    layouts = {(layout_of(p.configuration), p.configuration.zero_stage, p.configuration.recompute): p for p in shown}
    for (layout, zero_stage, recompute), point in layouts.items():
        if layout.pp > left:
            continue
        left -= layout.pp
        stages = stage_memory(job, layout, zero_stage, recompute, knowledge.calibration.coefficients)
        pictures.append(
            LayoutMemoryAnswer(
                **point.configuration.model_dump(exclude={"frequency_mhz"}),
                capacity_gib=cluster.gpu.memory_gib,
                binding_stage=point.binding_stage,
                stages=[StageAnswer.of(stage) for stage in stages],
            )
        )
    return pictures
