from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from statistics import mean

import numpy as np

from tuner.hardware import Cluster
from tuner.job import ModelShape, TrainingJob
from tuner.layout import Layout, LayoutAxes, LayoutRules, enumerate_layouts
from workers.simulator.quirks import canonical, draw_quirks, generator


def test_quirks_stay_within_their_bounds_and_differ_between_layouts(job: TrainingJob, cluster: Cluster) -> None:
    layouts, _ = enumerate_layouts(job, cluster, LayoutAxes(), LayoutRules())
    drawn = [draw_quirks(seed, job, layout, cluster) for seed in range(3) for layout in layouts]
    for name, most in (("compute", 0.08), ("link", 0.15), ("network", 0.15), ("activity", 0.25)):
        off = [abs(getattr(quirks, name) - 1) for quirks in drawn]
        assert mean(off) > 0.01
        assert max(off) < most
    assert all(0 <= quirks.fragmentation < 0.2 for quirks in drawn)
    assert all(0 <= quirks.stiffness < 0.34 for quirks in drawn)
    assert len({quirks.step_noise for quirks in drawn}) == len(drawn)


def test_the_draws_belong_to_what_a_job_says_of_itself() -> None:
    # The text that the draws of all recorded studies were made from: a new field must not change it at its default.
    model = ModelShape(layers=2, hidden=64, heads=2, kv_heads=2, ffn=128, vocab=256)
    job = TrainingJob(model=model, sequence_length=16, global_batch_size=4)
    assert hashlib.sha256(canonical(job).encode()).hexdigest()[:16] == "01bc45e2ab4fc232"
    assert canonical(replace(job, sequence_parallel=False)) != canonical(job)


def test_a_straggling_node_is_occasional(job: TrainingJob, cluster: Cluster) -> None:
    layouts, _ = enumerate_layouts(job, cluster, LayoutAxes(), LayoutRules())
    slow = [
        float(draw_quirks(seed, job, each, cluster).node_slowdown.max() > 1) for seed in range(5) for each in layouts
    ]
    assert 0.03 < mean(slow) < 0.15


def test_neighbouring_layouts_resemble_each_other_more_than_distant_ones(job: TrainingJob, cluster: Cluster) -> None:
    near, far = [], []
    for seed in range(40):
        home, neighbour, distant = (
            draw_quirks(seed, job, layout, cluster).link
            for layout in (Layout(16, 1, 1, 1), Layout(16, 1, 1, 2), Layout(1, 1, 16, 8))
        )
        near.append(abs(home - neighbour))
        far.append(abs(home - distant))
    assert mean(near) < 0.7 * mean(far)


def test_fragmentation_never_falls_with_the_microbatch(job: TrainingJob, cluster: Cluster) -> None:
    lost = [draw_quirks(3, job, Layout(4, 2, 2, 2**e), cluster).fragmentation for e in range(6)]
    assert all(small <= large for small, large in itertools.pairwise(lost))


def test_boards_belong_to_the_cluster_and_not_to_the_layout(job: TrainingJob, cluster: Cluster) -> None:
    one, other = (draw_quirks(1, job, layout, cluster) for layout in (Layout(16, 1, 1, 1), Layout(2, 8, 1, 1)))
    assert np.array_equal(one.board_gain, other.board_gain)
    assert np.array_equal(one.node_ambient_k, other.node_ambient_k)


def test_generators_of_the_same_parts_draw_the_same_and_of_other_parts_do_not() -> None:
    assert generator(1, "a", Layout(1, 1, 1, 1)).random() == generator(1, "a", Layout(1, 1, 1, 1)).random()
    others = {generator(seed, part).random() for seed in (1, 2) for part in ("a", "b")}
    assert len(others) == 4
