"""A launch on Ray: a placement group that reserves its GPUs, and the actor that runs it."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tuner.job import TrainingJob
from tuner.layout import Layout
from tuner.trial import FailureKind, Launch, Measurement, MeasurementPlan, Placement, TrialFailure
from workers.ray_cluster import RayCluster
from workers.runners.make import RunnerChoice, make_runner

QUEUE_DEADLINE_S = 600.0
OPEN_DEADLINE_S = 900.0
MEASURE_DEADLINE_S = 900.0
_POLL_S = 0.1


class _Lead:
    """Runs in the gang's actor: carries one launch."""

    def __init__(self, choice: RunnerChoice) -> None:
        self._runner = make_runner(choice)
        self._launch: Launch | None = None

    def pid(self) -> int:
        return os.getpid()

    def open(self, job: TrainingJob, layout: Layout, placement: Placement) -> float | TrialFailure:
        # A failure is returned, not raised: Ray wraps what is raised and would lose its class.
        try:
            self._launch = self._runner.open(job, layout, placement)
        except TrialFailure as failure:
            return failure
        return self._launch.launch_s

    def measure(self, frequency_mhz: int | None, plan: MeasurementPlan) -> Measurement | TrialFailure:
        assert self._launch is not None
        try:
            return self._launch.measure(frequency_mhz, plan)
        except TrialFailure as failure:
            return failure


class GangLauncher:
    """Carries out launches as gangs on Ray; a :class:`tuner.trial.Launcher`.

    Args:
        cluster: The Ray cluster, connected.
        choice: The runner that each gang carries.
    """

    def __init__(self, cluster: RayCluster, choice: RunnerChoice) -> None:
        self._cluster = cluster
        self._choice = choice
        self._abandoned: set[str] = set()
        self._opening: dict[str, GangLaunch] = {}
        self._lock = threading.Lock()

    def gpus(self) -> int:
        """GPUs of the whole cluster, busy or not."""
        return self._cluster.gpus()

    def open(self, job: TrainingJob, layout: Layout, placement: Placement) -> GangLaunch:
        """Reserve the GPUs, start the actor, open the runner's launch in it.

        Raises:
            TrialFailure: There was no room in time, the gang died, or the runner refused.
        """
        bundles: list[dict[str, float]] = [{"GPU": float(placement.gpus_per_node)}] * placement.nodes
        group = placement_group(bundles, strategy="PACK", name=placement.name)
        launch = GangLaunch(group, placement)
        with self._lock:
            self._opening[placement.name] = launch
        try:
            self._wait_for_room(group, placement)
            launch.start(self._choice, job, layout)
            self._refuse_if_abandoned(placement)
        except BaseException:
            launch.close()
            raise
        finally:
            with self._lock:
                del self._opening[placement.name]
        return launch

    def abandon(self, placement: Placement) -> None:
        """Give up a launch that may still be opening."""
        with self._lock:
            self._abandoned.add(placement.name)
            launch = self._opening.get(placement.name)
        if launch is not None:
            launch.close()

    def _wait_for_room(self, group: PlacementGroup, placement: Placement) -> None:
        deadline_s = time.monotonic() + QUEUE_DEADLINE_S
        while not group.wait(_POLL_S):
            self._refuse_if_abandoned(placement)
            if time.monotonic() > deadline_s:
                raise TrialFailure(
                    FailureKind.timeout,
                    f"{placement.gpus} GPUs did not become free within {QUEUE_DEADLINE_S:g} s",
                    elapsed_s=0.0,
                )

    def _refuse_if_abandoned(self, placement: Placement) -> None:
        with self._lock:
            if placement.name in self._abandoned:
                raise TrialFailure(FailureKind.cancelled, "cancelled while it was opening", elapsed_s=0.0)


class GangLaunch:
    """An open gang; a :class:`tuner.trial.Launch`.

    Args:
        group: The reserved GPUs.
        placement: What was asked for.
    """

    def __init__(self, group: PlacementGroup, placement: Placement) -> None:
        self.launch_s = 0.0
        self._group = group
        self._placement = placement
        self._actor: Any = None
        self._nodes: frozenset[str] = frozenset()
        self._closed = threading.Event()

    def start(self, choice: RunnerChoice, job: TrainingJob, layout: Layout) -> None:
        """Start the actor on the reserved GPUs and open the runner's launch in it."""
        self._nodes = frozenset(placement_group_table(self._group)["bundles_to_node_id"].values())
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
        lead = ray.remote(num_cpus=0, num_gpus=0, max_restarts=0)(_Lead)
        self._actor = lead.options(scheduling_strategy=strategy, name=self._placement.name).remote(choice)
        self.launch_s = self._ask(self._actor.open.remote(job, layout, self._placement), OPEN_DEADLINE_S, "open")

    def measure(self, frequency_mhz: int | None, plan: MeasurementPlan) -> Measurement:
        """Measure one clock in the gang.

        Raises:
            TrialFailure: No measurement; the gang is closed unless only the clock was refused or the GPU throttled.
        """
        if self._closed.is_set():
            raise TrialFailure(FailureKind.cancelled, "the launch is closed", elapsed_s=0.0)
        answer: Measurement = self._ask(self._actor.measure.remote(frequency_mhz, plan), MEASURE_DEADLINE_S, "measure")
        return answer

    def close(self) -> None:
        """Kill the actor and free the GPUs; may be called twice, and from another thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._actor is not None:
            ray.kill(self._actor)
        remove_placement_group(self._group)

    def _ask(self, reply: Any, deadline_s: float, what: str) -> Any:
        try:
            answer = ray.get(reply, timeout=deadline_s)
        except GetTimeoutError:
            self.close()
            raise TrialFailure(FailureKind.timeout, f"the gang did not {what} within {deadline_s:g} s") from None
        except RayActorError as error:
            if self._closed.is_set():
                raise TrialFailure(FailureKind.cancelled, "killed on request") from None
            kind = FailureKind.node_lost if self._lost_a_node() else FailureKind.crashed
            self.close()
            raise TrialFailure(kind, f"the gang's process ended while asked to {what}", str(error)[-2000:]) from None
        except RayError as error:
            self.close()
            raise TrialFailure(FailureKind.crashed, f"the gang failed to {what}", str(error)[-4000:]) from None
        if isinstance(answer, TrialFailure):
            if answer.kind not in (FailureKind.clock_refused, FailureKind.throttled):
                self.close()
            raise answer
        return answer

    def _lost_a_node(self) -> bool:
        """Whether a node that the gang was placed on is gone. Asked before the group is placed anew."""
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return not self._nodes <= {node["NodeID"] for node in nodes if node["Alive"]}
