"""What a study has found: every point with its role, the frontier, and how the hypervolume grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tuner.frontier import hypervolume_history, pareto_mask, tied_mask
from tuner.limits import limit_excess
from tuner.policy import Candidate
from tuner.spec import LimitsSection
from tuner.states import TrialState
from tuner.trial import KnownTrial, Measurement


class Role(StrEnum):
    """What a measured point is to the frontier."""

    frontier = "frontier"
    tied = "tied"
    dominated = "dominated"
    beyond_limits = "beyond_limits"
    no_energy = "no_energy"


@dataclass(frozen=True, slots=True)
class Reference:
    """The corner that the hypervolume is measured from, fixed with the first measurement of a study.

    Args:
        step_time_s: Seconds per step.
        energy_j: Joules per step; ``None`` where the study has no energy.
    """

    step_time_s: float
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a study has found.

    Args:
        candidates: Every complete trial, by number.
        roles: The role of each.
        baseline: The baseline, once measured.
        hypervolumes: After each finished trial by number, the share of the reference box that is beaten, 0 to 1.
    """

    candidates: tuple[Candidate, ...]
    roles: tuple[Role, ...]
    baseline: Candidate | None
    hypervolumes: tuple[float, ...]

    @property
    def frontier(self) -> tuple[Candidate, ...]:
        """The frontier, fastest first."""
        return tuple(sorted(self.with_role(Role.frontier), key=lambda c: (c.measurement.step_time_s, c.trial_number)))

    @property
    def feasible(self) -> tuple[Candidate, ...]:
        """Everything that keeps the limits, on the frontier or not."""
        return tuple(c for c, role in self._pairs() if role is not Role.beyond_limits)

    @property
    def hypervolume(self) -> float:
        """The hypervolume so far."""
        return self.hypervolumes[-1] if self.hypervolumes else 0.0

    def with_role(self, role: Role) -> tuple[Candidate, ...]:
        """The points of one role, by trial number."""
        return tuple(c for c, known in self._pairs() if known is role)

    def _pairs(self) -> Sequence[tuple[Candidate, Role]]:
        return tuple(zip(self.candidates, self.roles, strict=True))


def reference_of(first: Measurement, limits: LimitsSection) -> Reference:
    """The reference point that a study's first measurement fixes: as far beyond it as the limits allow to go.

    Args:
        first: The baseline's measurement, or the first one where the baseline did not run.
        limits: The study's limits.
    """
    margin = 1 + (limits.slowdown or 0.5)
    return Reference(first.step_time_s * margin, None if first.energy_j is None else first.energy_j * margin)


def evaluate(
    trials: Sequence[KnownTrial], limits: LimitsSection, *, has_energy: bool, reference: Reference | None
) -> Result:
    """Judge the trials of a study.

    Args:
        trials: All trials, in any order.
        limits: The study's limits.
        has_energy: Whether energy is an objective; without it the frontier is the fastest configuration.
        reference: The study's reference point, once fixed.
    """
    finished = sorted((t for t in trials if t.state.is_final), key=lambda t: t.number)
    candidates = tuple(
        Candidate(t.number, t.configuration, t.measurement)
        for t in finished
        if t.state is TrialState.complete and t.measurement is not None
    )
    baseline = next((c for c in candidates if c.trial_number == 0), None)
    roles = _roles(candidates, limits, baseline, has_energy)
    return Result(
        candidates=candidates,
        roles=roles,
        baseline=baseline,
        hypervolumes=_hypervolumes(finished, candidates, roles, has_energy, reference),
    )


def _roles(
    candidates: Sequence[Candidate], limits: LimitsSection, baseline: Candidate | None, has_energy: bool
) -> tuple[Role, ...]:
    fixed = baseline.measurement if baseline else None
    roles = [Role.dominated] * len(candidates)
    judged: list[int] = []
    for index, candidate in enumerate(candidates):
        if has_energy and candidate.measurement.energy_j is None:
            roles[index] = Role.no_energy
        elif limit_excess(candidate.measurement, limits, fixed) > 0:
            roles[index] = Role.beyond_limits
        else:
            judged.append(index)
    measurements = [candidates[index].measurement for index in judged]
    values = _values(measurements, has_energy)
    on_frontier = pareto_mask(values)
    tied = tied_mask(values, _sems(measurements, has_energy))
    for position, index in enumerate(judged):
        if on_frontier[position]:
            roles[index] = Role.frontier
        elif tied[position]:
            roles[index] = Role.tied
    return tuple(roles)


def _hypervolumes(
    finished: Sequence[KnownTrial],
    candidates: Sequence[Candidate],
    roles: Sequence[Role],
    has_energy: bool,
    reference: Reference | None,
) -> tuple[float, ...]:
    if reference is None:
        return (0.0,) * len(finished)
    corner = [reference.step_time_s]
    if has_energy:
        if reference.energy_j is None:
            return (0.0,) * len(finished)
        corner.append(reference.energy_j)
    counted = [c for c, role in zip(candidates, roles, strict=True) if role not in (Role.beyond_limits, Role.no_energy)]
    values = _values([c.measurement for c in counted], has_energy) / corner
    grown = dict(zip((c.trial_number for c in counted), hypervolume_history(values, np.ones(len(corner))), strict=True))
    volumes: list[float] = []
    for trial in finished:
        volumes.append(float(grown.get(trial.number, volumes[-1] if volumes else 0.0)))
    return tuple(volumes)


def _values(measurements: Sequence[Measurement], has_energy: bool) -> NDArray[np.float64]:
    rows = [(m.step_time_s, m.energy_j if m.energy_j is not None else np.inf) for m in measurements]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 2)
    return table if has_energy else table[:, :1]


def _sems(measurements: Sequence[Measurement], has_energy: bool) -> NDArray[np.float64]:
    table = np.array([(m.step_time_sem_s, m.energy_sem_j or 0.0) for m in measurements], dtype=np.float64)
    table = table.reshape(len(measurements), 2)
    return table if has_energy else table[:, :1]
