"""What a sampler must answer to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.layout import Configuration, Layout
from tuner.search.believed import Believed
from tuner.states import TrialState
from tuner.trial import FailureKind, KnownTrial, Measurement


@dataclass(frozen=True, slots=True)
class BenchTrial:
    """A trial as the search knows it, with what it was charged."""

    number: int
    configuration: Configuration
    state: TrialState
    failure_kind: FailureKind | None
    measurement: Measurement | None
    gpu_seconds: float
    sampler_attrs: dict[str, object]


class Contender(Protocol):
    """A sampler on one table."""

    def suggest(self, trials: Sequence[KnownTrial], open_layout: Layout | None) -> Configuration | None:
        """The next configuration to measure, none twice; ``None`` when it stops.

        Args:
            trials: All trials so far, by number.
            open_layout: The layout whose launch is open.
        """
        ...

    def believed(self, trials: Sequence[KnownTrial]) -> Believed:
        """What it holds for Pareto-optimal."""
        ...
