from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from physics_cases import JOB, MODEL, Case, cases, changed, configurations

from tuner.errors import InvalidInput
from tuner.job import PipelineSchedule, Recompute
from tuner.layout import Layout
from tuner.physics.coefficients import Coefficients
from tuner.physics.memory import GIB, peak_memory, stage_memory

C = Coefficients()


@settings(max_examples=200, deadline=None)
@given(cases())
def test_a_larger_microbatch_never_needs_less_memory(case: Case) -> None:
    job, x = replace(case.job, global_batch_size=case.job.global_batch_size * 6), case.x
    needs = [peak_memory(job, changed(x, microbatch=x.microbatch[0] * factor), C).bytes[0] for factor in (1, 2, 3, 6)]
    assert needs[0] <= needs[1] <= needs[3]
    assert needs[0] <= needs[2] <= needs[3]
    if case.x.pp[0] == 1:
        assert needs[0] < needs[3]


@settings(max_examples=200, deadline=None)
@given(cases())
def test_more_recomputation_sharding_and_splitting_never_need_more(case: Case) -> None:
    job, x = case.job, case.x
    by_recompute = [peak_memory(job, changed(x, recompute=each), C).bytes[0] for each in range(3)]
    assert by_recompute == sorted(by_recompute, reverse=True)
    by_zero = [peak_memory(job, changed(x, zero_stage=each), C).bytes[0] for each in range(3)]
    assert by_zero == sorted(by_zero, reverse=True)
    whole = peak_memory(replace(job, sequence_parallel=False), x, C).bytes[0]
    assert peak_memory(replace(job, sequence_parallel=False), changed(x, dp=x.dp * 2), C).bytes[0] <= whole
    one_f_one_b, gpipe = (replace(job, pipeline_schedule=each) for each in PipelineSchedule)
    assert peak_memory(gpipe, x, C).bytes[0] >= peak_memory(one_f_one_b, x, C).bytes[0]


@settings(max_examples=200, deadline=None)
@given(cases())
def test_more_tensor_parallelism_never_raises_the_memory_of_weights(case: Case) -> None:
    x = case.x
    layout = Layout(int(x.dp[0]), int(x.tp[0]), int(x.pp[0]), int(x.microbatch[0]))
    for zero_stage in range(4):
        less, more = (
            stage_memory(case.job, replace(layout, tp=layout.tp * factor), zero_stage, Recompute.none, C)
            for factor in (1, 2)
        )
        for before, after in zip(less, more, strict=True):
            assert after.weights_gib <= before.weights_gib
            assert after.gradients_gib <= before.gradients_gib
            assert after.optimizer_gib <= before.optimizer_gib


def test_each_stage_of_zero_shards_what_it_is_named_for() -> None:
    layout = Layout(8, 1, 1, 1)
    whole, optimizer, gradients, weights = (
        stage_memory(JOB, layout, stage, Recompute.none, C)[0] for stage in range(4)
    )
    assert whole.weights_gib == pytest.approx(2 * MODEL.parameters / GIB)
    assert whole.gradients_gib == pytest.approx(6 * MODEL.parameters / GIB)
    assert whole.optimizer_gib == pytest.approx(12 * MODEL.parameters / GIB)
    assert optimizer.optimizer_gib == pytest.approx(whole.optimizer_gib / 8)
    assert optimizer.gradients_gib == whole.gradients_gib
    assert gradients.gradients_gib == pytest.approx(whole.gradients_gib / 8)
    assert gradients.weights_gib == whole.weights_gib
    two_layers_gib = 2 * 2 * MODEL.layer_parameters * 7 / 8 / GIB
    assert weights.weights_gib == pytest.approx(whole.weights_gib / 8 + two_layers_gib)


def test_one_f_one_b_holds_fewer_microbatches_on_every_further_stage_and_gpipe_all() -> None:
    layout = Layout(1, 1, 4, 1)
    held = [stage.in_flight for stage in stage_memory(JOB, layout, 1, Recompute.none, C)]
    assert held == [4, 3, 2, 1]
    gpipe = replace(JOB, pipeline_schedule=PipelineSchedule.gpipe)
    assert {stage.in_flight for stage in stage_memory(gpipe, layout, 1, Recompute.none, C)} == {128}


def test_only_the_last_stage_holds_logits_and_the_outer_ones_the_embeddings() -> None:
    picture = stage_memory(JOB, Layout(1, 1, 4, 1), 0, Recompute.none, C)
    assert [stage.logits_gib > 0 for stage in picture] == [False, False, False, True]
    weights = [stage.weights_gib * GIB / 2 - stage.layers * MODEL.layer_parameters for stage in picture]
    assert weights == pytest.approx([MODEL.embedding_parameters, 0, 0, MODEL.vocab * MODEL.hidden], abs=1e4)


def test_a_layer_without_recomputation_keeps_somewhat_more_than_the_34_bytes_of_korthikanti() -> None:
    # Their 34 bytes a token and channel are GPT's, with dropout masks of one byte; a gated MLP keeps a third
    # matrix of 11,008 channels, 2 * 11008 / 4096 = 5.4 bytes, and rotary attention both turned operands.
    model = replace(MODEL, kv_heads=32, ffn=11008)
    deep, shallow = (
        peak_memory(replace(JOB, model=replace(model, layers=n)), configurations(Layout(32, 1, 1, 1)), C).bytes[0]
        for n in (32, 16)
    )
    states = 16 * model.layer_parameters * (2 + 6 + 12 / 32)
    per_token_and_channel = (deep - shallow - states) / 16 / JOB.sequence_length / model.hidden
    assert 34 < per_token_and_channel / C.activation_scale < 46


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pp: 64: must not exceed the 32 layers"):
        stage_memory(JOB, Layout(1, 1, 64, 1), 1, Recompute.none, C)


def test_sequence_parallelism_splits_what_tensor_parallelism_leaves_whole() -> None:
    x = configurations(Layout(1, 8, 4, 1))
    with_it, without = (peak_memory(replace(JOB, sequence_parallel=each), x, C).bytes[0] for each in (True, False))
    assert with_it < 0.7 * without
    alone = configurations(Layout(32, 1, 1, 1))
    assert np.array_equal(
        peak_memory(JOB, alone, C).bytes, peak_memory(replace(JOB, sequence_parallel=False), alone, C).bytes
    )
