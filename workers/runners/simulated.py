"""A runner that simulates a training cluster, for wherever no GPU is at hand. Every number it yields says so."""

from __future__ import annotations

import math
from typing import NamedTuple

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.layout import Layout
from tuner.trial import EnergySource, FailureKind, Measurement, MeasurementPlan, Placement, Source, TrialFailure
from workers.simulator.memory import peak_memory_gib
from workers.simulator.noise import Window, draw_window
from workers.simulator.quirks import Quirks, canonical, draw_quirks, generator
from workers.simulator.steady import SteadyState, steady_state
from workers.simulator.thermal import COLD_C, settling_s, temperature_after_c

_COLD_STEPS = (3.0, 0.7, 0.3, 0.1)  # What the first steps cost on top: compilation, autotuning, allocator growth.
_PATCHY_MEMORY = 1.05  # Up to this overshoot the job starts, and dies only in its first step.


class Truth(NamedTuple):
    """What endless measuring of a configuration would converge to.

    Args:
        step_time_s: Seconds of an optimizer step.
        energy_j: Joules of a step over all GPUs.
        peak_memory_gib: Peak memory of the fullest GPU.
    """

    step_time_s: float
    energy_j: float
    peak_memory_gib: float


class SimulatedRunner:
    """Simulates launches on a cluster; nothing sleeps, times are reported only.

    Args:
        cluster: The cluster that is simulated.
        seed: Which cluster of its kind: its boards, and the quirks of every layout on it.
    """

    def __init__(self, cluster: Cluster, seed: int = 0) -> None:
        self.cluster = cluster
        self.seed = seed

    def open(self, job: TrainingJob, layout: Layout, placement: Placement) -> SimulatedLaunch:
        """Start a simulated gang.

        Raises:
            TrialFailure: ``invalid_layout`` or ``out_of_memory``.
        """
        self._validate(job, layout)
        if placement.gpus != layout.world_size:
            raise _invalid(f"{layout} needs {layout.world_size} GPUs, but {placement.gpus} are reserved")
        quirks = draw_quirks(self.seed, job, layout, self.cluster)
        launch_s = _launch_s(self.seed, job, layout)
        needed_gib = peak_memory_gib(job, layout, quirks.fragmentation)
        if needed_gib > _PATCHY_MEMORY * self.cluster.gpu.memory_gib:
            raise _out_of_memory(layout, needed_gib, self.cluster, elapsed_s=launch_s)
        return SimulatedLaunch(self, job, layout, launch_s, needed_gib, quirks)

    def truth(self, job: TrainingJob, layout: Layout, frequency_mhz: int | None) -> Truth | None:
        """The noise-free answer, for tests and benchmarks; ``None`` where the layout does not fit in memory.

        Raises:
            TrialFailure: ``invalid_layout`` or ``clock_refused``, as a trial would.
        """
        self._validate(job, layout)
        quirks = draw_quirks(self.seed, job, layout, self.cluster)
        needed_gib = peak_memory_gib(job, layout, quirks.fragmentation)
        if needed_gib > self.cluster.gpu.memory_gib:
            return None
        steady = self.settle(job, layout, frequency_mhz)
        return Truth(steady.step_time_s, steady.energy_j, needed_gib)

    def settle(self, job: TrainingJob, layout: Layout, frequency_mhz: int | None) -> SteadyState:
        """The steady state at a clock; the default is the highest clock, held down by the power limit alone.

        Raises:
            TrialFailure: ``clock_refused``.
        """
        clocks = self.cluster.gpu.clocks_mhz
        if frequency_mhz is not None and frequency_mhz not in clocks:
            nearest = min(clocks, key=lambda clock: abs(clock - frequency_mhz))
            message = (
                f"{self.cluster.gpu.name} does not support {frequency_mhz} MHz; "
                f"the nearest supported clock is {nearest} MHz"
            )
            raise TrialFailure(FailureKind.clock_refused, message, elapsed_s=0.0)
        return steady_state(self.seed, job, layout, self.cluster, frequency_mhz or clocks[0])

    def _validate(self, job: TrainingJob, layout: Layout) -> None:
        world, model = self.cluster.world_size, job.model
        if layout.world_size != world:
            raise _invalid(f"{layout} takes {layout.world_size} GPUs, but the cluster has {world}")
        if min(layout.dp, layout.tp, layout.pp, layout.microbatch) < 1:
            raise _invalid(f"{layout} has a degree below 1")
        if model.layers % layout.pp:
            raise _invalid(f"pp = {layout.pp} does not divide {model.layers} layers")
        if model.heads % layout.tp:
            raise _invalid(f"tp = {layout.tp} does not divide {model.heads} heads")
        if job.global_batch_size % (layout.dp * layout.microbatch):
            raise _invalid(
                f"dp * microbatch = {layout.dp * layout.microbatch} does not divide "
                f"the global batch of {job.global_batch_size}"
            )


