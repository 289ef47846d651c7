"""Fit the default coefficients to the groups of ``FITTED_GROUPS``, and print them as ``coefficients.py`` holds them.

Robust least squares over the logarithms, each with its prior. Every group weighs the same, whatever its number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from benchmarks.groups import Group
from benchmarks.tables import read_tables
from tuner.physics.calibration import Calibration
from tuner.physics.coefficients import COEFFICIENTS, SPREADS, Coefficients
from tuner.physics.configurations import Floats
from tuner.physics.predict import predict

# Relative error at which a row is an ordinary one; beyond, it counts ever less.
DEVIATION = 0.1
# So many rows are as good as a whole group's own belief.
ROWS_A_GROUP = 10.0


def main() -> None:
    """Print the fitted coefficients."""
    groups = [group for groups in read_tables().values() for group in groups if group.fitted and len(group)]
    start = np.log([getattr(Coefficients(), name) for name in COEFFICIENTS])

    def residuals(moved: Floats) -> Floats:
        coefficients = replace(
            Coefficients(), **dict(zip(COEFFICIENTS, np.exp(start + SPREADS * moved).tolist(), strict=True))
        )
        return np.concatenate([moved, *_residuals(groups, Calibration(coefficients=coefficients))])

    result = least_squares(residuals, np.zeros(len(start)), max_nfev=30)
    print(f"# {len(groups)} groups, {sum(map(len, groups))} rows, cost {result.cost:.1f} after {result.nfev} steps")
    for name, value, spread in zip(COEFFICIENTS, np.exp(start + SPREADS * result.x), SPREADS, strict=True):
        print(f"    {name}: float = _coefficient({value:.3g}, {spread:g})")


def _residuals(groups: Sequence[Group], calibration: Calibration) -> Iterator[Floats]:
    for group in groups:
        measured = group.measured
        predicted = predict(group.job, group.cluster, measured.configurations, calibration)
        for known, value in (
            (measured.step_time_s, predicted.step_time_s),
            (measured.energy_j, predicted.energy_j),
            (measured.peak_memory_gib, predicted.peak_memory_gib),
        ):
            errors = np.log(value / known)[np.isfinite(known)] / DEVIATION
            weight = np.sqrt(min(1.0, ROWS_A_GROUP / max(len(errors), 1)))
            # As if errors were Student's: a cluster's bad day weighs as its logarithm.
            yield weight * np.sign(errors) * np.sqrt(np.log1p(errors**2))


if __name__ == "__main__":
    main()
