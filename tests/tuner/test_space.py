from __future__ import annotations

from typing import Any

import pytest
from builders import SHAPE, configuration, document, spec, table
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidInput
from tuner.hardware import gpu_catalogue
from tuner.layout import Layout
from tuner.space import AUTO_LOWEST_SHARE, build_space, space_clocks


def test_every_layout_is_combined_with_every_clock_and_the_default_comes_first() -> None:
    space = build_space(spec())
    clocks = [None, 1260, 1110]
    assert [c.frequency_mhz for c in space.configurations[:3]] == clocks
    assert len(space.configurations) == len(space.layouts) * len(clocks)
    assert space.has_energy


def test_the_baseline_given_is_the_first_trial_at_the_default_clock() -> None:
    space = build_space(spec(baseline={"dp": 2, "tp": 2, "pp": 1, "microbatch": 4}))
    assert space.baseline == configuration(tp=2, microbatch=4)


def test_without_a_baseline_the_least_sharded_layout_that_holds_the_weights_is_taken() -> None:
    assert build_space(spec()).baseline == configuration()


def test_a_model_too_large_for_one_gpu_starts_with_tensor_parallelism() -> None:
    large = SHAPE | {"layers": 32, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672}
    space = build_space(spec(job=document()["job"] | {"model": large}))
    assert space.baseline.layout.tp > 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"space": {"tp": [3]}}, "space: 'no valid layout': all"),
        ({"job": document()["job"] | {"global_batch_size": 7}, "space": {"tp": [1], "pp": [1]}}, "dp = 4 does not divide the global batch of 7"),
        ({"space": {"microbatch": [32]}}, "does not divide"),
        ({"space": {"frequency_mhz": [1111]}}, "the nearest are 1110 and 1125"),
        ({"space": {"frequency_mhz": {"min": 1200, "max": 1100, "step": 15}}}, "must not exceed max = 1100"),
        ({"baseline": {"dp": 8, "tp": 1, "pp": 1, "microbatch": 1}}, "takes dp * tp * pp = 8 GPUs, but the cluster has 4"),
        ({"baseline": {"dp": 1, "tp": 1, "pp": 4, "microbatch": 8}}, "2 microbatches are fewer than pp = 4 stages"),
        ({"runner": {"kind": "replay", "csv": table("8,1,1,1,,,1,,,ok\n")}, "space": {}}, "takes dp * tp * pp = 8 GPUs"),
        ({"runner": {"kind": "replay", "csv": table("4,1,1,3,,,1,,,ok\n")}, "space": {}}, "must be divisible by dp * microbatch = 12"),
        ({"runner": {"kind": "replay", "csv": table("4,1,1,1,,,1,,,ok\n")}}, "space: 'given': must be left out with a replay table"),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_run_says_why(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build_space(spec(**changes))
    assert sentence in str(caught.value)


def test_a_replay_tables_rows_are_the_space_whatever_the_rules_say() -> None:
    rows = table("1,1,4,8,1410,,1,100,,ok\n1,1,4,8,900,,2,90,,ok\n4,1,1,1,,,1,,,oom\n")
    space = build_space(spec(runner={"kind": "replay", "csv": rows}, space={}))
    assert space.configurations == (
        configuration(pp=4, microbatch=8, mhz=1410),
        configuration(pp=4, microbatch=8, mhz=900),
        configuration(),
    )
    assert space.layouts == (Layout(1, 1, 4, 8), Layout(4, 1, 1, 1))


def test_a_table_without_any_energy_is_searched_for_time_alone() -> None:
    rows = table("4,1,1,1,,,1,,,ok\n")
    assert not build_space(spec(runner={"kind": "replay", "csv": rows}, space={})).has_energy


@given(st.sampled_from(sorted(gpu_catalogue())))
def test_automatic_clocks_are_supported_descending_and_reach_from_half_the_boost_clock(name: str) -> None:
    gpu = gpu_catalogue()[name]
    default, *clocks = space_clocks("auto", gpu)
    assert default is None
    assert 10 <= len(clocks) <= 20
    assert set(clocks) <= set(gpu.clocks_mhz)
    assert clocks == sorted(clocks, reverse=True)
    assert max(clocks) < gpu.max_clock_mhz
    assert min(clocks) >= AUTO_LOWEST_SHARE * gpu.max_clock_mhz
