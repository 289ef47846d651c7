"""The ``replay`` runner: answers from a measured table, so that a search runs on real numbers without a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.job import TrainingJob
from tuner.layout import Configuration, Layout
from tuner.table import TableRow, parse_table
from tuner.trial import (
    EnergySource,
    FailureKind,
    Measurement,
    MeasurementPlan,
    Placement,
    Source,
    TrialFailure,
)


class ReplayRunner:
    """Answers trials from a table.

    Args:
        csv: The table's text; see :func:`tuner.table.parse_table`.
    """

    def __init__(self, csv: str) -> None:
        self._rows = {row.configuration: row for row in parse_table(csv)}

    def open(self, job: TrainingJob, layout: Layout, placement: Placement) -> ReplayLaunch:
        """Open a layout of the table; one that ran out of memory in every row of it does so here.

        Raises:
            TrialFailure: The table does not hold the layout, or it ran out of memory.
        """
        rows = {c: row for c, row in self._rows.items() if c.layout == layout}
        if not rows:
            raise TrialFailure(FailureKind.invalid_layout, f"the replayed table has no row for {layout}", elapsed_s=0.0)
        launch_s = max(row.launch_s for row in rows.values())
        if all(row.out_of_memory for row in rows.values()):
            raise TrialFailure(
                FailureKind.out_of_memory, f"{layout} ran out of memory in the replayed table", elapsed_s=launch_s
            )
        return ReplayLaunch(job, rows, launch_s)


class ReplayLaunch:
    """One layout of the table.

    Args:
        job: The training job, for the tokens of a step.
        rows: The layout's rows.
        launch_s: Seconds that starting it took.
    """

    def __init__(self, job: TrainingJob, rows: Mapping[Configuration, TableRow], launch_s: float) -> None:
        self.launch_s = launch_s
        self._job = job
        self._rows = {configuration.frequency_mhz: row for configuration, row in rows.items()}
        self._closed = False

    def measure(self, frequency_mhz: int | None, plan: MeasurementPlan) -> Measurement:
        """The table's row at this clock, as if it had been measured for as long as the plan says.

        Raises:
            TrialFailure: The table has no such row, or it ran out of memory there.
        """
        if self._closed:
            raise TrialFailure(FailureKind.cancelled, "the launch is closed", elapsed_s=0.0)
        row = self._rows.get(frequency_mhz)
        if row is None:
            known = ", ".join("default" if f is None else str(f) for f in self._rows)
            raise TrialFailure(
                FailureKind.clock_refused, f"the replayed table has no row at {frequency_mhz} MHz, only at {known}"
            )
        if row.step_time_s is None:
            raise TrialFailure(
                FailureKind.out_of_memory, f"{row.configuration} ran out of memory in the replayed table"
            )
        steps = max(plan.min_steps, -int(-plan.window_s // row.step_time_s))
        has_energy = row.energy_j is not None
        return Measurement(
            source=Source.replayed,
            step_time_s=row.step_time_s,
            # A table states one value a row: what its spread was is not known, and none is invented.
            step_time_sem_s=0.0,
            energy_j=row.energy_j,
            energy_sem_j=0.0 if has_energy else None,
            energy_source=EnergySource.replayed if has_energy else None,
            tokens_per_s=self._job.tokens_per_step / row.step_time_s,
            peak_memory_gib=row.peak_memory_gib,
            average_power_w=None if row.energy_j is None else row.energy_j / row.step_time_s,
            steps=steps,
            window_s=steps * row.step_time_s,
            duration_s=(plan.warmup_steps + steps) * row.step_time_s,
            requested_mhz=frequency_mhz,
            achieved_mhz=frequency_mhz,
            flags=("no_spread_known",),
        )

    def close(self) -> None:
        """End it."""
        self._closed = True
