"""How one measured point is picked: by an objective and by constraints, never by abstract weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tuner.errors import FieldProblem, InvalidInput, NoRecommendation
from tuner.frontier import Z_95, knee
from tuner.layout import Configuration
from tuner.trial import Measurement

# A value exactly at its limit must not miss it by a rounding error.
_ROUNDING = 1e-9


class PolicyKind(StrEnum):
    """What is wanted within the limits."""

    fastest = "fastest"
    least_energy = "least_energy"
    knee = "knee"


_WORDS = {
    PolicyKind.fastest: "fastest",
    PolicyKind.least_energy: "least energy",
    PolicyKind.knee: "knee of the frontier",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one point is picked.

    Args:
        kind: What is wanted within the limits.
        max_slowdown: Longest step time allowed, as a fraction of the fixed measured baseline's above it: 0.05 is 5 %.
        max_average_power_w: Highest average power allowed, of the whole launch.

    Raises:
        InvalidInput: A limit that is negative or not finite.
    """

    kind: PolicyKind
    max_slowdown: float | None = None
    max_average_power_w: float | None = None

    def __post_init__(self) -> None:
        problems = [
            FieldProblem(f"policy.{limit.name}", allowed, "must be a finite number of at least 0")
            for limit, allowed in _limits_of(self)
            if not 0.0 <= allowed < math.inf
        ]
        if problems:
            raise InvalidInput(*problems)

    def __str__(self) -> str:
        limits = (f"at most {limit.shown(allowed)} {limit.words}" for limit, allowed in _limits_of(self))
        return ", ".join((_WORDS[self.kind], *limits))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with what was measured of it.

    Args:
        trial_number: Number of the trial, unique within the study.
        configuration: What ran.
        measurement: What it yielded.
    """

    trial_number: int
    configuration: Configuration
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The point that a policy picks.

    Args:
        candidate: The point to run.
        policy: The policy that picked it.
        runner_up: What would be picked if this configuration did not exist; ``None`` where nothing else satisfies.
        binding_limit: Name of the policy's limit without which another point would have been picked, the first such
            one where several are; ``None`` where dropping no single limit changes the pick.
        slowdown: Step time above the baseline's, as a fraction of it; ``None`` without a baseline.
        energy_saving: Energy per step below the baseline's, as a fraction of it; ``None`` where either is unknown.
        ties: Other points within the limits that the objective (knee: both) cannot tell from the best; simplest first.
    """

    candidate: Candidate
    policy: Policy
    runner_up: Candidate | None
    binding_limit: str | None
    slowdown: float | None
    energy_saving: float | None
    ties: tuple[Candidate, ...]


class _Estimate(NamedTuple):
    value: float
    sem: float

    @property
    def safe(self) -> float:
        """Every limit is an upper one, so the safe side of the uncertainty is above."""
        return self.value + Z_95 * self.sem


def _step_time(candidate: Candidate) -> _Estimate:
    return _Estimate(candidate.measurement.step_time_s, candidate.measurement.step_time_sem_s)


def _energy(candidate: Candidate) -> _Estimate | None:
    measurement = candidate.measurement
    return None if measurement.energy_j is None else _Estimate(measurement.energy_j, measurement.energy_sem_j or 0.0)


def _slowdown(candidate: Candidate, baseline: Candidate | None) -> _Estimate | None:
    if baseline is None:
        return None
    # The same configuration is no slower than itself, whatever noise a second measurement of it met.
    if candidate.configuration == baseline.configuration:
        return _Estimate(0.0, 0.0)
    own, fixed = _step_time(candidate), _step_time(baseline)
    ratio = own.value / fixed.value
    return _Estimate(ratio - 1.0, ratio * _relative_sem(own, fixed))


def _average_power(candidate: Candidate, _: Candidate | None) -> _Estimate | None:
    power_w, energy = candidate.measurement.average_power_w, _energy(candidate)
    if power_w is None:
        return None
    # Power is energy over time. Both errors mostly move together, so treating them as independent is on the safe side.
    return _Estimate(power_w, 0.0 if energy is None else power_w * _relative_sem(energy, _step_time(candidate)))


