"""Parallel layouts: which ones a job can take on a cluster, and why the others cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.hardware import Cluster
from tuner.job import TrainingJob


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """How one training step is spread over the GPUs.

    Args:
        dp: Data-parallel replicas.
        tp: Tensor-parallel degree.
        pp: Pipeline stages.
        microbatch: Sequences in one forward pass of one replica.
    """

    dp: int
    tp: int
    pp: int
    microbatch: int

    @property
    def world_size(self) -> int:
        """GPUs that one launch of this layout takes."""
        return self.dp * self.tp * self.pp

    def microbatches(self, global_batch_size: int) -> int:
        """Forward passes of one replica in an optimizer step."""
        return global_batch_size // (self.dp * self.microbatch)

    def __str__(self) -> str:
        return f"dp{self.dp}-tp{self.tp}-pp{self.pp}-mb{self.microbatch}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A layout and the SM clock it runs at.

    Args:
        layout: The parallel layout.
        frequency_mhz: SM clock; ``None`` leaves the GPU at its default.
    """

    layout: Layout
    frequency_mhz: int | None

    def __str__(self) -> str:
        """The configuration's key: unique within a study, and stable over versions because the store keeps it."""
        clock = "default" if self.frequency_mhz is None else f"{self.frequency_mhz}MHz"
        return f"{self.layout}@{clock}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRules:
    """Rules that not every trainer has.

    Args:
        tp_within_node: Tensor-parallel groups stay inside one node.
        microbatches_fill_pipeline: A replica runs at least as many microbatches as there are stages.
        kv_heads_divisible: Key and value heads divide over tp, rather than being copied.
        pad_vocabulary_to: The vocabulary is padded to a multiple of this before tp divides it; 1 for no padding.
    """

    tp_within_node: bool = True
    microbatches_fill_pipeline: bool = True
    kv_heads_divisible: bool = True
    pad_vocabulary_to: int = 128


@dataclass(frozen=True, slots=True)
class Refusal:
    """A layout that was considered and left out.

    Args:
        dp: ``None`` where tp * pp does not divide the number of GPUs, so that no dp exists.
        tp: Tensor-parallel degree.
        pp: Pipeline stages.
        microbatch: ``None`` where the degrees alone rule every microbatch out.
        reason: One clause that names the numbers.
    """

    dp: int | None
    tp: int
    pp: int
    microbatch: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutAxes:
    """Values to consider on each axis; ``None`` means every sensible one."""

    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    microbatch: tuple[int, ...] | None = None


def enumerate_layouts(
    job: TrainingJob, cluster: Cluster, axes: LayoutAxes, rules: LayoutRules
) -> tuple[tuple[Layout, ...], tuple[Refusal, ...]]:
    """List every layout of the axes, sorted, and every refusal with its reason.

    ``auto`` axes hold the divisors of the world size (tp, pp) and the powers of two up to the largest batch of one
    replica (microbatch).

    Args:
        job: The training job.
        cluster: The cluster; a launch takes all of its GPUs.
        axes: Values to consider.
        rules: Rules to apply beyond divisibility.
    """
    layouts: list[Layout] = []
    refusals: list[Refusal] = []
    for tp in divisors(cluster.world_size) if axes.tp is None else axes.tp:
        for pp in divisors(cluster.world_size) if axes.pp is None else axes.pp:
            if cluster.world_size % (tp * pp):
                # On automatic axes a product that does not fit is not a candidate, so it needs no excuse.
                if axes.tp is not None or axes.pp is not None:
                    reason = f"tp * pp = {tp * pp} does not divide the {cluster.world_size} GPUs"
                    refusals.append(Refusal(None, tp, pp, None, reason))
                continue
            dp = cluster.world_size // (tp * pp)
            problem = next(_degree_problems(job, cluster, rules, tp, pp, dp), None)
            if problem is not None:
                refusals.append(Refusal(dp, tp, pp, None, problem))
                continue
            automatic = powers_of_two(job.global_batch_size // dp)
            for microbatch in automatic if axes.microbatch is None else axes.microbatch:
                problem = _batch_problem(job, rules, pp, dp, microbatch)
                if problem is None:
                    layouts.append(Layout(dp, tp, pp, microbatch))
                else:
                    refusals.append(Refusal(dp, tp, pp, microbatch, problem))
    return tuple(sorted(set(layouts))), tuple(dict.fromkeys(refusals))


def _degree_problems(
    job: TrainingJob, cluster: Cluster, rules: LayoutRules, tp: int, pp: int, dp: int
) -> Iterator[str]:
    model = job.model
    if rules.tp_within_node and tp > cluster.gpus_per_node:
        yield f"tp = {tp} does not fit in a node of {cluster.gpus_per_node} GPUs (rule tp_within_node)"
    if rules.tp_within_node and cluster.gpus_per_node % tp:
        yield f"tp = {tp} does not divide the {cluster.gpus_per_node} GPUs of a node (rule tp_within_node)"
    if model.heads % tp:
        yield f"tp = {tp} does not divide {model.heads} heads; valid: {_listed(divisors(model.heads))}"
    if rules.kv_heads_divisible and model.kv_heads % tp:
        valid = _listed(divisors(model.kv_heads))
        yield f"tp = {tp} does not divide {model.kv_heads} kv heads (rule kv_heads_divisible); valid: {valid}"
    if model.ffn % tp:
        yield f"tp = {tp} does not divide ffn = {model.ffn}"
    padded = -(-model.vocab // rules.pad_vocabulary_to) * rules.pad_vocabulary_to
    if padded % tp:
        yield f"tp = {tp} does not divide the vocabulary of {model.vocab}, padded to {padded}"
    if model.layers % pp:
        yield f"pp = {pp} does not divide {model.layers} layers; valid: {_listed(divisors(model.layers))}"
    if job.global_batch_size % dp:
        yield f"dp = {dp} does not divide the global batch of {job.global_batch_size}"


def _batch_problem(job: TrainingJob, rules: LayoutRules, pp: int, dp: int, microbatch: int) -> str | None:
    per_replica = job.global_batch_size // dp
    if per_replica % microbatch:
        return f"microbatch = {microbatch} does not divide the {per_replica} sequences of a replica (dp = {dp})"
    microbatches = per_replica // microbatch
    if rules.microbatches_fill_pipeline and microbatches < pp:
        return (
            f"{microbatches} microbatches are fewer than pp = {pp} stages "
            f"(microbatch = {microbatch}, dp = {dp}, rule microbatches_fill_pipeline)"
        )
    return None


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def powers_of_two(limit: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to ``limit``."""
    return tuple(1 << exponent for exponent in range(max(limit, 1).bit_length()))


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
