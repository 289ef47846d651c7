"""One suggestion with 500 known trials, and the part of it that rebuilds Optuna's view."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.studyfile import load_study
from tuner.layout import Configuration
from tuner.space import build_space
from tuner.states import TrialState
from tuner.study import Study
from tuner.trial import EnergySource, FailureKind, Measurement, Source

TRIALS, RUNS = 500, 9
EXAMPLE = Path(__file__).parent.parent / "examples/llama2-7b-16xh100.yaml"


@dataclass
class Known:
    """A finished trial."""

    number: int
    configuration: Configuration
    measurement: Measurement | None
    state: TrialState = TrialState.complete
    failure_kind: FailureKind | None = None
    gpu_seconds: float = 0.0
    sampler_attrs: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Print the median of each sampler."""
    spec = load_study(EXAMPLE)
    space = build_space(spec)
    rng = random.Random(1)
    known = [
        Known(number, configuration, _measurement(rng))
        for number, configuration in enumerate(rng.sample(space.configurations, TRIALS))
    ]
    print(f"{len(space.configurations)} configurations, {TRIALS} known trials, median of {RUNS}")
    for kind in ("tpe", "nsga2", "random", "grid"):
        study = Study(space, spec.sampler.model_copy(update={"kind": kind}), spec.limits)
        print(f"{kind}: {1e3 * _median_s(lambda study=study: study.ask(known)):.0f} ms a suggestion")
    sampler = None
    study = Study(space, spec.sampler, spec.limits)
    print(f"rebuilding the view alone: {1e3 * _median_s(lambda: study._view(known, sampler)):.0f} ms")


def _median_s(act: Any) -> float:
    taken = []
    for _ in range(RUNS):
        started_s = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken)


def _measurement(rng: random.Random) -> Measurement:
    step_time_s, energy_j = rng.uniform(2, 5), rng.uniform(2e4, 5e4)
    return Measurement(
        source=Source.simulated,
        step_time_s=step_time_s,
        step_time_sem_s=0.01,
        energy_j=energy_j,
        energy_sem_j=100.0,
        energy_source=EnergySource.simulated,
        tokens_per_s=524288 / step_time_s,
        peak_memory_gib=50.0,
        average_power_w=energy_j / step_time_s,
        steps=5,
        window_s=5 * step_time_s,
        duration_s=8 * step_time_s,
        requested_mhz=None,
    )


if __name__ == "__main__":
    main()
