"""A study's trials as a table that other programs read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tuner.states import TrialState
from tuner.store.records import TrialRecord
from tuner.trial import FailureKind

COLUMNS = (
    "trial",
    "dp",
    "tp",
    "pp",
    "microbatch",
    "frequency_mhz",
    "state",
    "status",
    "source",
    "step_time_s",
    "step_time_sem_s",
    "energy_j",
    "energy_sem_j",
    "energy_source",
    "tokens_per_s",
    "average_power_w",
    "peak_memory_gib",
    "achieved_mhz",
    "temperature_c",
    "gpu_seconds",
    "flags",
    "message",
)


def trials_csv(trials: Sequence[TrialRecord]) -> str:
    """All trials, one a row; complete and out-of-memory ones also carry the ``status`` that replay tables use.

    Args:
        trials: The trials, by number.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        writer.writerow(_row(trial))
    return out.getvalue()


def _row(trial: TrialRecord) -> dict[str, object]:
    layout, measurement = trial.configuration.layout, trial.measurement
    status = "ok" if trial.state is TrialState.complete else ""
    if trial.failure_kind is FailureKind.out_of_memory:
        status = "oom"
    row: dict[str, object] = {
        "trial": trial.number,
        "dp": layout.dp,
        "tp": layout.tp,
        "pp": layout.pp,
        "microbatch": layout.microbatch,
        "frequency_mhz": trial.configuration.frequency_mhz,
        "state": trial.state,
        "status": status,
        "gpu_seconds": trial.gpu_seconds,
        "message": trial.message,
    }
    if measurement is not None:
        row |= {name: getattr(measurement, name) for name in COLUMNS if hasattr(measurement, name)}
        row["flags"] = " ".join(measurement.flags)
    return row
