"""The space of a study: every configuration worth asking for, enumerated before the first trial."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest

from tuner.errors import InvalidInput
from tuner.hardware import Cluster, GpuSpec
from tuner.job import TrainingJob
from tuner.layout import Configuration, Layout, Refusal, enumerate_layouts
from tuner.spec import FrequencyRange, ReplayRunnerSection, SpaceSection, StudySpec
from tuner.table import TableRow, parse_table

AUTO_CLOCKS = 20
# Below about half the boost clock the voltage has long been flat, so that slower only means longer (Kareus, Perseus).
AUTO_LOWEST_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What a study may measure.

    Args:
        job: The training job.
        cluster: The cluster.
        configurations: All valid configurations, layout by layout, each from the default clock downwards.
        refusals: Layouts left out, with reasons.
        baseline: The configuration of the first trial.
        has_energy: Whether measurements will have an energy; without it the step time is the only objective.
    """

    job: TrainingJob
    cluster: Cluster
    configurations: tuple[Configuration, ...]
    refusals: tuple[Refusal, ...]
    baseline: Configuration
    has_energy: bool

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The valid layouts, in order."""
        return tuple(dict.fromkeys(c.layout for c in self.configurations))


def build_space(spec: StudySpec) -> Space:
    """Enumerate the space of a study.

    Raises:
        InvalidInput: The study cannot be run as written: no layout is valid, a clock is not supported, the baseline is
            not one of the layouts, or a table does not fit the cluster.
    """
    job, cluster = spec.training_job(), spec.hardware()
    has_energy = True
    if isinstance(spec.runner, ReplayRunnerSection):
        if spec.space != SpaceSection():
            raise InvalidInput.of("space", "given", "must be left out with a replay table, whose rows are the space")
        rows = parse_table(spec.runner.csv)
        _check_table(rows, job, cluster)
        configurations = _sorted(row.configuration for row in rows)
        refusals: tuple[Refusal, ...] = ()
        has_energy = any(row.energy_j is not None for row in rows)
    else:
        layouts, refusals = space_layouts(spec.space, job, cluster)
        clocks = space_clocks(spec.space.frequency_mhz, cluster.gpu)
        configurations = tuple(Configuration(layout, clock) for layout in layouts for clock in clocks)
    return Space(
        job=job,
        cluster=cluster,
        configurations=configurations,
        refusals=refusals,
        baseline=_baseline(spec, job, cluster, configurations, refusals),
        has_energy=has_energy,
    )


def space_layouts(
    section: SpaceSection, job: TrainingJob, cluster: Cluster
) -> tuple[tuple[Layout, ...], tuple[Refusal, ...]]:
    """Valid layouts of a space, sorted, and the refused ones with reasons.

    Args:
        section: The axes and rules.
        job: The training job.
        cluster: The cluster.

    Raises:
        InvalidInput: No layout is valid.
    """
    layouts, refusals = enumerate_layouts(job, cluster, section.axes(), section.rules())
    if not layouts:
        raise InvalidInput.of("space", "no valid layout", _why_none(refusals))
    return layouts, refusals


def space_clocks(axis: str | Sequence[int] | FrequencyRange, gpu: GpuSpec) -> tuple[int | None, ...]:
    """Clocks of the frequency axis, the default (``None``) first, then descending.

    The default is always one of them: the baseline runs at it. ``auto`` takes about twenty clocks spread evenly from
    half the boost clock upwards; the boost clock itself is the default already.

    Args:
        axis: ``auto``, a list, or a range.
        gpu: The GPU whose clocks they must be.

    Raises:
        InvalidInput: A clock that the GPU does not support, with the nearest that it does.
    """
    supported = gpu.clocks_mhz
    if axis == "auto":
        lowest = AUTO_LOWEST_SHARE * gpu.max_clock_mhz
        useful = [clock for clock in supported if lowest <= clock < gpu.max_clock_mhz]
        stride = max(1, math.ceil(len(useful) / AUTO_CLOCKS))
        return (None, *useful[stride - 1 :: stride])
    if isinstance(axis, FrequencyRange):
        if axis.min > axis.max:
            raise InvalidInput.of("space.frequency_mhz.min", axis.min, f"must not exceed max = {axis.max}")
        axis = range(axis.min, axis.max + 1, axis.step)
    assert not isinstance(axis, str)
    for clock in axis:
        if clock not in supported:
            nearest = sorted(nsmallest(2, supported, key=partial(_distance, clock)))
            raise InvalidInput.of(
                "space.frequency_mhz",
                clock,
                f"is not a clock of {gpu.name} ({gpu.min_clock_mhz} to {gpu.max_clock_mhz} MHz in steps of "
                f"{gpu.clock_step_mhz}); the nearest are {' and '.join(map(str, nearest))}",
            )
    return (None, *sorted(set(axis), reverse=True))


def _distance(first: int, second: int) -> int:
    return abs(first - second)


def _sorted(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Layout by layout, the default clock first, then descending."""
    return tuple(sorted(configurations, key=lambda c: (c.layout, -(c.frequency_mhz or math.inf))))


