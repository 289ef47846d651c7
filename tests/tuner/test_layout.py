from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.hardware import Cluster, find_gpu
from tuner.job import ModelShape, TrainingJob
from tuner.layout import (
    Configuration,
    Layout,
    LayoutAxes,
    LayoutRules,
    Refusal,
    divisors,
    enumerate_layouts,
    powers_of_two,
)

MODEL = ModelShape(layers=28, hidden=3584, heads=28, kv_heads=4, ffn=18944, vocab=152064)
NO_RULES = LayoutRules(
    tp_within_node=False, microbatches_fill_pipeline=False, kv_heads_divisible=False, pad_vocabulary_to=1
)


def job(model: ModelShape = MODEL, batch: int = 64) -> TrainingJob:
    return TrainingJob(model=model, sequence_length=2048, global_batch_size=batch)


def cluster(nodes: int, gpus_per_node: int) -> Cluster:
    gpu = find_gpu("A100-SXM4-80GB")
    return Cluster(
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        intra_node_gb_s=gpu.link_gb_s,
        inter_node_gb_s=gpu.network_gb_s,
    )


def only(tp: int, pp: int, microbatch: int, *, a_job: TrainingJob, on: Cluster, rules: LayoutRules) -> Layout | Refusal:
    """The one answer to one point."""
    layouts, refusals = enumerate_layouts(a_job, on, LayoutAxes(tp=(tp,), pp=(pp,), microbatch=(microbatch,)), rules)
    answers: list[Layout | Refusal] = [*layouts, *refusals]
    assert len(answers) == 1
    return answers[0]


