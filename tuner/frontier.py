"""The Pareto frontier as pure array functions: dominance, hypervolume, knee, ties. Every objective is minimised."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Two-sided 95 % quantile of the normal distribution.
Z_95 = 1.96

# Far above the rounding of a normalised distance (about 1e-16), far below any difference worth calling a bend.
_CHORD_ROUNDING = 1e-12


def pareto_mask(values: Floats) -> Mask:
    """Which points no other point beats.

    A point beats another when it is no worse in every objective and better in at least one. Exact duplicates do not
    beat each other, so all copies of a frontier point are on the frontier. With one objective these are the minima.
    Takes O(n log n).

    Args:
        values: Shape ``(n, m)`` with m = 1 or 2; n may be 0.

    Returns:
        Shape ``(n,)``.

    Raises:
        ValueError: Another shape, or a value that is not finite.
    """
    _check_points(values)
    if len(values) == 0:
        return np.zeros(0, dtype=np.bool_)
    if values.shape[1] == 1:
        return np.asarray(values[:, 0] == values.min())
    order = np.lexsort((values[:, 1], values[:, 0]))
    x, y = values[order].T
    improves = np.concatenate(([True], y[1:] < np.minimum.accumulate(y)[:-1]))
    is_copy = np.concatenate(([False], (x[1:] == x[:-1]) & (y[1:] == y[:-1])))
    # A copy sorts right behind its original and improves nothing, so it takes over the original's verdict.
    original = np.maximum.accumulate(np.where(is_copy, 0, np.arange(len(order))))
    mask = np.empty(len(order), dtype=np.bool_)
    mask[order] = improves[original]
    return mask


def hypervolume(values: Floats, reference: Floats) -> float:
    """Length or area that the points beat, up to the reference.

    Args:
        values: Shape ``(n, m)`` with m = 1 or 2. Points that are not better than the reference in every objective
            contribute nothing.
        reference: Shape ``(m,)``.

    Raises:
        ValueError: Shapes that do not fit, or a value that is not finite.
    """
    _check_points(values)
    _check_reference(values, reference)
    inside = values[np.all(values < reference, axis=1)]
    if len(inside) == 0:
        return 0.0
    if inside.shape[1] == 1:
        return float(reference[0] - inside.min())
    frontier = inside[pareto_mask(inside)]
    frontier = frontier[np.argsort(frontier[:, 0])]
    widths = np.diff(frontier[:, 0], append=reference[0])
    return float(np.sum(widths * (reference[1] - frontier[:, 1])))


def hypervolume_history(values: Floats, reference: Floats) -> Floats:
    """Hypervolume after each point, in the order given; it never falls.

    Each point changes the staircase of the points before it only where it lies below it, so that all prefixes together
    take O(n log n) comparisons.

    Args:
        values: Shape ``(n, m)`` with m = 1 or 2, as for ``hypervolume``.
        reference: Shape ``(m,)``.

    Returns:
        Shape ``(n,)``; entry i is the hypervolume of ``values[: i + 1]``.

    Raises:
        ValueError: Shapes that do not fit, or a value that is not finite.
    """
    _check_points(values)
    _check_reference(values, reference)
    if values.shape[1] == 1:
        return np.asarray(np.maximum(reference[0] - np.minimum.accumulate(values[:, 0]), 0.0))
    corner_x, corner_y = reference.tolist()
    xs: list[float] = []
    ys: list[float] = []
    gains = [_climb(xs, ys, x, y, corner_x, corner_y) for x, y in values.tolist()]
    return np.cumsum(np.asarray(gains, dtype=np.float64))


def _climb(xs: list[float], ys: list[float], x: float, y: float, corner_x: float, corner_y: float) -> float:
    """Add a point to the staircase (xs do not descend, ys descend) and return the area it adds below the corner."""
    start = bisect_right(xs, x)
    if x >= corner_x or y >= corner_y or (start and ys[start - 1] <= y):
        return 0.0
    end = start
    gain = 0.0
    left, ceiling = x, ys[start - 1] if start else corner_y
    while end < len(xs) and ys[end] >= y:
        gain += (xs[end] - left) * (ceiling - y)
        left, ceiling = xs[end], ys[end]
        end += 1
    gain += ((xs[end] if end < len(xs) else corner_x) - left) * (ceiling - y)
    xs[start:end] = [x]
    ys[start:end] = [y]
    return gain


def knee(values: Floats) -> int:
    """Index of the frontier's knee: the point farthest below the chord between the frontier's two ends.

    Distances are taken after scaling both ends' spans to the unit square, so units do not matter. Points that are not
    on the frontier are passed over. Where no point lies below the chord (one point, two points, a straight or a bulging
    frontier), the ends are the farthest, and the end with the smaller first objective is the knee; equally far points
    are decided the same way, and exact duplicates by the lowest index. A frontier without a span is one point and its
    copies.

    Args:
        values: Shape ``(n, 2)``, n at least 1.

    Raises:
        ValueError: Another shape, no point, or a value that is not finite.
    """
    _check_points(values)
    if values.shape[1] != 2 or len(values) == 0:
        raise ValueError(f"a knee needs at least one point of two objectives, not an array of shape {values.shape}")
    on_frontier = np.flatnonzero(pareto_mask(values))
    points = values[on_frontier]
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    if np.any(span == 0.0):
        return int(on_frontier[0])
    below_chord = 1.0 - np.sum((points - low) / span, axis=1)
    farthest = np.flatnonzero(below_chord >= below_chord.max() - _CHORD_ROUNDING)
    return int(on_frontier[farthest[np.argmin(points[farthest, 0])]])


def tied_mask(values: Floats, sems: Floats, z: float = Z_95) -> Mask:
    """Which points are not on the frontier but cannot be told from it.

    Point i is tied when it is not on the frontier of ``values`` and no frontier point j has, in every objective k,
    ``values[i, k] - values[j, k] > z * sqrt(sems[i, k]**2 + sems[j, k]**2)``. In words: nothing on the frontier beats
    it in every objective by more than the uncertainty of the difference. The measurements are taken as independent. A
    frontier point is never tied, and a point that only equals a frontier point in one objective is tied even without
    uncertainty, because it is not beaten there.

    Args:
        values: Shape ``(n, m)`` with m = 1 or 2.
        sems: Standard errors, shape ``(n, m)``.
        z: Standard errors of the difference that count as certain.

    Returns:
        Shape ``(n,)``.

    Raises:
        ValueError: Shapes that do not fit, a value that is not finite, or a negative ``sems`` or ``z``.
    """
    _check_points(values)
    if sems.shape != values.shape or not np.all(np.isfinite(sems)) or np.any(sems < 0.0):
        raise ValueError("standard errors must have the shape of the values, be finite and not negative")
    if not 0.0 <= z < np.inf:
        raise ValueError(f"z must be finite and not negative, not {z}")
    on_frontier = pareto_mask(values)
    tied = ~on_frontier
    # One pass over the candidates per frontier point, rather than all pairs at once, to keep memory at O(n).
    for value, sem in zip(values[on_frontier], sems[on_frontier], strict=True):
        tied &= ~np.all(values - value > z * np.hypot(sems, sem), axis=1)
    return tied


def _check_points(values: Floats) -> None:
    if values.ndim != 2 or values.shape[1] not in (1, 2):
        raise ValueError(f"points must have shape (n, 1) or (n, 2), not {values.shape}")
    if not np.all(np.isfinite(values)):
        raise ValueError("points must be finite")


def _check_reference(values: Floats, reference: Floats) -> None:
    if reference.shape != (values.shape[1],) or not np.all(np.isfinite(reference)):
        raise ValueError(f"the reference must be {values.shape[1]} finite numbers, not {reference}")