class SimulatedLaunch:
    """A simulated gang. Its history changes how long a measurement takes to settle, never what it says."""

    def __init__(
        self,
        runner: SimulatedRunner,
        job: TrainingJob,
        layout: Layout,
        launch_s: float,
        needed_gib: float,
        quirks: Quirks,
    ) -> None:
        self._runner = runner
        self._job = job
        self._layout = layout
        self._launch_s = launch_s
        self._needed_gib = needed_gib
        self._quirks = quirks
        self._temperature_c = COLD_C
        self._frequency_mhz: int | None = None
        self._cold = True
        self._closed = False

    @property
    def launch_s(self) -> float:
        """Seconds it took to open."""
        return self._launch_s

    def measure(self, frequency_mhz: int | None, plan: MeasurementPlan) -> Measurement:
        """Set the clock, warm up, measure.

        Raises:
            TrialFailure: ``cancelled`` after close, ``clock_refused``, or ``out_of_memory`` in the first step.
        """
        if self._closed:
            raise TrialFailure(FailureKind.cancelled, f"the launch of {self._layout} is closed", elapsed_s=0.0)
        runner, cluster = self._runner, self._runner.cluster
        steady = runner.settle(self._job, self._layout, frequency_mhz)
        if self._needed_gib > cluster.gpu.memory_gib:
            self.close()
            elapsed_s = steady.step_time_s * (1 + _COLD_STEPS[0])
            raise _out_of_memory(self._layout, self._needed_gib, cluster, elapsed_s)
        window = self._draw_window(frequency_mhz, plan, steady)
        settling_s = self._settle(frequency_mhz, plan, steady)
        return Measurement(
            source=Source.simulated,
            step_time_s=window.step_time_s,
            step_time_sem_s=window.step_time_sem_s,
            energy_j=window.energy_j,
            energy_sem_j=window.energy_sem_j,
            energy_source=EnergySource.simulated,
            tokens_per_s=self._job.tokens_per_step / window.step_time_s,
            peak_memory_gib=self._needed_gib,
            average_power_w=window.energy_j / window.step_time_s,
            steps=window.steps,
            window_s=window.window_s,
            duration_s=settling_s + window.window_s,
            requested_mhz=frequency_mhz,
            achieved_mhz=steady.achieved_mhz,
            temperature_c=steady.temperature_c,
            power_cap_share=steady.power_cap_share,
            thermal_share=0.0,
            flags=("power_capped",) if steady.power_cap_share > 0 else (),
        )

    def close(self) -> None:
        """End the gang; a second call changes nothing."""
        self._closed = True

    def _draw_window(self, frequency_mhz: int | None, plan: MeasurementPlan, steady: SteadyState) -> Window:
        cluster = self._runner.cluster
        # The plan is part of the seed: a longer window is another experiment, not a longer look at the same steps.
        identity = (canonical(cluster), canonical(self._job), self._layout, frequency_mhz, plan)
        return draw_window(
            generator(self._runner.seed, "measurement", *identity),
            plan,
            step_time_s=steady.step_time_s,
            energy_j=steady.energy_j,
            relative_noise=self._quirks.step_noise,
            boards=cluster.world_size,
            nodes=cluster.nodes,
        )

    def _settle(self, frequency_mhz: int | None, plan: MeasurementPlan, steady: SteadyState) -> float:
        """Seconds until the clock is set and the boards are steady, in whole steps; moves the launch's state there."""
        elapsed_s = 0.0
        if frequency_mhz != self._frequency_mhz:
            # NVML answers at once, but the driver and the voltage take a moment, and ranks agree on a step to do it at.
            elapsed_s += 1.0 + 1.0 / (1.0 + math.exp(-self._runner.cluster.world_size / 64))
        heating_s = settling_s(self._temperature_c, steady.temperature_c)
        steps = max(plan.warmup_steps, math.ceil(heating_s / steady.step_time_s))
        warm_s = steps * steady.step_time_s
        self._temperature_c = temperature_after_c(self._temperature_c, steady.temperature_c, warm_s)
        if self._cold:
            warm_s += sum(_COLD_STEPS[:steps]) * steady.step_time_s
        self._cold = self._cold and steps < len(_COLD_STEPS)
        self._frequency_mhz = frequency_mhz
        return elapsed_s + warm_s


def _launch_s(seed: int, job: TrainingJob, layout: Layout) -> float:
    """Seconds to start processes, import torch, join NCCL's groups and build the model: 20 to 90."""
    draws = generator(seed, "launch", canonical(job), layout)
    groups = sum(degree > 1 for degree in (layout.dp, layout.tp, layout.pp))
    usual_s = 22.0 + 6.5 * math.log2(layout.world_size) + 2.0 * groups
    return float(min(90.0, max(20.0, usual_s * math.exp(0.06 * draws.standard_normal()))))


def _invalid(message: str) -> TrialFailure:
    return TrialFailure(FailureKind.invalid_layout, message, elapsed_s=0.0)


def _out_of_memory(layout: Layout, needed_gib: float, cluster: Cluster, elapsed_s: float) -> TrialFailure:
    """The failure, with a log in the words of PyTorch's allocator."""
    available_gib = cluster.gpu.memory_gib
    message = f"{layout} needs {needed_gib:.1f} GiB on its fullest GPU, which has {available_gib:.1f} GiB"
    asked_gib = min(needed_gib - available_gib + 0.1, 2.0)
    free_gib = 0.6 * asked_gib
    log_tail = (
        f"[simulated] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked_gib:.2f} GiB. GPU 0 has a "
        f"total capacity of {available_gib:.2f} GiB of which {free_gib:.2f} GiB is free."
    )
    return TrialFailure(FailureKind.out_of_memory, message, log_tail, elapsed_s)
