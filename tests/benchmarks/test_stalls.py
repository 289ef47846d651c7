from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.groups import Group
from benchmarks.scores import score
from benchmarks.stalls import repeat_spreads, stalled, twin_differences


def delayed(group: Group, delay_s: np.ndarray) -> Group:
    """The group with so many seconds more in each microbatch."""
    x = group.measured.configurations
    microbatches = group.job.global_batch_size / (x.dp * x.microbatch)
    return replace(
        group, measured=replace(group.measured, step_time_s=group.measured.step_time_s + delay_s * microbatches)
    )


def test_rows_that_wait_the_known_time_in_each_microbatch_are_found(make_group) -> None:
    group = make_group()
    pp = group.measured.configurations.pp
    waits_s = np.select([pp == 2, pp == 4], [0.55, 1.2])
    rows = stalled(replace_measured(group, delayed(group, waits_s)))
    np.testing.assert_array_equal(rows, pp > 1)


def test_rows_without_stages_or_with_another_wait_are_not_stalled(make_group) -> None:
    group = make_group()
    pp = group.measured.configurations.pp
    assert not stalled(score(group, draws=0)).any()
    assert not stalled(replace_measured(group, delayed(group, np.full(len(pp), 0.2)))).any()
    assert not stalled(replace_measured(group, delayed(group, np.where(pp == 1, 0.55, 0.0)))).any()


def test_one_node_has_no_stalls(make_group) -> None:
    group = make_group()
    late = delayed(group, np.full(len(group), 0.55))
    one_node = replace(late, cluster=replace(late.cluster, nodes=1, gpus_per_node=16))
    assert not stalled(replace_measured(group, one_node)).any()


def replace_measured(group: Group, changed: Group):
    return replace(score(group, draws=0), group=changed)


def test_twins_differ_by_their_zero_stage_alone(make_group) -> None:
    one, other = make_group(((8, 1, 2, 1), (4, 1, 4, 2)), zero_stage=0), make_group(((8, 1, 2, 1), (2, 1, 8, 1)))
    arrays = {
        name: np.concatenate([getattr(g.measured.configurations, name) for g in (one, other)])
        for name in ("dp", "tp", "pp", "microbatch", "frequency_mhz", "zero_stage", "recompute")
    }
    measured = replace(
        one.measured,
        configurations=replace(one.measured.configurations, **arrays),
        # 128 / 8 = 16 microbatches: the twins are 8 / 16 s apart.
        step_time_s=np.where((arrays["pp"] == 2) & (arrays["zero_stage"] == 1), 12.0, 4.0),
    )
    differences = twin_differences([replace(one, measured=measured)])
    assert {stages: values.tolist() for stages, values in differences.items()} == {1: [], 2: [0.5], 4: []}


def test_repeats_spread_as_widely_as_the_table_says() -> None:
    np.testing.assert_allclose(repeat_spreads()[0], 88.922659 / 18.999728 - 1)
