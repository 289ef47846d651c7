"""One sampler on one table with one seed: every trial charged and scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.bench.contender import BenchTrial, Contender
from tuner.bench.truth import MEASURED_STEPS, Reading, Truth, is_reached
from tuner.layout import Configuration
from tuner.search.believed import Believed
from tuner.states import TrialState
from tuner.trial import EnergySource, FailureKind, Measurement, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One trial of a run.

    Args:
        configuration: What was measured.
        new_launch: Whether a launch was opened for it.
        out_of_memory: Whether it failed.
        seconds: Cluster-seconds charged so far.
        believed: What the sampler held for Pareto-optimal afterwards.
        share: Score of that, predicted configurations included.
        share_measured: Score of the measured ones alone.
    """

    configuration: Configuration
    new_launch: bool
    out_of_memory: bool
    seconds: float
    believed: Believed
    share: float
    share_measured: float


def run(truth: Truth, contender: Contender, *, seed: int, noise: float, max_trials: int, gpus: int) -> Iterator[Step]:
    """Let a sampler search a table until it stops, has measured everything, or has had its trials.

    Args:
        truth: The table.
        contender: The sampler.
        seed: Of the noise.
        noise: Relative standard deviation of step time and of energy.
        max_trials: Trials it may have.
        gpus: Of the cluster.
    """
    trials: list[BenchTrial] = []
    seconds, is_open = 0.0, None
    for number in range(min(max_trials, len(truth.configurations))):
        configuration = contender.suggest(trials, is_open)
        if configuration is None:
            return
        reading = truth.measure(configuration, seed, noise)
        new_launch = configuration.layout != is_open
        charged = (truth.launch_s(configuration) if new_launch else 0.0) + truth.trial_s(configuration)
        seconds += charged
        trials.append(_trial(number, configuration, reading, noise, truth.trial_s(configuration), charged * gpus))
        is_open = None if reading is None else configuration.layout
        believed = contender.believed(trials)
        yield Step(
            configuration=configuration,
            new_launch=new_launch,
            out_of_memory=reading is None,
            seconds=seconds,
            believed=believed,
            share=truth.share((*believed.measured, *believed.predicted)),
            share_measured=truth.share(believed.measured),
        )


def seconds_to(steps: Sequence[Step], target: float, *, measured_only: bool = False) -> float | None:
    """Cluster-seconds after which the score reached a target for the first time; ``None``: never."""
    for step in steps:
        if is_reached(step.share_measured if measured_only else step.share, target):
            return step.seconds
    return None


def _trial(
    number: int, configuration: Configuration, reading: Reading | None, noise: float, trial_s: float, gpu_seconds: float
) -> BenchTrial:
    if reading is None:
        kind, state, measurement = FailureKind.out_of_memory, TrialState.infeasible, None
    else:
        kind, state = None, TrialState.complete
        energy = reading.energy_j
        measurement = Measurement(
            source=Source.replayed,
            step_time_s=reading.step_time_s,
            step_time_sem_s=noise * reading.step_time_s,
            energy_j=energy,
            energy_sem_j=None if energy is None else noise * energy,
            energy_source=None if energy is None else EnergySource.replayed,
            tokens_per_s=1.0,
            peak_memory_gib=reading.peak_memory_gib,
            average_power_w=None if energy is None else energy / reading.step_time_s,
            steps=MEASURED_STEPS,
            window_s=MEASURED_STEPS * reading.step_time_s,
            duration_s=trial_s,
            requested_mhz=configuration.frequency_mhz,
        )
    return BenchTrial(number, configuration, state, kind, measurement, gpu_seconds, {})
