"""Building the runner that a study names."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.hardware import Cluster
from tuner.trial import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerChoice:
    """What a worker process needs to build a runner: picklable, and free of the study's schema.

    Args:
        kind: ``simulated`` or ``replay``.
        cluster: The study's cluster.
        seed: Seed of a simulation.
        csv: Text of a replayed table.
    """

    kind: str
    cluster: Cluster
    seed: int = 0
    csv: str = ""


def make_runner(choice: RunnerChoice) -> Runner:
    """Build the runner; only its own module is imported."""
    if choice.kind == "replay":
        from workers.runners.replay import ReplayRunner

        return ReplayRunner(choice.csv)
    from workers.runners.simulated import SimulatedRunner

    return SimulatedRunner(choice.cluster, choice.seed)
