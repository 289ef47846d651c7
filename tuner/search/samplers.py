"""The samplers that a study may name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from tuner.layout import Configuration
from tuner.search.pool import Pool
from tuner.search.requirements import require_gp

# Optuna's default of 50 would spend most studies, of some tens of trials, on the random first generation.
NSGA2_POPULATION = 20


class GridSampler(BaseSampler):
    """Goes through the pool in its order: layout by layout, clocks descending, so that each launch is opened once.

    Args:
        pool: The study's configurations.
        remaining: Those still to be measured, in order, at least one.
    """

    def __init__(self, pool: Pool, remaining: Sequence[Configuration]) -> None:
        self._next = pool.encode(remaining[0])

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing is inferred: the order is known."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """No parameter is sampled jointly."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> int:
        """The coordinate of the next configuration."""
        return self._next[param_name]


def make_sampler(kind: str, seed: int, pool: Pool, remaining: Sequence[Configuration]) -> BaseSampler:
    """Build the sampler of one suggestion; a fresh one each time makes suggestions independent of earlier asking.

    Args:
        kind: ``tpe``, ``nsga2``, ``gp``, ``random`` or ``grid``.
        seed: Seed of this suggestion.
        pool: The study's configurations.
        remaining: Those still to be measured, in order.

    Raises:
        InvalidInput: The sampler needs a package that is not installed.
    """
    if kind == "tpe":
        # Multivariate: on joint spaces of layout and clock, sampling each axis apart loses their interaction.
        return TPESampler(seed=seed, multivariate=True)
    if kind == "nsga2":
        return NSGAIISampler(seed=seed, population_size=NSGA2_POPULATION)
    if kind == "gp":
        require_gp()
        # On matrices this small, threads that wait for each other cost more than they compute.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        return GPSampler(seed=seed)
    if kind == "random":
        return RandomSampler(seed=seed)
    return GridSampler(pool, remaining)
