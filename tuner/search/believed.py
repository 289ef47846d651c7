"""What a search holds for Pareto-optimal."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.layout import Configuration


@dataclass(frozen=True, slots=True)
class Believed:
    """What a sampler holds for Pareto-optimal.

    Args:
        measured: Configurations that were measured, none of which beats another.
        predicted: Further ones, of layouts that were launched, that it predicts to stand beside them.
    """

    measured: tuple[Configuration, ...]
    predicted: tuple[Configuration, ...] = ()
