from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from physics_cases import JOB, Case, cases, changed, cluster_of, configurations

from tuner.errors import InvalidInput
from tuner.layout import Layout, LayoutAxes, LayoutRules, enumerate_layouts
from tuner.physics.calibration import DEFAULT, Calibration, LayoutOffsets, layout_keys, log_clock
from tuner.physics.configurations import Configurations

CLUSTER = cluster_of()


def document() -> dict[str, Any]:
    written: dict[str, Any] = json.loads(json.dumps(replace(DEFAULT, trials=3, gpu="X", offsets=OFFSETS).to_document()))
    return written


def offsets_of(*keys: int) -> LayoutOffsets:
    n = len(keys)
    return LayoutOffsets(
        key=np.array(keys, np.int64),
        clock=np.full(n, -0.2),
        time=np.arange(1.0, n + 1) / 10,
        energy=np.arange(1.0, n + 1) / 20,
        time_slope=np.full(n, 0.5),
        energy_slope=np.full(n, -0.5),
        time_left=np.full(n, 0.1),
        power_left=np.full(n, 0.3),
        time_slope_left=np.full(n, 0.2),
        power_slope_left=np.full(n, 0.4),
    )


OFFSETS = offsets_of(3, 7, 2**61)


def test_a_calibration_is_read_as_it_was_written() -> None:
    assert Calibration.from_document(document()).to_document() == document()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("coefficients", "overall"), 0.0),
        (("coefficients", "overall"), float("nan")),
        (("coefficients", "overall"), "one"),
        (("coefficients", "overall"), None),
        (("coefficients", "unknown"), 1.0),
        (("coefficients",), [1.0]),
        (("coefficients", "head_share"), 2.0),
        (("covariance",), []),
        (("covariance",), [[1.0]]),
        (("covariance", 0, 0), float("inf")),
        (("covariance", 0, 0), -1.0),
        (("covariance", 0, 1), 1.0),
        (("time_deviation",), 0.0),
        (("memory_deviation",), 1e9),
        (("energy_deviation",), "wide"),
        (("trials",), "many"),
        (("trials",), -1),
        (("offsets",), None),
        (("offsets", "key"), [1]),
        (("offsets", "key"), [7, 3, 2]),
        (("offsets", "key"), [3, 7, 2**80]),
        (("offsets", "time"), [0.0, 0.0, 1e6]),
        (("offsets", "time"), [0.0, 0.0]),
        (("offsets", "power_left"), [0.0, 0.0, -2.0]),
        (("offsets", "time_slope_left"), [0.0, 0.0, 3.0]),
    ],
)
def test_a_document_that_was_tampered_with_is_refused_in_one_sentence(path: tuple[Any, ...], value: object) -> None:
    broken = document()
    where = broken
    for step in path[:-1]:
        where = where[step]
    where[path[-1]] = value
    with pytest.raises(InvalidInput, match="calibration: 'document': must be what `paretune predict` saved"):
        Calibration.from_document(broken)


@pytest.mark.parametrize("broken", [None, [], "x", 3, {}])
def test_what_is_no_document_at_all_is_refused(broken: Any) -> None:
    with pytest.raises(InvalidInput, match="must be what `paretune predict` saved"):
        Calibration.from_document(broken)


def test_every_layout_zero_stage_and_recomputation_has_a_key_of_its_own_and_its_clocks_share_it() -> None:
    x = configurations(*enumerate_layouts(JOB, CLUSTER, LayoutAxes(), LayoutRules())[0])
    variants = [changed(x, zero_stage=z, recompute=r) for z in range(4) for r in range(3)]
    keys = np.concatenate([layout_keys(JOB, CLUSTER, each) for each in variants])
    assert len(np.unique(keys)) == len(x) * 12
    assert np.array_equal(layout_keys(JOB, CLUSTER, changed(x, frequency_mhz=900)), layout_keys(JOB, CLUSTER, x))


def test_another_job_or_cluster_knows_nothing_of_the_layout() -> None:
    x = configurations(Layout(8, 2, 2, 1), Layout(32, 1, 1, 1))
    here = set(layout_keys(JOB, CLUSTER, x).tolist())
    assert here.isdisjoint(layout_keys(replace(JOB, global_batch_size=256), CLUSTER, x).tolist())
    assert here.isdisjoint(layout_keys(JOB, replace(CLUSTER, inter_node_gb_s=1.0), x).tolist())


@given(cases())
def test_keys_are_whole_numbers_of_62_bits(case: Case) -> None:
    key = int(layout_keys(case.job, case.cluster, case.x)[0])
    assert 0 <= key < 2**62


def test_a_known_layout_takes_its_own_error_and_drift_and_an_unknown_one_none() -> None:
    own = OFFSETS.at(np.array([7, 4, 3]), np.array([0.0, 0.0, -0.2]))
    assert own.time == pytest.approx([0.2 + 0.5 * 0.2, 0.0, 0.1])
    assert own.energy == pytest.approx([0.1 - 0.5 * 0.2, 0.0, 0.05])
    assert own.time_left == pytest.approx([0.1, 1.0, 0.1])
    assert own.power_left == pytest.approx([0.3, 1.0, 0.3])
    assert own.time_slope_variance[2] == own.power_slope_variance[2] == 0
    assert own.power_slope_variance[0] == pytest.approx(2 * own.time_slope_variance[0])


@given(st.lists(st.integers(0, 2**62 - 1), max_size=5))
def test_without_any_measured_layout_every_error_is_the_models(keys: list[int]) -> None:
    own = LayoutOffsets().at(np.array(keys, np.int64), np.full(len(keys), -0.5))
    assert not own.time.any()
    assert not own.energy.any()
    assert np.all(own.time_left == 1)
    assert np.all(own.power_left == 1)
    assert np.all(own.time_slope_variance > 0) or not keys


def test_the_logarithm_of_a_clock_is_0_at_the_highest_and_below_0_under_it() -> None:
    x: Configurations = configurations(Layout(32, 1, 1, 1), Layout(16, 2, 1, 1), frequency_mhz=990.0)
    assert log_clock(x, CLUSTER) == pytest.approx([np.log(0.5)] * 2)
    assert log_clock(changed(x, frequency_mhz=1980.0), CLUSTER) == pytest.approx([0.0, 0.0])