def _check_table(rows: Sequence[TableRow], job: TrainingJob, cluster: Cluster) -> None:
    for row in rows:
        layout = row.configuration.layout
        if layout.world_size != cluster.world_size:
            raise InvalidInput.of(
                "runner.csv",
                str(row.configuration),
                f"takes dp * tp * pp = {layout.world_size} GPUs, but the cluster has {cluster.world_size}",
            )
        if job.global_batch_size % (layout.dp * layout.microbatch):
            raise InvalidInput.of(
                "job.global_batch_size",
                job.global_batch_size,
                f"must be divisible by dp * microbatch = {layout.dp * layout.microbatch} of the table's {layout}",
            )


def _why_none(refusals: Sequence[Refusal]) -> str:
    if not refusals:
        return "the axes hold no layout for these GPUs"
    reasons = Counter(refusal.reason for refusal in refusals)
    shown = "; ".join(reason for reason, _ in reasons.most_common(3))
    return f"all {len(refusals)} candidates are refused, for example: {shown}"


def _baseline(
    spec: StudySpec,
    job: TrainingJob,
    cluster: Cluster,
    configurations: Sequence[Configuration],
    refusals: Sequence[Refusal],
) -> Configuration:
    if spec.baseline is None:
        layout = conventional_layout(job, cluster, tuple(dict.fromkeys(c.layout for c in configurations)))
    else:
        layout = Layout(**spec.baseline.model_dump())
    # The first configuration of a layout is at the default clock, or at the highest where a table has no default.
    found = next((c for c in configurations if c.layout == layout), None)
    if found is None:
        raise InvalidInput.of("baseline", str(layout), _why_not(layout, cluster, refusals))
    return found


def _why_not(layout: Layout, cluster: Cluster, refusals: Sequence[Refusal]) -> str:
    if layout.world_size != cluster.world_size:
        return f"takes dp * tp * pp = {layout.world_size} GPUs, but the cluster has {cluster.world_size}"
    for refusal in refusals:
        same_degrees = (refusal.tp, refusal.pp) == (layout.tp, layout.pp)
        if same_degrees and refusal.microbatch in (None, layout.microbatch):
            return refusal.reason
    return "must be one of the layouts of the space"


def conventional_layout(job: TrainingJob, cluster: Cluster, layouts: Sequence[Layout]) -> Layout:
    """The layout that common practice would start with: as little model parallelism as the weights allow.

    The smallest tp * pp whose weights, gradients and optimizer state fill at most 60 % of the memory, tp before pp, one
    sequence a microbatch; where none does, the one that shards most. The state is 16 bytes a parameter with Adam in
    mixed precision (Rajbhandari et al. 2020), of which ZeRO stages 1, 2, 3 spread 12, 14, 16 over dp.

    Args:
        job: The training job.
        cluster: The cluster.
        layouts: The valid layouts, at least one.
    """

    def state_gib(layout: Layout) -> float:
        optimizer = 12 / layout.dp if job.zero_stage >= 1 else 12
        gradients = 2 / layout.dp if job.zero_stage >= 2 else 2
        weights = 2 / layout.dp if job.zero_stage == 3 else 2
        return job.model.parameters / (layout.tp * layout.pp) * (weights + gradients + optimizer) / 2**30

    fitting = [layout for layout in layouts if state_gib(layout) <= 0.6 * cluster.gpu.memory_gib]
    if fitting:
        return min(fitting, key=lambda c: (c.tp * c.pp, c.pp, c.microbatch))
    return min(layouts, key=lambda c: (state_gib(c), c.pp, c.microbatch))