def _relative_sem(a: _Estimate, b: _Estimate) -> float:
    """Relative standard error of the ratio of two independent estimates, to first order."""
    return math.hypot(a.sem / a.value, b.sem / b.value)


class _Limit(NamedTuple):
    name: str
    estimate: Callable[[Candidate, Candidate | None], _Estimate | None]
    shown: Callable[[float], str]
    words: str


_Limits = list[tuple[_Limit, float]]

# A new limit is a row here and a field of the same name in Policy.
_LIMITS = (
    _Limit("max_slowdown", _slowdown, lambda x: f"{100.0 * x:.4g} %", "slower than the baseline"),
    _Limit("max_average_power_w", _average_power, lambda x: f"{x:.6g} W", "on average over the launch"),
)


def _limits_of(policy: Policy) -> _Limits:
    return [(limit, allowed) for limit in _LIMITS if (allowed := getattr(policy, limit.name)) is not None]


#: The fastest; the practical one, least energy for hardly any time; the least energy at any price.
DEFAULT_POLICIES: tuple[Policy, ...] = (
    Policy(kind=PolicyKind.fastest),
    Policy(kind=PolicyKind.least_energy, max_slowdown=0.05),
    Policy(kind=PolicyKind.least_energy),
)


def recommend(candidates: Sequence[Candidate], policy: Policy, baseline: Candidate | None) -> Recommendation:
    """Pick the point to run. The answer does not depend on the candidates' order.

    A limit holds where the value plus 1.96 standard errors is within it; a slowdown's error includes the baseline's,
    and the baseline's own configuration is never slower than itself. An unknown standard error counts as 0, an unknown
    value satisfies no limit. Among the points that satisfy, those that the objective cannot tell from the best one (by
    1.96 standard errors of the difference) are decided by the other objective, where a known energy goes before an
    unknown one, and those that it cannot tell apart either by the simpler configuration: smaller tp * pp, then smaller
    tp, then the default clock, and among equally simple ones the faster, so that none is picked over one that beats it.
    A knee is that of the frontier within the limits; what cannot be told from it in either objective is decided by
    simplicity.

    Args:
        candidates: The feasible complete trials, on the frontier or not; without an energy only for the fastest.
        policy: The policy.
        baseline: The measured baseline that slowdown and saving refer to: fixed, whatever was recommended before.

    Raises:
        NoRecommendation: Nothing satisfies the policy; the message says why and how near the nearest came.
    """
    if policy.max_slowdown is not None and baseline is None:
        raise NoRecommendation("max_slowdown needs a measured baseline, and there is none")
    usable = _usable(candidates, policy)
    satisfying = _within(usable, _limits_of(policy), baseline)
    if not satisfying:
        raise NoRecommendation(_nearest_miss(usable, policy, baseline))
    chosen, tied = _pick(satisfying, policy.kind)
    others = [c for c in satisfying if c.configuration != chosen.configuration]
    return Recommendation(
        candidate=chosen,
        policy=policy,
        runner_up=_pick(others, policy.kind)[0] if others else None,
        binding_limit=_binding_limit(chosen, usable, policy, baseline),
        slowdown=None if (slowdown := _slowdown(chosen, baseline)) is None else slowdown.value,
        energy_saving=_energy_saving(chosen, baseline),
        ties=tuple(c for c in tied if c is not chosen),
    )


def _usable(candidates: Sequence[Candidate], policy: Policy) -> list[Candidate]:
    """The candidates that have the policy's objectives, simplest first, so that the first of equals is the simplest."""
    if not candidates:
        raise NoRecommendation("no configuration has been measured yet")
    usable = [c for c in candidates if policy.kind is PolicyKind.fastest or _energy(c) is not None]
    if not usable:
        raise NoRecommendation(f"no measured configuration has a known energy, which {policy} needs")
    return sorted(usable, key=_complexity)


