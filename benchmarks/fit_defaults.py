"""Fit the known frameworks' coefficients to their groups of ``FITTED_GROUPS``, for ``coefficients.py``.

Robust least squares over the logarithms, from the values that stand there, each with its prior. Every group weighs the
same, whatever its number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from benchmarks.groups import Group
from benchmarks.tables import read_tables
from tuner.physics.calibration import Calibration
from tuner.physics.coefficients import COEFFICIENTS, MEGATRON, SPREADS, Coefficients, logarithms, with_logarithms
from tuner.physics.configurations import Floats
from tuner.physics.predict import predict

# Relative error at which a row is an ordinary one; beyond, it counts ever less.
DEVIATION = 0.1
# So many rows are as good as a whole group's own belief.
ROWS_A_GROUP = 10.0

FRAMEWORKS = {"Coefficients": (Coefficients(), "nanotron"), "MEGATRON": (MEGATRON, "vtrain")}


def main() -> None:
    """Print the fitted coefficients of each framework."""
    fitted = [group for groups in read_tables().values() for group in groups if group.fitted and len(group)]
    for name, (start, tables) in FRAMEWORKS.items():
        _fit(name, start, [group for group in fitted if group.table == tables])


def _fit(name: str, start: Coefficients, groups: Sequence[Group]) -> None:
    """Fit one framework and print it."""

    def residuals(moved: Floats) -> Floats:
        coefficients = with_logarithms(start, logarithms(start) + SPREADS * moved)
        return np.concatenate([moved, *_residuals(groups, Calibration(coefficients=coefficients))])

    result = least_squares(residuals, np.zeros(len(SPREADS)), max_nfev=30)
    print(f"# {name}: {len(groups)} groups, {sum(map(len, groups))} rows, cost {result.cost:.1f}")
    values = np.exp(logarithms(start) + SPREADS * result.x)
    for coefficient, value, spread in zip(COEFFICIENTS, values, SPREADS, strict=True):
        print(f"    {coefficient}={value:.3g}, was {getattr(start, coefficient):.3g}, spread {spread:g}")


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
