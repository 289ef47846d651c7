"""How much a layout's curve would add to what is believed, as pure array functions."""

from __future__ import annotations

import numpy as np

from tuner.frontier import hypervolume, pareto_mask
from tuner.physics.configurations import Floats

_BINS = 160
_JITTER = 1e-6


def draw_curves(mean: Floats, blocks: Floats, normals: Floats) -> Floats:
    """Draws of every layout's curve, shape ``(samples, layouts, clocks)``.

    Args:
        mean: Shape ``(layouts, clocks)``.
        blocks: Covariance among a layout's clocks, shape ``(layouts, clocks, clocks)``.
        normals: Standard normal numbers, shape ``(samples, layouts, clocks)``.
    """
    scale = np.maximum(np.trace(blocks, axis1=1, axis2=2) / blocks.shape[1], 1e-12)
    lower = np.linalg.cholesky(blocks + (_JITTER * scale)[:, None, None] * np.eye(blocks.shape[1]))
    curves: Floats = mean + np.einsum("lij,slj->sli", lower, normals)
    return curves


class Staircases:
    """Hypervolume of curves over a frontier, on a grid of the first objective.

    Args:
        low: Ideal corner, shape ``(2,)``.
        reference: Reference corner, shape ``(2,)``.
    """

    def __init__(self, low: Floats, reference: Floats) -> None:
        self._low, self.reference = low, reference
        self._width = (reference[0] - low[0]) / _BINS
        self._box = float(np.prod(reference - low))

    def of(self, x: Floats, y: Floats) -> Floats:
        """Lowest second objective at each step of the first.

        Args:
            x: First objective, shape ``(..., points)``; infinite where there is no point.
            y: Second objective, the same shape.

        Returns:
            Shape ``(..., bins)``.
        """
        with np.errstate(invalid="ignore"):
            step = np.ceil((x - self._low[0]) / self._width - 1e-9)
        outside = ~((step <= _BINS) & (y < self.reference[1]))
        place = np.clip(np.where(outside, 0, step), 0, _BINS - 1).astype(np.intp)
        outside |= np.where(outside, 0, step) > _BINS - 1
        flat = np.full((int(np.prod(x.shape[:-1])), _BINS), self.reference[1])
        at = np.arange(len(flat)).repeat(x.shape[-1])
        np.minimum.at(flat, (at, place.reshape(-1)), np.where(outside, self.reference[1], y).reshape(-1))
        lowest = np.minimum.accumulate(flat, axis=1).reshape(*x.shape[:-1], _BINS)
        stairs: Floats = np.maximum(lowest, self._low[1] - (self.reference[1] - self._low[1]))
        return stairs

    def area(self, stairs: Floats) -> Floats:
        """Share of the box between the corners that staircases of shape ``(..., bins)`` beat."""
        areas: Floats = np.sum(self.reference[1] - stairs, axis=-1) * self._width / self._box
        return areas


def corners(values: Floats, margin: float = 0.1) -> tuple[Floats, Floats]:
    """Ideal and reference corner around the frontier of points of shape ``(n, 2)``."""
    frontier = values[pareto_mask(values)]
    low, high = frontier.min(axis=0), frontier.max(axis=0)
    span = np.where(high > low, high - low, low / 10)
    return low, high + margin * span


def added(values: Floats, frontier: Floats, low: Floats, reference: Floats) -> Floats:
    """Share of the box that each point would add to a frontier, shape ``(n,)``.

    Args:
        values: Points, shape ``(n, 2)``.
        frontier: What is there already, shape ``(m, 2)``.
        low: Ideal corner.
        reference: Reference corner.
    """
    before = hypervolume(frontier, reference)
    box = float(np.prod(reference - low))
    return np.array([(hypervolume(np.vstack([frontier, value]), reference) - before) / box for value in values])
