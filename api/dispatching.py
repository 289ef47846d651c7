"""Putting a dispatcher together: the store, the Ray cluster, and the runner that each study names."""

from __future__ import annotations

from tuner.campaign import OnTrial
from tuner.dispatcher import Dispatcher
from tuner.owner import this_owner
from tuner.spec import ReplayRunnerSection, StudySpec
from tuner.store.ownership import Ownership
from workers.gang import GangLauncher
from workers.ray_cluster import RayCluster
from workers.runners.make import RunnerChoice


def make_dispatcher(
    store: Ownership, cluster: RayCluster, on_trial: OnTrial | None = None, only: str | None = None
) -> Dispatcher:
    """A dispatcher over a connected cluster.

    Args:
        store: What a dispatcher may do to studies.
        cluster: The Ray cluster, connected.
        on_trial: Called after each finished attempt.
        only: Id of the one study to work on; all where ``None``.
    """

    def launcher(spec: StudySpec) -> GangLauncher:
        return GangLauncher(cluster, runner_choice(spec))

    return Dispatcher(store, this_owner(), cluster.gpus, launcher, on_trial, only)


def runner_choice(spec: StudySpec) -> RunnerChoice:
    """The runner that a study names, as its worker processes need it."""
    runner = spec.runner
    if isinstance(runner, ReplayRunnerSection):
        return RunnerChoice(kind=runner.kind, cluster=spec.hardware(), csv=runner.csv)
    return RunnerChoice(kind=runner.kind, cluster=spec.hardware(), seed=runner.seed)
