from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.job import ModelShape, PipelineSchedule, Precision, Recompute, TrainingJob
from tuner.layout import Layout
from workers.simulator.memory import GIB, peak_memory_gib, stage_parameters

MODEL = ModelShape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
JOB = TrainingJob(model=MODEL, sequence_length=4096, global_batch_size=128)


@pytest.mark.parametrize(("stage", "bytes_sharded"), [(1, 12), (2, 2)])
def test_each_stage_of_zero_saves_what_it_shards(stage: int, bytes_sharded: int) -> None:
    layout = Layout(16, 1, 1, 1)
    before = peak_memory_gib(replace(JOB, zero_stage=stage - 1), layout, 0.05)
    after = peak_memory_gib(replace(JOB, zero_stage=stage), layout, 0.05)
    assert before - after == pytest.approx(MODEL.parameters * bytes_sharded * 15 / 16 / GIB, abs=0.01)


def test_zero_3_saves_the_weights_but_keeps_two_blocks_whole() -> None:
    layout = Layout(16, 1, 1, 1)
    saved = peak_memory_gib(replace(JOB, zero_stage=2), layout, 0.0) - peak_memory_gib(
        replace(JOB, zero_stage=3), layout, 0.0
    )
    expected = MODEL.parameters * 2 * 15 / 16 - 2 * 2 * MODEL.layer_parameters
    assert saved == pytest.approx(expected / GIB, abs=0.01)


def test_a_llama_block_keeps_about_34_bytes_a_token_and_channel_as_korthikanti_counts() -> None:
    shallow, deep = (replace(JOB, model=replace(MODEL, layers=layers), zero_stage=0) for layers in (8, 16))
    layout = Layout(1, 1, 1, 1)
    grown = (peak_memory_gib(deep, layout, 0.0) - peak_memory_gib(shallow, layout, 0.0)) * GIB
    activations = grown - 8 * 16 * MODEL.layer_parameters
    assert 30 < activations / (8 * 4096 * 4096) < 34


def test_recomputing_more_needs_less_memory() -> None:
    needs = [peak_memory_gib(replace(JOB, recompute=r), Layout(16, 1, 1, 2), 0.05) for r in Recompute]
    assert needs == sorted(needs, reverse=True)
    assert needs[0] - needs[2] > 20


def test_pipelining_saves_weights_but_hardly_any_activations_of_the_first_stage() -> None:
    flat, deep = (peak_memory_gib(replace(JOB, zero_stage=0), Layout(1, 1, pp, 4), 0.0) for pp in (1, 4))
    weights_saved = 16 * (MODEL.parameters - stage_parameters(JOB, Layout(1, 1, 4, 4), 0)) / GIB
    logits = 4 * 4096 * 32000 * 10 / GIB
    assert flat - deep == pytest.approx(weights_saved + logits, abs=1.0)


def test_gpipe_holds_every_microbatch_where_there_is_a_pipeline() -> None:
    gpipe = replace(JOB, pipeline_schedule=PipelineSchedule.gpipe)
    alone, deep = Layout(16, 1, 1, 1), Layout(1, 1, 4, 1)
    assert peak_memory_gib(gpipe, alone, 0.0) == peak_memory_gib(JOB, alone, 0.0)
    assert peak_memory_gib(gpipe, deep, 0.0) > 5 * peak_memory_gib(JOB, deep, 0.0)


def test_without_sequence_parallelism_norms_and_residuals_are_kept_whole() -> None:
    layout = Layout(4, 4, 1, 2)
    whole = replace(JOB, sequence_parallel=False)
    more = (peak_memory_gib(whole, layout, 0.0) - peak_memory_gib(JOB, layout, 0.0)) * GIB
    tokens = 2 * JOB.sequence_length
    assert more == pytest.approx(MODEL.layers * tokens * 2 * 4 * MODEL.hidden * 3 / 4, rel=0.01)
    assert peak_memory_gib(whole, Layout(16, 1, 1, 2), 0.0) == peak_memory_gib(JOB, Layout(16, 1, 1, 2), 0.0)


def test_fp32_needs_more_than_bf16() -> None:
    layout = Layout(16, 1, 1, 1)
    assert peak_memory_gib(replace(JOB, precision=Precision.fp32), layout, 0.05) > peak_memory_gib(JOB, layout, 0.05)


def test_parameters_of_all_stages_and_ranks_add_up_to_the_model() -> None:
    layout = Layout(1, 4, 4, 1)
    total = 4 * sum(stage_parameters(JOB, layout, stage) for stage in range(4))
    assert total == pytest.approx(MODEL.parameters, rel=1e-6)


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    microbatch=st.sampled_from([1, 2, 4, 8, 16, 32]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(list(Recompute)),
)
def test_twice_the_microbatch_never_needs_less_memory(
    tp: int, pp: int, microbatch: int, zero: int, recompute: Recompute
) -> None:
    job = replace(JOB, zero_stage=zero, recompute=recompute)
    small, large = (peak_memory_gib(job, Layout(2, tp, pp, size), 0.03) for size in (microbatch, 2 * microbatch))
    assert large >= small
