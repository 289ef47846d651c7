from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from builders import spec, table
from ray.util import placement_group_table

from tuner.job import TrainingJob
from tuner.layout import Layout
from tuner.trial import FailureKind, Launch, MeasurementPlan, Placement, TrialFailure
from workers import gang
from workers.gang import GangLauncher
from workers.ray_cluster import RayCluster
from workers.runners.make import RunnerChoice

PLAN = MeasurementPlan()
LAYOUT = Layout(4, 1, 1, 1)
ROWS = table("4,1,1,1,,20,1,1000,40,ok\n4,1,1,1,1110,20,1.2,800,40,ok\n2,2,1,1,,20,,,,oom\n")


def job() -> TrainingJob:
    return spec().training_job()


def launcher(cluster: RayCluster) -> GangLauncher:
    return GangLauncher(cluster, RunnerChoice(kind="replay", cluster=spec().hardware(), csv=ROWS))


def placement(name: str, gpus: int = 4) -> Placement:
    return Placement(name=name, nodes=1, gpus_per_node=gpus)


def free_gpus() -> float:
    resources: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return resources.get("GPU", 0.0)


def eventually(condition: Callable[[], bool], within_s: float = 20) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def live_groups() -> set[str]:
    groups: dict[str, Any] = placement_group_table()
    return {group["name"] for group in groups.values() if group["state"] != "REMOVED"}


def test_a_launch_reserves_its_gpus_measures_several_clocks_and_frees_them(ray_cluster: RayCluster) -> None:
    eventually(lambda: free_gpus() == 8)
    launch = launcher(ray_cluster).open(job(), LAYOUT, placement("several-clocks"))
    eventually(lambda: free_gpus() == 4)
    assert launch.launch_s == 20
    assert launch.measure(None, PLAN).step_time_s == 1.0
    assert launch.measure(1110, PLAN).energy_j == 800
    launch.close()
    launch.close()
    eventually(lambda: free_gpus() == 8)
    assert "several-clocks" not in live_groups()


def test_out_of_memory_arrives_as_a_failure_of_its_class_and_leaves_nothing_behind(ray_cluster: RayCluster) -> None:
    with pytest.raises(TrialFailure) as caught:
        launcher(ray_cluster).open(job(), Layout(2, 2, 1, 1), placement("oom"))
    assert caught.value.kind is FailureKind.out_of_memory
    assert caught.value.elapsed_s == 20
    eventually(lambda: free_gpus() == 8)


def test_a_refused_clock_leaves_the_launch_open(ray_cluster: RayCluster) -> None:
    launch = launcher(ray_cluster).open(job(), LAYOUT, placement("refused-clock"))
    with pytest.raises(TrialFailure) as caught:
        launch.measure(1200, PLAN)
    assert caught.value.kind is FailureKind.clock_refused
    assert launch.measure(None, PLAN).step_time_s == 1.0
    launch.close()


def test_gpus_are_never_oversubscribed_a_third_launch_waits_for_room(ray_cluster: RayCluster) -> None:
    pads = launcher(ray_cluster)
    first = pads.open(job(), LAYOUT, placement("first"))
    second = pads.open(job(), LAYOUT, placement("second"))
    opened: list[Launch] = []
    waiting = threading.Thread(target=lambda: opened.append(pads.open(job(), LAYOUT, placement("third"))))
    waiting.start()
    time.sleep(1.0)
    assert not opened
    first.close()
    waiting.join(timeout=30)
    assert len(opened) == 1
    second.close()
    opened[0].close()


def test_a_launch_that_finds_no_room_in_time_fails_as_a_timeout(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang, "QUEUE_DEADLINE_S", 0.3)
    with pytest.raises(TrialFailure, match="64 GPUs did not become free within") as caught:
        launcher(ray_cluster).open(job(), LAYOUT, placement("too-large", gpus=64))
    assert caught.value.kind is FailureKind.timeout
    assert "too-large" not in live_groups()


def test_an_opening_launch_can_be_abandoned_from_another_thread(ray_cluster: RayCluster) -> None:
    pads, too_large = launcher(ray_cluster), placement("abandoned", gpus=64)
    failures: list[TrialFailure] = []

    def open_it() -> None:
        try:
            pads.open(job(), LAYOUT, too_large)
        except TrialFailure as failure:
            failures.append(failure)

    thread = threading.Thread(target=open_it)
    thread.start()
    time.sleep(0.5)
    pads.abandon(too_large)
    thread.join(timeout=20)
    assert [failure.kind for failure in failures] == [FailureKind.cancelled]
    assert "abandoned" not in live_groups()


def test_closing_from_another_thread_ends_a_measurement_as_cancelled(ray_cluster: RayCluster) -> None:
    launch = launcher(ray_cluster).open(job(), LAYOUT, placement("cancelled"))
    launch.close()
    with pytest.raises(TrialFailure) as caught:
        launch.measure(None, PLAN)
    assert caught.value.kind is FailureKind.cancelled


def test_a_gang_whose_process_is_killed_fails_as_crashed_and_frees_its_gpus(ray_cluster: RayCluster) -> None:
    launch = launcher(ray_cluster).open(job(), LAYOUT, placement("killed"))
    pid = ray.get(launch._actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(TrialFailure) as caught:
        launch.measure(None, PLAN)
    assert caught.value.kind is FailureKind.crashed
    eventually(lambda: free_gpus() == 8)
