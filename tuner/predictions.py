"""What predictions say: the predicted frontier, which part of the step binds, and the CSV of all of them."""

from __future__ import annotations

import io
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from tuner.frontier import knee, pareto_mask
from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.calibration import DEFAULT, Calibration
from tuner.physics.configurations import RECOMPUTE, Configurations
from tuner.physics.predict import Prediction, predict
from tuner.policy import PolicyKind

_PREDICTED = tuple(field.name for field in fields(Prediction) if field.name != "breakdown")
_LEADING = ("dp", "tp", "pp", "microbatch", "frequency_mhz", "zero_stage", "recompute")
_CHUNK = 65_536
# Of logarithms: a thousandth is far above rounding and far below what any prediction tells apart.
_ALIKE_DECIMALS = 3
_NUMBER = "%.10g"


def predicted_frontier(prediction: Prediction) -> NDArray[np.intp]:
    """Positions of the configurations that fit and that no other one beats in step time and energy, fastest first.

    Of configurations that are predicted alike in both, the first stands for all: where the power cap binds, so are all
    clocks above the one that runs.

    Args:
        prediction: Predictions, at least one.
    """
    fitting = np.flatnonzero(prediction.fits)
    values = np.column_stack([prediction.step_time_s, prediction.energy_j])[fitting]
    values = np.exp(np.round(np.log(values), _ALIKE_DECIMALS))
    on_frontier = np.flatnonzero(pareto_mask(values))
    _, first = np.unique(values[on_frontier, 0], return_index=True)
    return np.asarray(fitting[on_frontier[first]])


def pick_points(prediction: Prediction, frontier: NDArray[np.intp]) -> dict[PolicyKind, int]:
    """The frontier's ends and its knee, as positions in the frontier; empty where the frontier is.

    Args:
        prediction: Predictions.
        frontier: What :func:`predicted_frontier` found in them.
    """
    if not len(frontier):
        return {}
    values = np.column_stack([prediction.step_time_s, prediction.energy_j])[frontier]
    return {
        PolicyKind.fastest: 0,
        PolicyKind.least_energy: len(frontier) - 1,
        PolicyKind.knee: knee(values),
    }


def binding_parts(prediction: Prediction, rows: NDArray[np.intp] | slice = slice(None)) -> list[str]:
    """The largest part of the step time of some configurations.

    Args:
        prediction: Predictions.
        rows: Positions of those wanted; all by default.
    """
    names = list(prediction.breakdown)
    largest = np.argmax(np.stack([values[rows] for values in prediction.breakdown.values()]), axis=0)
    return [names[part] for part in largest.tolist()]


def write_predictions(
    stream: io.TextIOBase,
    job: TrainingJob,
    cluster: Cluster,
    configurations: Configurations,
    calibration: Calibration = DEFAULT,
) -> int:
    """Predict and write as CSV, piece by piece, one row a configuration in the order given.

    Args:
        stream: Where to write, opened without newline translation.
        job: The training job.
        cluster: The cluster.
        configurations: What to predict, at least one.
        calibration: What is known about the cluster.

    Returns:
        How many of them fit.
    """
    fitting = 0
    for start in range(0, len(configurations), _CHUNK):
        piece = configurations[start : start + _CHUNK]
        prediction = predict(job, cluster, piece, calibration)
        if start == 0:
            stream.write(",".join((*_LEADING, *_PREDICTED, "binds", *prediction.breakdown)) + "\n")
        fitting += int(prediction.fits.sum())
        rows = zip(*_leading(piece), *_predicted(prediction), strict=True)
        stream.writelines(",".join(row) + "\n" for row in rows)
    return fitting


def _leading(x: Configurations) -> list[list[str]]:
    recompute = [str(RECOMPUTE[index]) for index in x.recompute.astype(int).tolist()]
    return [*(_texts(getattr(x, name)) for name in _LEADING[:-1]), recompute]


def _predicted(prediction: Prediction) -> list[list[str]]:
    columns = [_texts(getattr(prediction, name)) for name in _PREDICTED]
    return [*columns, binding_parts(prediction), *map(_texts, prediction.breakdown.values())]


def _texts(values: NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]) -> list[str]:
    if values.dtype == np.bool_:
        return ["true" if value else "false" for value in values.tolist()]
    return [_NUMBER % value for value in values.tolist()]
