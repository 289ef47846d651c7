"""A measured table taken as the noise-free truth, and what a trial on it costs and yields."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.errors import InvalidInput
from tuner.frontier import Floats, hypervolume, pareto_mask
from tuner.layout import Configuration, Layout
from tuner.table import TableRow

WARMUP_STEPS = 3
MEASURED_STEPS = 10
# The reference lies this far beyond the true frontier's worst corner, in its own span.
_MARGIN = 0.1


@dataclass(frozen=True, slots=True)
class Reading:
    """What measuring a configuration yields.

    Args:
        step_time_s: Seconds per optimizer step, with noise.
        energy_j: Joules per optimizer step, with noise; ``None`` where the table has none.
        peak_memory_gib: Peak memory; ``None`` where the table has none.
    """

    step_time_s: float
    energy_j: float | None
    peak_memory_gib: float | None


class Truth:
    """A table as the world that samplers are compared in.

    Args:
        name: What to call it.
        rows: Its rows, each configuration once; at least one that ran.

    Raises:
        InvalidInput: No row ran, or only some of those that ran have an energy.
    """

    def __init__(self, name: str, rows: Sequence[TableRow]) -> None:
        ran = [row for row in rows if not row.out_of_memory]
        if not ran:
            raise InvalidInput.of(name, f"{len(rows)} rows", "no feasible configuration: all ran out of memory")
        with_energy = sum(row.energy_j is not None for row in ran)
        if 0 < with_energy < len(ran):
            reason = "must be in all rows that ran, or in none of them"
            raise InvalidInput.of(name, f"energy_j in {with_energy} of {len(ran)} rows", reason)
        self.name = name
        self.configurations = tuple(row.configuration for row in rows)
        self.has_energy = with_energy > 0
        self._rows = {row.configuration: row for row in rows}
        self._values = {row.configuration: self._objectives(row) for row in ran}
        self._reference, self._span, self._best = self._frame()

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Its layouts, in the order of its rows."""
        return tuple(dict.fromkeys(c.layout for c in self.configurations))

    def clocks(self, layout: Layout) -> tuple[Configuration, ...]:
        """The configurations of a layout that ran, in the order of the rows."""
        return tuple(c for c in self._values if c.layout == layout)

    def launch_s(self, configuration: Configuration) -> float:
        """Seconds to open the configuration's launch."""
        return self._rows[configuration].launch_s

    def trial_s(self, configuration: Configuration) -> float:
        """Seconds to warm up and measure in an open launch; 0 where it runs out of memory."""
        step_time_s = self._rows[configuration].step_time_s
        return (WARMUP_STEPS + MEASURED_STEPS) * (step_time_s or 0.0)

    def measure(self, configuration: Configuration, seed: int, noise: float) -> Reading | None:
        """What one trial reads, which depends on the seed and the configuration alone; ``None``: out of memory.

        Args:
            configuration: One of the table.
            seed: Of the run.
            noise: Relative standard deviation of step time and energy.
        """
        row = self._rows[configuration]
        if row.step_time_s is None:
            return None
        digest = hashlib.sha256(f"{seed}:{configuration}".encode()).digest()
        draws = np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(2)
        factors = np.maximum(1 + noise * draws, 0.01)
        energy_j = None if row.energy_j is None else row.energy_j * float(factors[1])
        return Reading(row.step_time_s * float(factors[0]), energy_j, row.peak_memory_gib)

    def share(self, believed: Collection[Configuration]) -> float:
        """Score of a set believed to be Pareto-optimal, 0 to 1.

        The true hypervolume of the set over that of the true frontier, both objectives in units of the frontier's
        span; without energy, the best step time over the set's best.
        """
        values = np.array([self._values[c] for c in believed if c in self._values])
        if not len(values):
            return 0.0
        if not self.has_energy:
            return float(self._best / values.min())
        return hypervolume(values / self._span, self._reference / self._span) / self._best

    @cached_property
    def frontier(self) -> tuple[Configuration, ...]:
        """The true frontier."""
        keys = tuple(self._values)
        mask = pareto_mask(np.array([self._values[c] for c in keys]))
        return tuple(keys[i] for i in np.flatnonzero(mask))

    def _objectives(self, row: TableRow) -> tuple[float, ...]:
        assert row.step_time_s is not None
        return (row.step_time_s,) if row.energy_j is None else (row.step_time_s, row.energy_j)

    def _frame(self) -> tuple[Floats, Floats, float]:
        """Reference point, span of the true frontier in each objective, best score to divide by."""
        values = np.array(list(self._values.values()))
        frontier = values[pareto_mask(values)]
        low, high = frontier.min(axis=0), frontier.max(axis=0)
        # A frontier of one point has no span; a tenth of its values stands in for it.
        span = np.where(high > low, high - low, low / 10)
        reference = high + _MARGIN * span
        if not self.has_energy:
            return reference, span, float(low[0])
        return reference, span, hypervolume(frontier / span, reference / span)


def is_reached(share: float, target: float) -> bool:
    """Whether a score reaches a target, up to rounding."""
    return share >= target or math.isclose(share, target, rel_tol=1e-12)
