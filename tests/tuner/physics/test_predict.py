from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from physics_cases import JOB, Case, cases, changed, cluster_of, configurations

from tuner.job import ModelShape, TrainingJob
from tuner.layout import Layout, LayoutAxes, LayoutRules, enumerate_layouts
from tuner.physics import predict as predict_module
from tuner.physics.calibration import DEFAULT
from tuner.physics.coefficients import COEFFICIENTS, logarithms, with_logarithms
from tuner.physics.memory import stage_memory
from tuner.physics.predict import Prediction, predict
from tuner.physics.step_time import StepModel

CLUSTER = cluster_of()
BANDED = (("step_time", "_s"), ("energy", "_j"), ("peak_memory", "_gib"))
# Fewer microbatches than stages: every stage holds the one there is, and the fullest is the longest, not the second.
FEW_MICROBATCHES = Case(
    TrainingJob(
        model=ModelShape(layers=9, hidden=8, heads=1, kv_heads=1, ffn=1, vocab=12, gated_mlp=False),
        sequence_length=1,
        global_batch_size=1,
    ),
    cluster_of("A100-PCIE-40GB", 4, 1),
    configurations(Layout(1, 1, 4, 1), frequency_mhz=1410.0),
)
# The first stage waits for its host, the last computes its head: which one is slower changes between 210 and 225 MHz.
SLOWEST_CHANGES = Case(
    TrainingJob(
        model=ModelShape(
            layers=3, hidden=128, heads=1, kv_heads=1, ffn=1, vocab=21_094, gated_mlp=False, tied_embeddings=False
        ),
        sequence_length=4096,
        global_batch_size=2,
    ),
    cluster_of("A100-PCIE-40GB", 2, 1),
    configurations(Layout(1, 1, 2, 2), frequency_mhz=1410.0, zero_stage=0),
)


def all_layouts() -> tuple[Layout, ...]:
    return enumerate_layouts(JOB, CLUSTER, LayoutAxes(), LayoutRules())[0]


@settings(max_examples=300, deadline=None)
@given(cases(), st.lists(st.floats(-2.0, 2.0), min_size=len(COEFFICIENTS), max_size=len(COEFFICIENTS)))
def test_predictions_are_finite_above_zero_and_within_their_bands(case: Case, moved: list[float]) -> None:
    far_off = replace(
        DEFAULT, coefficients=with_logarithms(DEFAULT.coefficients, logarithms(DEFAULT.coefficients) + moved)
    )
    for calibration in (DEFAULT, far_off):
        prediction = predict(case.job, case.cluster, case.x, calibration)
        for name, unit in BANDED:
            low, value, high = (getattr(prediction, f"{name}{part}{unit}")[0] for part in ("_low", "", "_high"))
            assert 0 < low < value < high < np.inf
        assert sum(part[0] for part in prediction.breakdown.values()) == pytest.approx(prediction.step_time_s[0])
        assert all(np.isfinite(part[0]) and part[0] >= 0 for part in prediction.breakdown.values())
        assert 0 <= prediction.binding_stage[0] < case.x.pp[0]
        assert 0 < prediction.achieved_mhz[0] <= case.x.frequency_mhz[0]
        assert prediction.average_power_w[0] == pytest.approx(
            prediction.energy_j[0] / prediction.step_time_s[0] / case.cluster.world_size
        )


@settings(max_examples=200, deadline=None)
@given(cases())
@example(SLOWEST_CHANGES)
def test_a_lower_clock_never_makes_compute_or_the_step_faster(case: Case) -> None:
    clocks = np.sort(np.array(case.cluster.gpu.clocks_mhz, float))
    x = replace(case.x[np.zeros(len(clocks), np.intp)], frequency_mhz=clocks)
    at_clocks = StepModel(case.job, case.cluster, x, DEFAULT.coefficients).at(clocks)
    # Not the breakdown's compute: it is the slowest stage's, and which stage is slowest depends on the clock.
    for values in (at_clocks.mean_compute_s, at_clocks.total_s, predict(case.job, case.cluster, x).step_time_s):
        assert np.all(np.diff(values) <= 1e-12 * values.max())


@settings(max_examples=100, deadline=None)
@given(cases())
@example(FEW_MICROBATCHES)
def test_the_binding_stage_is_the_fullest_of_the_memory_picture(case: Case) -> None:
    prediction, x = predict(case.job, case.cluster, case.x), case.x
    layout = Layout(int(x.dp[0]), int(x.tp[0]), int(x.pp[0]), int(x.microbatch[0]))
    recompute = tuple(type(case.job.recompute))[int(x.recompute[0])]
    picture = stage_memory(case.job, layout, int(x.zero_stage[0]), recompute, DEFAULT.coefficients)
    fullest = max(stage.total_gib for stage in picture)
    assert picture[prediction.binding_stage[0]].total_gib == pytest.approx(fullest)
    assert prediction.peak_memory_gib[0] == pytest.approx(fullest)
    assert sum(stage.layers for stage in picture) == case.job.model.layers


@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 14, 15])
def test_how_many_are_predicted_at_once_changes_nothing(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = configurations(*all_layouts()[:n])
    whole = predict(JOB, CLUSTER, x)
    monkeypatch.setattr(predict_module, "_CHUNK", 7)
    pieces = predict(JOB, CLUSTER, x)
    assert len(whole.step_time_s) == n
    for field in fields(Prediction):
        if field.name != "breakdown":
            np.testing.assert_allclose(getattr(pieces, field.name), getattr(whole, field.name), rtol=1e-12)
    for part, values in whole.breakdown.items():
        np.testing.assert_allclose(pieces.breakdown[part], values, rtol=1e-12)


def test_a_run_fits_only_where_the_board_has_room_beside_the_drivers_context() -> None:
    x = configurations(*all_layouts())
    prediction = predict(JOB, CLUSTER, x)
    board = CLUSTER.gpu.memory_gib
    assert prediction.fits.any()
    assert np.all(prediction.peak_memory_gib[prediction.fits] < board - 1.5)
    assert not prediction.fits[prediction.peak_memory_gib > board - 1.5].any()
    roomy = replace(CLUSTER, gpu=replace(CLUSTER.gpu, memory_gib=1e6))
    assert predict(JOB, roomy, x).fits.all()


def test_a_7b_job_on_32_h100_is_predicted_as_fast_as_people_report() -> None:
    prediction = predict(JOB, CLUSTER, changed(configurations(*all_layouts()), recompute=0))
    best_s = prediction.step_time_s[prediction.fits].min()
    flops = 6 * JOB.model.parameters + 6 * JOB.model.layers * JOB.model.hidden * JOB.sequence_length
    utilisation = flops * JOB.tokens_per_step / best_s / 32 / 989e12
    assert 0.3 < utilisation < 0.6
    power_w = prediction.average_power_w[prediction.fits]
    assert np.all((power_w > 100) & (power_w < 1.1 * CLUSTER.gpu.power_limit_w))
