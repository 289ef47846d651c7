"""A Gaussian process over the pool: physics to first order, what layouts have of their own, and how clocks bend it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from tuner.physics.configurations import Floats
from tuner.search.grid import Grid, Indices
from tuner.search.prior import Linear

# Standard deviations of logarithms at scale 1: of errors that like layouts share, of those that a layout has of its
# own, of how a curve bends in all layouts alike, and in one.
SMOOTH, OWN, BEND, OWN_BEND = 0.06, 0.03, 0.03, 0.01
# Over how much of a clock's logarithm the error of a curve is alike.
_CLOCK_LENGTH = 0.4
# Over how much of the features the error of layouts is alike, in doublings of a degree.
_LAYOUT_LENGTH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Factors on the standard deviations of the parts of the covariance.

    Args:
        physics: On the coefficients' own.
        layout: On what layouts have beyond physics, one a quantity.
        clock: On how curves bend beyond physics.
    """

    physics: float = 1.0
    layout: tuple[float, ...] = (1.0, 1.0, 1.0)
    clock: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Measured logarithms.

    Args:
        quantity: Which quantity, shape ``(m,)``.
        rows: Of which candidates, shape ``(m,)``.
        values: Logarithms, shape ``(m,)``.
        noise: Their standard deviations, shape ``(m,)``.
    """

    quantity: Indices
    rows: Indices
    values: Floats
    noise: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | Indices) -> Observations:
        return Observations(self.quantity[chosen], self.rows[chosen], self.values[chosen], self.noise[chosen])

    def joined(self, other: Observations) -> Observations:
        """These, then the other ones."""
        return Observations(
            np.concatenate([self.quantity, other.quantity]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.values, other.values]),
            np.concatenate([self.noise, other.noise]),
        )


class Residuals:
    """Covariance of what physics leaves unexplained. Quantities do not share it.

    Args:
        grid: The pool.
        features: Of the layouts, alike for layouts that err alike, shape ``(layouts, k)``.
    """

    def __init__(self, grid: Grid, features: Floats) -> None:
        self._grid = grid
        apart = np.sum((features[:, None] - features[None]) ** 2, axis=2)
        self._alike = np.exp(-0.5 * apart / _LAYOUT_LENGTH**2)
        clock = np.abs(grid.log_clock[:, None] - grid.log_clock[None]) / _CLOCK_LENGTH
        self._bend = (1 + clock) * np.exp(-clock)

    def parts(self, one: Indices, other: Indices) -> tuple[Floats, Floats]:
        """Covariance of one quantity at scale 1 between candidates: of layouts, and of how curves bend."""
        grid = self._grid
        of_one, of_other = grid.layout[one], grid.layout[other]
        same = of_one[:, None] == of_other[None]
        level: Floats = SMOOTH**2 * self._alike[np.ix_(of_one, of_other)] + OWN**2 * same
        bend: Floats = (BEND**2 + OWN_BEND**2 * same) * self._bend[np.ix_(grid.clock[one], grid.clock[other])]
        return level, bend

    def blocks(self, layout: float, clock: float) -> Floats:
        """Covariance of one quantity among the clocks of any layout, shape ``(clocks, clocks)``."""
        level = (SMOOTH**2 + OWN**2) * layout**2
        blocks: Floats = level + (BEND**2 + OWN_BEND**2) * clock**2 * self._bend
        return blocks


def noisy(linear: Linear, residuals: Residuals, scales: Scales, seen: Observations) -> Floats:
    """Covariance of observations, shape ``(m, m)``; ``linear`` holds their rows only, in their order."""
    slopes = _slopes_of(linear, seen)
    covariance: Floats = scales.physics**2 * (slopes @ slopes.T) + unexplained(residuals, scales, seen)
    return covariance


def unexplained(residuals: Residuals, scales: Scales, seen: Observations) -> Floats:
    """Covariance of what physics leaves unexplained of observations, noise included, shape ``(m, m)``."""
    level, bend = residuals.parts(seen.rows, seen.rows)
    factor = np.array(scales.layout)[seen.quantity]
    same = seen.quantity[:, None] == seen.quantity[None]
    covariance: Floats = same * (np.outer(factor, factor) * level + scales.clock**2 * bend)
    covariance[np.diag_indices(len(seen))] += seen.noise**2
    return covariance


def _slopes_of(linear: Linear, seen: Observations) -> Floats:
    slopes: Floats = linear.slopes[seen.quantity, np.arange(len(seen))]
    return slopes


class Posterior:
    """Logarithms of some quantities over the pool, given observations of them.

    Args:
        grid: The pool.
        residuals: What physics leaves unexplained.
        linear: Physics over the whole pool.
        scales: Of the covariance.
        seen: The observations.
        quantities: Which quantities are asked for.
    """

    def __init__(
        self,
        grid: Grid,
        residuals: Residuals,
        linear: Linear,
        scales: Scales,
        seen: Observations,
        quantities: tuple[int, ...],
    ) -> None:
        self._grid, self._residuals, self._linear, self._scales = grid, residuals, linear, scales
        self._quantities = quantities
        self.mean: Floats = linear.mean[list(quantities)]
        self._explained = np.zeros((len(quantities), len(seen), len(grid)))
        if not len(seen):
            return
        at = Linear(linear.mean[:, seen.rows], linear.slopes[:, seen.rows])
        covariance = noisy(at, residuals, scales, seen)
        lower = np.linalg.cholesky(covariance)
        weights = cho_solve((lower, True), seen.values - linear.mean[seen.quantity, seen.rows])
        level, bend = residuals.parts(seen.rows, np.arange(len(grid)))
        mine = _slopes_of(at, seen) * scales.physics**2
        means = []
        for place, quantity in enumerate(quantities):
            cross = mine @ linear.slopes[quantity].T
            own = seen.quantity == quantity
            cross[own] += scales.layout[quantity] ** 2 * level[own] + scales.clock**2 * bend[own]
            means.append(linear.mean[quantity] + weights @ cross)
            self._explained[place] = solve_triangular(lower, cross, lower=True)
        self.mean = np.stack(means)

    def blocks(self) -> Floats:
        """Covariance among each layout's curves, quantity by quantity, clock by clock.

        Returns:
            Shape ``(layouts, q * clocks, q * clocks)``; 0 where the pool has no such candidate.
        """
        grid, q = self._grid, len(self._quantities)
        layouts, clocks = grid.rows.shape
        rows = np.maximum(grid.rows, 0)
        slopes = self._linear.slopes[list(self._quantities)][:, rows]
        slopes = slopes.transpose(1, 0, 2, 3).reshape(layouts, q * clocks, -1)
        blocks = self._scales.physics**2 * (slopes @ slopes.transpose(0, 2, 1))
        for place, quantity in enumerate(self._quantities):
            own = slice(place * clocks, (place + 1) * clocks)
            blocks[:, own, own] += self._residuals.blocks(self._scales.layout[quantity], self._scales.clock)
        explained = self._explained[:, :, rows].transpose(2, 0, 3, 1).reshape(layouts, q * clocks, -1)
        blocks -= explained @ explained.transpose(0, 2, 1)
        there = np.tile(grid.rows >= 0, (1, q))
        return np.where(there[:, :, None] & there[:, None, :], blocks, 0.0)
