"""Which framework, coefficients and scales explain the trials best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from tuner.physics.configurations import Floats
from tuner.search.grid import Indices
from tuner.search.prior import Linear, PhysicsPrior
from tuner.search.surrogate import Observations, Residuals, Scales, noisy, unexplained

# Further trials tell coefficients and scales hardly better, and would cost more each time.
LEARN_AT = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32)
"""Numbers of trials at which there is something new to learn."""

_PHYSICS_SCALES = (1.0, 2.0)
_LAYOUT_SCALES = (0.4, 1.0, 2.5)
_CLOCK_SCALES = (0.4, 1.0)
# A scale of 1 and the first framework are believed beforehand; so much evidence must speak for others.
_SCALE_COST, _FRAMEWORK_COST = 1.0, 1.0
_ROUNDS = 6
_SHORTEST_STEP = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """What explains the trials best.

    Args:
        framework: Index of the prior.
        z: Its whitened coefficients, shape ``(c,)``.
        scales: Of the covariance.
    """

    framework: int
    z: Floats
    scales: Scales


def learn(priors: Sequence[PhysicsPrior], residuals: Residuals, seen: Observations) -> Learnt:
    """Compare the frameworks, each at its best coefficients and scales.

    Args:
        priors: The frameworks, the likeliest first.
        residuals: What physics leaves unexplained.
        seen: Observations.
    """
    found = []
    for index, prior in enumerate(priors):
        z = most_likely(prior, residuals, seen)
        evidence, scales = _best_scales(prior.linear(z, seen.rows), residuals, seen)
        found.append((evidence - _FRAMEWORK_COST * (index > 0), -index, Learnt(index, z, scales)))
    return max(found, key=lambda each: each[:2])[2]


def most_likely(prior: PhysicsPrior, residuals: Residuals, seen: Observations) -> Floats:
    """Whitened coefficients of the highest posterior density at scale 1, by damped Gauss-Newton steps."""
    lower: Floats = np.asarray(np.linalg.cholesky(unexplained(residuals, Scales(), seen)), np.float64)
    everywhere = np.arange(len(seen))

    def residual(z: Floats) -> Floats:
        away = seen.values - prior.at(z, seen.rows)[seen.quantity, everywhere]
        whitened: Floats = solve_triangular(lower, away, lower=True)
        return whitened

    def cost(z: Floats) -> float:
        away = residual(z)
        return float(away @ away + z @ z)

    z: Floats = np.zeros(prior.coefficients)
    best = cost(z)
    for _ in range(_ROUNDS):
        linear = prior.linear(z, seen.rows)
        target = _posterior_mean(linear, lower, seen)
        share = 1.0
        while share >= _SHORTEST_STEP and (now := cost(z + share * (target - z))) >= best:
            share /= 2
        if share < _SHORTEST_STEP:
            break
        z, gained, best = z + share * (target - z), best - now, now
        if gained < 0.01:
            break
    return z


def _posterior_mean(linear: Linear, lower: Floats, seen: Observations) -> Floats:
    """Posterior mean of the whitened coefficients under the linear model."""
    everywhere = np.arange(len(seen))
    slopes = solve_triangular(lower, linear.slopes[seen.quantity, everywhere], lower=True)
    away = solve_triangular(lower, seen.values - linear.mean[seen.quantity, everywhere], lower=True)
    precision = slopes.T @ slopes + np.eye(slopes.shape[1])
    mean: Floats = cho_solve((np.linalg.cholesky(precision), True), slopes.T @ away)
    return mean


def _best_scales(linear: Linear, residuals: Residuals, seen: Observations) -> tuple[float, Scales]:
    """Logarithm of the evidence at the best scales, and those."""
    best, found = -np.inf, Scales()
    away = seen.values - linear.mean[seen.quantity, np.arange(len(seen))]
    quantities = len(np.unique(seen.quantity))
    for physics, clock, *layout in product(_PHYSICS_SCALES, _CLOCK_SCALES, *[_LAYOUT_SCALES] * quantities):
        scales = Scales(physics=physics, clock=clock, layout=(*layout, *[1.0] * (3 - quantities)))
        lower = np.linalg.cholesky(noisy(linear, residuals, scales, seen))
        whitened = solve_triangular(lower, away, lower=True)
        value = -0.5 * whitened @ whitened - np.log(np.diag(lower)).sum()
        value -= _SCALE_COST * sum(scale != 1.0 for scale in (physics, clock, *layout))
        if value > best:
            best, found = float(value), scales
    return best, found


def prefix(seen: Observations, number: Indices) -> Observations:
    """The observations of as many first trials as there is something to learn from.

    Args:
        seen: Observations.
        number: How many trials had been measured before each of them, shape ``(m,)``.
    """
    trials = int(number.max(initial=-1)) + 1
    reached = max((count for count in LEARN_AT if count <= trials), default=0)
    return seen[np.flatnonzero(number < reached)]
