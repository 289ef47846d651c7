"""The scores of all groups, drawn together into the figures that were asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.groups import Group
from benchmarks.memory import MemoryCounts
from benchmarks.scores import CALIBRATION_TRIALS, ClockScore, Score, pooled
from tuner.physics.configurations import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that was measured.

    Args:
        draws: How often the trials to calibrate on were drawn.
        scores: By table.
        clocks: Of the stage profiles.
        memory: Each group's counts, by table.
        speed_s: Time to predict a million configurations.
        calibration_s: Time of one calibration.
    """

    draws: int
    scores: dict[str, list[Score]]
    clocks: list[ClockScore]
    memory: dict[str, list[tuple[Group, MemoryCounts]]]
    speed_s: float
    calibration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a table that is reported by itself."""

    table: str
    name: str
    holds: Callable[[Group], bool]


NANOTRON_SMALL = Part(
    table="nanotron", name="nanotron H100, up to 64 GPUs", holds=lambda group: group.cluster.world_size <= 64
)
NANOTRON_LARGE = Part(
    table="nanotron", name="nanotron H100, over 64 GPUs", holds=lambda group: group.cluster.world_size > 64
)
VTRAIN_NODE = Part(table="vtrain", name="vTrain A100, one node", holds=lambda group: group.cluster.nodes == 1)
VTRAIN_NODES = Part(table="vtrain", name="vTrain A100, 8 nodes", holds=lambda group: group.cluster.nodes > 1)
MPT_NODE = Part(table="llm_foundry", name="MPT FSDP A100, one node", holds=lambda group: group.cluster.nodes == 1)
MPT_NODES = Part(table="llm_foundry", name="MPT FSDP A100, more nodes", holds=lambda group: group.cluster.nodes > 1)
PARTS = (NANOTRON_SMALL, NANOTRON_LARGE, VTRAIN_NODE, VTRAIN_NODES, MPT_NODE, MPT_NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures over several groups; nan where there is nothing to tell.

    Args:
        groups: Number of groups.
        rows: Number of measured configurations.
        tau: Median of Kendall's tau over the groups.
        regret: Median over the groups.
        regret_90: 90th percentile over the groups.
        error: Median error of step time over all rows, by the number of trials calibrated on, 0 for none.
        coverage: Share of rows within the 80 % band, likewise.
        memory_error: Median error of peak memory over all rows.
    """

    groups: int
    rows: int
    tau: float
    regret: float
    regret_90: float
    error: dict[int, float]
    coverage: dict[int, float]
    memory_error: float


def summary(scores: Sequence[Score]) -> Summary:
    """Draw the scores of several groups together."""
    errors = {0: pooled([each.errors for each in scores])}
    in_band = {0: pooled([each.in_band.astype(float) for each in scores])}
    for trials in CALIBRATION_TRIALS:
        errors[trials] = pooled([each.calibrated[trials].errors for each in scores])
        in_band[trials] = pooled([each.calibrated[trials].in_band.astype(float) for each in scores])
    regrets = [each.regret for each in scores]
    return Summary(
        groups=len(scores),
        rows=sum(len(each.group) for each in scores),
        tau=quantile([each.tau for each in scores], 0.5),
        regret=quantile(regrets, 0.5),
        regret_90=quantile(regrets, 0.9),
        error={trials: quantile(values, 0.5) for trials, values in errors.items()},
        coverage={trials: float(values.mean()) if len(values) else math.nan for trials, values in in_band.items()},
        memory_error=quantile(pooled([each.memory_errors for each in scores]), 0.5),
    )


def quantile(values: Sequence[float] | Floats, share: float) -> float:
    """Quantile of the values that are known; nan where none is."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    return float(np.quantile(known, share)) if len(known) else math.nan


def of_part(results: Results, part: Part, *, fitted: bool) -> list[Score]:
    """The scores of one part of a table, on one side of the split."""
    return [s for s in results.scores[part.table] if part.holds(s.group) and s.group.fitted == fitted]


def memory_counts(results: Results, table: str, *, fitted: bool) -> MemoryCounts:
    """What was predicted to fit, over one side of a table."""
    return sum((counts for group, counts in results.memory[table] if group.fitted == fitted), MemoryCounts())


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure beside what it is to reach; nan where no group stands behind it.

    Args:
        what: What is measured.
        bound: What is to be reached.
        fitted: On the groups that the defaults were fitted on.
        judged: On the groups that they were not.
        at_least: Whether larger is better.
        unit: ``%`` for shares, ``s`` for seconds, empty for plain numbers.
    """

    what: str
    bound: float
    fitted: float
    judged: float
    at_least: bool = False
    unit: str = "%"

    @property
    def reached(self) -> bool:
        """Whether the judged figure is good enough."""
        return self.judged >= self.bound if self.at_least else self.judged <= self.bound


def targets(results: Results) -> list[Target]:
    """Every figure that was asked for."""

    def nanotron(fitted: bool) -> Summary:
        return summary([each for each in results.scores["nanotron"] if each.group.fitted == fitted])

    def after_3(part: Part) -> Callable[[bool], float]:
        return lambda fitted: summary(of_part(results, part, fitted=fitted)).error[3]

    def counts(fitted: bool) -> MemoryCounts:
        return memory_counts(results, "nanotron", fitted=fitted)

    def clock(errors: Callable[[ClockScore], Floats]) -> Callable[[bool], float]:
        a100 = [each for each in results.clocks if each.group.cluster.gpu.name.startswith("A100")]
        return lambda fitted: quantile(pooled([errors(c) for c in a100 if c.group.fitted == fitted]), 0.5)

    regret, after = "nanotron: regret of the layout predicted to be fastest", "step time, median error after 3 trials"
    order = "nanotron: Kendall's tau of step time, not calibrated, median over groups"
    return [
        _target(order, 0.80, lambda fitted: nanotron(fitted).tau, at_least=True),
        _target(f"{regret}, median", 0.01, lambda fitted: nanotron(fitted).regret),
        _target(f"{regret}, 90th percentile", 0.10, lambda fitted: nanotron(fitted).regret_90),
        _target(f"vTrain, one node: {after}", 0.06, after_3(VTRAIN_NODE)),
        _target(f"nanotron, up to 64 GPUs: {after}", 0.10, after_3(NANOTRON_SMALL)),
        _target(f"nanotron, over 64 GPUs: {after}", 0.20, after_3(NANOTRON_LARGE)),
        _target("nanotron: peak memory, median error", 0.10, lambda fitted: nanotron(fitted).memory_error),
        _target("nanotron: out of memory, recall", 0.98, lambda fitted: counts(fitted).recall, at_least=True),
        _target("nanotron: out of memory, precision", 0.90, lambda fitted: counts(fitted).precision, at_least=True),
        _target("A100 stages: time against clock, median error", 0.01, clock(lambda c: c.time_errors)),
        _target("A100 stages: energy against clock, median error", 0.02, clock(lambda c: c.energy_errors)),
        Target(what="a million configurations predicted", bound=2.0, fitted=math.nan, judged=results.speed_s, unit="s"),
    ]


def _target(what: str, bound: float, figure: Callable[[bool], float], *, at_least: bool = False) -> Target:
    unit = "" if at_least else "%"
    return Target(what=what, bound=bound, fitted=figure(True), judged=figure(False), at_least=at_least, unit=unit)
