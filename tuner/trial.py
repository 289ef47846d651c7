"""What a trial is asked and what it answers: the contract between the dispatcher and the runners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tuner.job import TrainingJob
from tuner.layout import Configuration, Layout
from tuner.states import TrialState


class FailureKind(StrEnum):
    """Why a trial did not yield a measurement."""

    out_of_memory = "out_of_memory"
    invalid_layout = "invalid_layout"
    timeout = "timeout"
    crashed = "crashed"
    node_lost = "node_lost"
    collective_error = "collective_error"
    clock_refused = "clock_refused"
    throttled = "throttled"
    cancelled = "cancelled"

    @property
    def is_infeasible(self) -> bool:
        """Whether it is knowledge about the layout: it would happen again, so it is never retried."""
        return self in (FailureKind.out_of_memory, FailureKind.invalid_layout)

    @property
    def is_transient(self) -> bool:
        """Whether it says nothing about the configuration, so that the trial deserves another attempt."""
        return self in (FailureKind.node_lost, FailureKind.collective_error, FailureKind.throttled)


class Source(StrEnum):
    """Where a measurement's numbers come from. Anything but ``measured`` is said wherever they are shown."""

    measured = "measured"
    simulated = "simulated"
    replayed = "replayed"


class EnergySource(StrEnum):
    """How the energy of a measurement was obtained."""

    counter = "counter"
    integrated = "integrated"
    modelled = "modelled"
    simulated = "simulated"
    replayed = "replayed"


class TrialFailure(Exception):
    """A trial that yielded no measurement. Picklable, so that it crosses processes unchanged.

    Args:
        kind: What went wrong, as a class the study can act on.
        message: One sentence.
        log_tail: Last lines of the guilty process, empty where there are none.
        elapsed_s: Seconds it cost, by the runner's clock; ``None`` where only the wall clock knows.
    """

    def __init__(self, kind: FailureKind, message: str, log_tail: str = "", elapsed_s: float | None = None) -> None:
        super().__init__(kind, message, log_tail, elapsed_s)
        self.kind = kind
        self.message = message
        self.log_tail = log_tail
        self.elapsed_s = elapsed_s

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPlan:
    """How long one measurement takes.

    Args:
        warmup_steps: Optimizer steps dropped at least, before the clock and temperature are steady.
        window_s: Length of the measured window.
        min_steps: Whole optimizer steps in the window at least, however long they are.
    """

    warmup_steps: int = 3
    window_s: float = 10.0
    min_steps: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a launch reserves.

    Args:
        name: Unique name, for the placement group.
        nodes: Nodes of the gang.
        gpus_per_node: GPUs on each.
    """

    name: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs of the whole launch."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a trial yields. Energy is the sum over all GPUs of the launch, gross, per optimizer step.

    Args:
        source: Where the numbers come from.
        step_time_s: Mean seconds per optimizer step.
        step_time_sem_s: Standard error of that mean.
        energy_j: Joules per optimizer step over all GPUs; ``None`` where it cannot be known, never 0.
        energy_sem_j: Standard error of the energy.
        energy_source: How the energy was obtained.
        tokens_per_s: Tokens trained per second by the whole launch.
        peak_memory_gib: Highest memory of any GPU; ``None`` where it cannot be known.
        average_power_w: Average power of the whole launch.
        steps: Optimizer steps in the window.
        window_s: Length of the measured window.
        duration_s: Seconds the trial took in its open launch by the runner's clock: settling, warming up, window.
        requested_mhz: The clock asked for; ``None`` is the default.
        achieved_mhz: Median clock under load.
        temperature_c: Mean GPU temperature in the window.
        power_cap_share: Share of the window in which the power limit held the clock down, 0 to 1.
        thermal_share: Share of the window in which heat held the clock down, 0 to 1.
        flags: What a reader must know before trusting the numbers, such as ``power_capped``.

    Raises:
        ValueError: A number that no measurement can have: a fault of the runner, caught before it is stored.
    """

    source: Source
    step_time_s: float
    step_time_sem_s: float
    energy_j: float | None
    energy_sem_j: float | None
    energy_source: EnergySource | None
    tokens_per_s: float
    peak_memory_gib: float | None
    average_power_w: float | None
    steps: int
    window_s: float
    duration_s: float
    requested_mhz: int | None
    achieved_mhz: int | None = None
    temperature_c: float | None = None
    power_cap_share: float | None = None
    thermal_share: float | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("step_time_s", "tokens_per_s", "energy_j"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"a measurement with {name} = {value!r}; it must be finite and above 0")
        for name in ("step_time_sem_s", "energy_sem_j", "average_power_w", "peak_memory_gib", "duration_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"a measurement with {name} = {value!r}; it must be finite and not negative")


class KnownTrial(Protocol):
    """What the search needs to know of a trial; the store's records have it."""

    @property
    def number(self) -> int:
        """Position in the study, from 0."""
        ...

    @property
    def configuration(self) -> Configuration:
        """What was or will be measured."""
        ...

    @property
    def state(self) -> TrialState:
        """Where the trial is in its life."""
        ...

    @property
    def failure_kind(self) -> FailureKind | None:
        """Why it has no measurement."""
        ...

    @property
    def measurement(self) -> Measurement | None:
        """What it yielded."""
        ...

    @property
    def gpu_seconds(self) -> float:
        """What it was charged, the opening of its launch included."""
        ...

    @property
    def sampler_attrs(self) -> dict[str, Any]:
        """What the sampler noted when it proposed the trial."""
        ...


class Launch(Protocol):
    """A gang of rank processes running one layout, open for several clocks."""

    @property
    def launch_s(self) -> float:
        """Seconds it took to open, by the runner's clock."""
        ...

    def measure(self, frequency_mhz: int | None, plan: MeasurementPlan) -> Measurement:
        """Set the clock, warm up, measure.

        Raises:
            TrialFailure: No measurement; the launch is closed unless the kind is ``clock_refused`` or ``throttled``.
        """
        ...

    def close(self) -> None:
        """End the gang: clocks restored, processes gone. May be called twice, and from another thread to cancel."""
        ...


class Runner(Protocol):
    """A way to carry out launches."""

    def open(self, job: TrainingJob, layout: Layout, placement: Placement) -> Launch:
        """Start a gang.

        Raises:
            TrialFailure: It did not start, or did not fit in memory.
        """
        ...


class Launcher(Runner, Protocol):
    """A runner whose launches take place on a cluster, where opening one can wait for room."""

    def gpus(self) -> int:
        """GPUs of the whole cluster, busy or not."""
        ...

    def abandon(self, placement: Placement) -> None:
        """Give up a launch that may still be opening, from another thread: ``open`` then fails as cancelled."""
        ...