MANY_HEADS = replace(MODEL, heads=16, kv_heads=16, head_dim=224)
ODD = ModelShape(layers=4, hidden=96, heads=3, kv_heads=3, ffn=96, vocab=100)
REFUSED = {
    "tp * pp = 3 does not divide the 8 GPUs": (3, 1, 1, job(), cluster(1, 8)),
    "tp = 16 does not fit in a node of 8 GPUs (rule tp_within_node)": (16, 1, 1, job(MANY_HEADS), cluster(2, 8)),
    "tp = 4 does not divide the 6 GPUs of a node (rule tp_within_node)": (4, 1, 1, job(), cluster(2, 6)),
    "tp = 8 does not divide 28 heads; valid: 1, 2, 4, 7, 14, 28": (8, 1, 1, job(), cluster(1, 8)),
    "tp = 7 does not divide 4 kv heads (rule kv_heads_divisible); valid: 1, 2, 4": (7, 1, 1, job(), cluster(1, 7)),
    "tp = 2 does not divide ffn = 99": (2, 1, 1, job(replace(MODEL, ffn=99)), cluster(1, 2)),
    "tp = 3 does not divide the vocabulary of 100, padded to 128": (3, 1, 1, job(ODD), cluster(1, 3)),
    "pp = 8 does not divide 28 layers; valid: 1, 2, 4, 7, 14, 28": (1, 8, 1, job(), cluster(1, 8)),
    "dp = 8 does not divide the global batch of 12": (1, 1, 1, job(batch=12), cluster(1, 8)),
    "microbatch = 16 does not divide the 8 sequences of a replica (dp = 8)": (1, 1, 16, job(), cluster(1, 8)),
    "2 microbatches are fewer than pp = 4 stages (microbatch = 16, dp = 2, rule microbatches_fill_pipeline)": (
        1,
        4,
        16,
        job(),
        cluster(1, 8),
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_each_rule_refuses_with_one_clause_that_names_the_numbers(reason: str) -> None:
    tp, pp, microbatch, a_job, on = REFUSED[reason]
    refusal = only(tp, pp, microbatch, a_job=a_job, on=on, rules=LayoutRules())
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert (refusal.tp, refusal.pp) == (tp, pp)


def test_a_refusal_names_what_it_rules_out() -> None:
    on = cluster(1, 8)
    by_world = only(3, 1, 1, a_job=job(), on=on, rules=LayoutRules())
    by_degrees = only(8, 1, 1, a_job=job(), on=on, rules=LayoutRules())
    by_batch = only(1, 1, 16, a_job=job(), on=on, rules=LayoutRules())
    assert [(r.dp, r.microbatch) for r in (by_world, by_degrees, by_batch)] == [(None, None), (1, None), (8, 16)]


@pytest.mark.parametrize(
    ("switched_off", "tp", "pp", "microbatch", "a_job", "on"),
    [
        (LayoutRules(tp_within_node=False), 4, 1, 1, job(batch=6), cluster(2, 6)),
        (LayoutRules(kv_heads_divisible=False), 7, 1, 1, job(replace(MODEL, ffn=7, vocab=896)), cluster(1, 7)),
        (LayoutRules(microbatches_fill_pipeline=False), 1, 4, 16, job(), cluster(1, 8)),
        (LayoutRules(pad_vocabulary_to=3), 3, 1, 1, job(ODD), cluster(1, 3)),
    ],
)
def test_a_rule_that_is_switched_off_refuses_nothing(
    switched_off: LayoutRules, tp: int, pp: int, microbatch: int, a_job: TrainingJob, on: Cluster
) -> None:
    assert isinstance(only(tp, pp, microbatch, a_job=a_job, on=on, rules=LayoutRules()), Refusal)
    assert isinstance(only(tp, pp, microbatch, a_job=a_job, on=on, rules=switched_off), Layout)


def test_automatic_axes_hold_divisors_and_powers_of_two() -> None:
    layouts, refusals = enumerate_layouts(job(), cluster(1, 8), LayoutAxes(), LayoutRules())
    assert {layout.tp for layout in layouts} == {1, 2, 4}
    assert {layout.pp for layout in layouts} == {1, 2, 4}
    assert {layout.microbatch for layout in layouts} == {1, 2, 4, 8, 16, 32}
    assert not [refusal for refusal in refusals if refusal.dp is None], "no excuse for what was never asked for"


def test_an_axis_of_no_values_yields_nothing_rather_than_everything() -> None:
    assert enumerate_layouts(job(), cluster(1, 8), LayoutAxes(tp=()), LayoutRules()) == ((), ())


def test_layouts_come_sorted_and_nothing_comes_twice() -> None:
    axes = LayoutAxes(tp=(4, 1, 2, 1, 8, 8), pp=(2, 1), microbatch=(4, 1, 4))
    layouts, refusals = enumerate_layouts(job(), cluster(1, 8), axes, LayoutRules())
    assert list(layouts) == sorted(set(layouts))
    assert len(set(refusals)) == len(refusals) > 0


def test_the_batch_is_shared_out_over_replicas_and_microbatches() -> None:
    assert Layout(dp=4, tp=2, pp=2, microbatch=2).microbatches(64) == 8
    assert Layout(dp=4, tp=2, pp=2, microbatch=2).world_size == 16


def test_the_string_of_a_layout_and_of_a_configuration_is_the_key_that_the_store_keeps() -> None:
    layout = Layout(dp=16, tp=2, pp=1, microbatch=4)
    assert str(layout) == "dp16-tp2-pp1-mb4"
    assert str(Configuration(layout, 1410)) == "dp16-tp2-pp1-mb4@1410MHz"
    assert str(Configuration(layout, None)) == "dp16-tp2-pp1-mb4@default"


@given(st.lists(st.builds(Layout, *[st.integers(1, 12)] * 4), unique=True), st.sets(st.integers(100, 2000)))
def test_no_two_configurations_share_a_string(layouts: list[Layout], clocks: set[int]) -> None:
    configurations = [Configuration(layout, clock) for layout in layouts for clock in (None, *clocks)]
    assert len({str(configuration) for configuration in configurations}) == len(configurations)


@given(st.integers(1, 3000))
def test_divisors_are_exactly_the_numbers_that_divide(number: int) -> None:
    assert list(divisors(number)) == [d for d in range(1, number + 1) if number % d == 0]


@pytest.mark.parametrize(("limit", "powers"), [(0, (1,)), (1, (1,)), (7, (1, 2, 4)), (8, (1, 2, 4, 8))])
def test_powers_of_two_stop_at_the_limit(limit: int, powers: tuple[int, ...]) -> None:
    assert powers_of_two(limit) == powers


@st.composite
def problems(draw: st.DrawFn) -> tuple[TrainingJob, Cluster, LayoutRules]:
    kv_heads = draw(st.integers(1, 4))
    model = ModelShape(
        layers=draw(st.integers(1, 8)),
        hidden=64,
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        ffn=draw(st.integers(1, 24)),
        vocab=draw(st.integers(1, 50)),
        head_dim=8,
    )
    rules = LayoutRules(
        tp_within_node=draw(st.booleans()),
        microbatches_fill_pipeline=draw(st.booleans()),
        kv_heads_divisible=draw(st.booleans()),
        pad_vocabulary_to=draw(st.sampled_from([1, 2, 12])),
    )
    return (
        job(model, draw(st.integers(1, 12))),
        cluster(draw(st.integers(1, 2)), draw(st.integers(1, 6))),
        rules,
    )


def brute_force(a_job: TrainingJob, on: Cluster, rules: LayoutRules) -> set[Layout]:
    """Every layout that satisfies the rules, found by trying all integers."""
    world = on.nodes * on.gpus_per_node
    batch, model = a_job.global_batch_size, a_job.model

    def splits(total: int, parts: int) -> bool:
        return total // parts * parts == total

    vocab = next(size for size in range(model.vocab, 10**6) if splits(size, rules.pad_vocabulary_to))
    nodes = [set(range(node * on.gpus_per_node, (node + 1) * on.gpus_per_node)) for node in range(on.nodes)]
    found = set()
    for dp, tp, pp in product(range(1, world + 1), repeat=3):
        if dp * tp * pp != world:
            continue
        groups = [set(range(first, first + tp)) for first in range(0, world, tp)]
        within_node = all(any(group <= node for node in nodes) for group in groups)
        if rules.tp_within_node and not within_node:
            continue
        shared = [model.heads, model.ffn, vocab, *([model.kv_heads] if rules.kv_heads_divisible else [])]
        if not all(splits(size, tp) for size in shared) or not splits(model.layers, pp):
            continue
        for microbatch, count in product(range(1, batch + 1), repeat=2):
            if dp * microbatch * count == batch and (count >= pp or not rules.microbatches_fill_pipeline):
                found.add(Layout(dp, tp, pp, microbatch))
    return found


@settings(max_examples=60)
@given(problems())
def test_explicit_axes_over_all_integers_yield_exactly_what_brute_force_finds(
    problem: tuple[TrainingJob, Cluster, LayoutRules],
) -> None:
    a_job, on, rules = problem
    degrees = tuple(range(1, on.world_size + 1))
    axes = LayoutAxes(tp=degrees, pp=degrees, microbatch=tuple(range(1, a_job.global_batch_size + 1)))
    layouts, _ = enumerate_layouts(a_job, on, axes, rules)
    assert set(layouts) == brute_force(a_job, on, rules)
    assert all(layout.dp * layout.tp * layout.pp == on.world_size for layout in layouts)


@settings(max_examples=60)
@given(problems())
def test_automatic_axes_miss_no_layout_whose_microbatch_is_a_power_of_two(
    problem: tuple[TrainingJob, Cluster, LayoutRules],
) -> None:
    layouts, _ = enumerate_layouts(*problem[:2], LayoutAxes(), problem[2])
    assert set(layouts) == {found for found in brute_force(*problem) if found.microbatch.bit_count() == 1}


@given(
    problems(),
    st.sets(st.integers(1, 14), min_size=1, max_size=5),
    st.sets(st.integers(1, 14), min_size=1, max_size=5),
    st.sets(st.integers(1, 14), min_size=1, max_size=5),
)
def test_every_point_of_explicit_axes_is_either_valid_or_refused_with_a_reason(
    problem: tuple[TrainingJob, Cluster, LayoutRules], tp: set[int], pp: set[int], microbatch: set[int]
) -> None:
    a_job, on, rules = problem
    axes = LayoutAxes(tp=tuple(tp), pp=tuple(pp), microbatch=tuple(microbatch))
    layouts, refusals = enumerate_layouts(a_job, on, axes, rules)
    valid = [(layout.tp, layout.pp, layout.microbatch) for layout in layouts]
    refused = [
        (refusal.tp, refusal.pp, each)
        for refusal in refusals
        for each in (microbatch if refusal.microbatch is None else (refusal.microbatch,))
    ]
    assert sorted(valid + refused) == sorted(product(tp, pp, microbatch))
    assert all(refusal.reason for refusal in refusals)
    assert all(refusal.dp is None or refusal.dp * refusal.tp * refusal.pp == on.world_size for refusal in refusals)


def test_switching_every_rule_off_leaves_plain_divisibility() -> None:
    layouts, refusals = enumerate_layouts(job(), cluster(2, 4), LayoutAxes(tp=(7, 8, 4), pp=(1, 2)), NO_RULES)
    assert {(layout.tp, layout.pp) for layout in layouts} == {(4, 1), (4, 2)}
    assert {refusal.tp for refusal in refusals} == {7, 8}
