"""Launchers without Ray, for tests of the dispatcher: real runners, opened in the dispatcher's own threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from api.dispatching import runner_choice
from tuner.job import TrainingJob
from tuner.layout import Configuration, Layout
from tuner.spec import StudySpec
from tuner.trial import FailureKind, Launch, Measurement, MeasurementPlan, Placement, Runner, TrialFailure
from workers.runners.make import make_runner


@dataclass
class Cluster:
    """Counts what launches hold, and fails where more than the cluster has would be held."""

    size: int = 4
    held: int = 0
    peak: int = 0
    opened: list[Layout] = field(default_factory=list)
    measured: list[Configuration] = field(default_factory=list)
    faults: Iterator[TrialFailure | Exception | None] = field(default_factory=lambda: iter(()))
    gate: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def gpus(self) -> int:
        return self.size

    def launcher(self, spec: StudySpec) -> InProcessLauncher:
        return InProcessLauncher(self, make_runner(runner_choice(spec)))


class InProcessLauncher:
    def __init__(self, cluster: Cluster, runner: Runner) -> None:
        self._cluster = cluster
        self._runner = runner

    def gpus(self) -> int:
        return self._cluster.size

    def open(self, job: TrainingJob, layout: Layout, placement: Placement) -> InProcessLaunch:
        with self._cluster.lock:
            self._cluster.held += placement.gpus
            self._cluster.peak = max(self._cluster.peak, self._cluster.held)
            self._cluster.opened.append(layout)
        try:
            launch = self._runner.open(job, layout, placement)
        except TrialFailure:
            self._cluster.held -= placement.gpus
            raise
        return InProcessLaunch(self._cluster, launch, layout, placement)

    def abandon(self, placement: Placement) -> None:
        """Opening takes no time here."""


class InProcessLaunch:
    def __init__(self, cluster: Cluster, launch: Launch, layout: Layout, placement: Placement) -> None:
        self._cluster = cluster
        self._launch = launch
        self._layout = layout
        self._placement = placement
        self._closed = threading.Event()

    @property
    def launch_s(self) -> float:
        return self._launch.launch_s

    def measure(self, frequency_mhz: int | None, plan: MeasurementPlan) -> Measurement:
        fault = next(self._cluster.faults, None)
        if fault is not None:
            raise fault
        self._cluster.measured.append(Configuration(self._layout, frequency_mhz))
        if self._cluster.gate is not None:
            while not self._cluster.gate.wait(0.02):
                if self._closed.is_set():
                    raise TrialFailure(FailureKind.cancelled, "killed on request", elapsed_s=1.0)
        return self._launch.measure(frequency_mhz, plan)

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._launch.close()
            with self._cluster.lock:
                self._cluster.held -= self._placement.gpus


def eventually(turn: Callable[[], object], condition: Callable[[], bool], turns: int = 2000) -> None:
    """Let the dispatcher work until something is the case."""
    for _ in range(turns):
        if condition():
            return
        turn()
        threading.Event().wait(0.005)
    raise AssertionError("it did not come to pass")