def _complexity(candidate: Candidate) -> tuple[int, int, bool, float, float, int]:
    layout, measured = candidate.configuration.layout, candidate.measurement
    energy_j = math.inf if measured.energy_j is None else measured.energy_j
    has_clock = candidate.configuration.frequency_mhz is not None
    return layout.tp * layout.pp, layout.tp, has_clock, measured.step_time_s, energy_j, candidate.trial_number


def _within(candidates: list[Candidate], limits: _Limits, baseline: Candidate | None) -> list[Candidate]:
    return [c for c in candidates if all(_excess(c, *limit, baseline) <= _ROUNDING for limit in limits)]


def _excess(candidate: Candidate, limit: _Limit, allowed: float, baseline: Candidate | None) -> float:
    estimate = limit.estimate(candidate, baseline)
    return math.inf if estimate is None else estimate.safe - allowed


def _pick(satisfying: list[Candidate], kind: PolicyKind) -> tuple[Candidate, list[Candidate]]:
    """The pick, and all that the objective cannot tell from the best, the pick among them."""
    if kind is PolicyKind.knee:
        points = [(_step_time(c).value, c.measurement.energy_j) for c in satisfying]
        best = satisfying[knee(np.array(points, dtype=np.float64))]
        tied = [c for c in satisfying if _alike(_step_time(c), _step_time(best)) and _alike(_energy(c), _energy(best))]
        return tied[0], tied
    fastest = kind is PolicyKind.fastest
    tied = _like_the_least(satisfying, _step_time if fastest else _energy)
    return _like_the_least(tied, _energy if fastest else _step_time)[0], tied


def _like_the_least(candidates: list[Candidate], objective: Callable[[Candidate], _Estimate | None]) -> list[Candidate]:
    """Those that the objective cannot tell from the least; all of them where it is known of none."""
    known = [estimate for c in candidates if (estimate := objective(c)) is not None]
    least = min(known, key=lambda estimate: estimate.value, default=None)
    return candidates if least is None else [c for c in candidates if _alike(objective(c), least)]


def _alike(a: _Estimate | None, b: _Estimate | None) -> bool:
    return a is not None and b is not None and abs(a.value - b.value) <= Z_95 * math.hypot(a.sem, b.sem)


def _binding_limit(
    chosen: Candidate, usable: list[Candidate], policy: Policy, baseline: Candidate | None
) -> str | None:
    limits = _limits_of(policy)
    for dropped in limits:
        kept = [limit for limit in limits if limit is not dropped]
        if _pick(_within(usable, kept, baseline), policy.kind)[0] is not chosen:
            return dropped[0].name
    return None


def _energy_saving(chosen: Candidate, baseline: Candidate | None) -> float | None:
    if baseline is None or (own := _energy(chosen)) is None or (fixed := _energy(baseline)) is None:
        return None
    return 0.0 if chosen.configuration == baseline.configuration else 1.0 - own.value / fixed.value


def _nearest_miss(usable: list[Candidate], policy: Policy, baseline: Candidate | None) -> str:
    """One sentence on the configuration whose worst miss, as a share of its limit, is the smallest."""
    limits = _limits_of(policy)
    for limit, _ in limits:
        if all(limit.estimate(c, baseline) is None for c in usable):
            return f"{limit.name} cannot be judged: no measured configuration has the value it limits"

    def worst(candidate: Candidate) -> float:
        return max(_excess(candidate, limit, allowed, baseline) / (allowed or 1.0) for limit, allowed in limits)

    nearest = min(usable, key=worst)
    misses = []
    for limit, allowed in limits:
        excess = _excess(nearest, limit, allowed, baseline)
        value, beyond = limit.shown(allowed + excess), limit.shown(excess)
        if excess == math.inf:
            misses.append(f"has no known value for {limit.name}")
        elif excess > _ROUNDING:
            misses.append(f"may be {value} {limit.words}, {beyond} beyond {limit.name}")
    return f"no configuration satisfies {policy}: the nearest, {nearest.configuration}, {' and '.join(misses)}"
