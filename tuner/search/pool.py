"""The finite pool of configurations as coordinates that any Optuna sampler understands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import IntDistribution

from tuner.layout import Configuration

AXES = ("tp", "pp", "microbatch", "frequency_mhz")


class Pool:
    """Configurations as points on four integer axes; dp follows from the number of GPUs.

    A coordinate is the rank of the value among the values that its axis takes: neighbours in the pool are neighbours
    for the sampler, and the steps from 1 to 2 and from 8 to 16 are equally long. The default clock ranks highest.

    Args:
        configurations: All configurations of a study, at least one.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        self.configurations = tuple(configurations)
        values = [_axis_values(configuration) for configuration in self.configurations]
        self._levels = [sorted(set(axis)) for axis in zip(*values, strict=True)]
        ranks = [{value: rank for rank, value in enumerate(levels)} for levels in self._levels]
        self._coordinates = {
            configuration: tuple(rank[value] for rank, value in zip(ranks, point, strict=True))
            for configuration, point in zip(self.configurations, values, strict=True)
        }
        self._by_coordinates = {point: configuration for configuration, point in self._coordinates.items()}

    @cached_property
    def distributions(self) -> dict[str, IntDistribution]:
        """The box around the pool, one integer axis a degree of freedom."""
        return {name: IntDistribution(0, len(levels) - 1) for name, levels in zip(AXES, self._levels, strict=True)}

    def encode(self, configuration: Configuration) -> dict[str, int]:
        """The configuration as sampler parameters."""
        return dict(zip(AXES, self._coordinates[configuration], strict=True))

    def decode(self, params: Mapping[str, int]) -> Configuration | None:
        """The configuration at these parameters, or ``None`` where the box holds none."""
        return self._by_coordinates.get(tuple(params[name] for name in AXES))

    def nearest(self, params: Mapping[str, int], candidates: Sequence[Configuration]) -> Configuration:
        """The candidate nearest to these parameters, axes scaled to the same length; the first of equals.

        Args:
            params: A point of the box.
            candidates: Configurations of the pool, at least one.
        """
        point = np.array([params[name] for name in AXES], dtype=np.float64)
        return candidates[int(np.argmin(_squared_distances(self._points(candidates), point, self._spans)))]

    def _points(self, candidates: Sequence[Configuration]) -> NDArray[np.float64]:
        return np.array([self._coordinates[candidate] for candidate in candidates], dtype=np.float64)

    @cached_property
    def _spans(self) -> NDArray[np.float64]:
        return np.array([max(len(levels) - 1, 1) for levels in self._levels], dtype=np.float64)


def _axis_values(configuration: Configuration) -> tuple[float, ...]:
    layout = configuration.layout
    clock = math.inf if configuration.frequency_mhz is None else configuration.frequency_mhz
    return (layout.tp, layout.pp, layout.microbatch, clock)


def _squared_distances(
    points: NDArray[np.float64], point: NDArray[np.float64], spans: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared distance of each row of ``points`` (n, axes) to ``point`` (axes,) in units of ``spans`` (axes,)."""
    squares: NDArray[np.float64] = (((points - point) / spans) ** 2).sum(axis=1)
    return squares
