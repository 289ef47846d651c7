"""``docs/accuracy.md``: the figures of ``benchmarks/physics.py``, written out."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.memory import MemoryCounts
from benchmarks.results import PARTS, Results, Summary, memory_counts, of_part, quantile, summary, targets
from benchmarks.scores import CALIBRATION_TRIALS, LEAST_ROWS, Score, kendalls_tau
from benchmarks.stalls import STALL_S, repeat_spreads, stalled, twin_differences
from tuner.layout import Layout
from tuner.physics.configurations import RECOMPUTE

RESIDUALS = 8
SIDES = ((True, "fitted on"), (False, "judged"))


def document(results: Results) -> str:
    """The whole page."""
    lines = [*_head(), *target_lines(results), *_tables(results), *_memory(results), *_clocks(results)]
    lines += [*_limits(results), *_residuals(results), *_groups(results)]
    return "\n".join(lines) + "\n"


def target_lines(results: Results) -> list[str]:
    """Each figure beside what it is to reach, as a Markdown table."""
    return _table(
        ("what", "to reach", "judged", "fitted on", "reached"),
        (
            (
                target.what,
                f"{'≥' if target.at_least else '≤'} {_value(target.bound, target.unit)}",
                _value(target.judged, target.unit),
                _value(target.fitted, target.unit),
                "-" if math.isnan(target.judged) else "yes" if target.reached else "no",
            )
            for target in targets(results)
        ),
    )


def _head() -> Iterator[str]:
    yield from ("# How good the predictions are", "")
    yield from _prose(
        "Written by `python benchmarks/physics.py`; nothing here is edited by hand. Predicted values come from the "
        "analytic model in `tuner/physics`, measured ones from public tables that others published: "
        "`benchmarks/data/README.md` says whose. A group is one job on one cluster: the rows of one table that share "
        "model, GPUs and global batch."
    )
    yield ""
    yield from _prose(
        "The default coefficients are fitted on some groups and judged on the others, by whole groups "
        "(`FITTED_GROUPS` in `benchmarks/tables.py`). A figure *after 3 trials* comes from drawing 3 rows of a group "
        "at random, calibrating on them alone, and predicting the group's other rows. Errors are "
        "|predicted / measured - 1|; medians of errors are over all rows of the groups together, medians of tau and "
        "regret over the groups."
    )
    yield ""


def _tables(results: Results) -> Iterator[str]:
    yield from ("", "## Step time by table", "")
    yield from _prose(
        f"Trials to calibrate on were drawn {results.draws} times. Tau and regret are of groups of at least "
        f"{LEAST_ROWS} rows, and so are errors after calibration. Band: share of measured step times within the "
        "predicted 80 % band."
    )
    yield ""
    rows = []
    for part in PARTS:
        for fitted, side in SIDES:
            scores = of_part(results, part, fitted=fitted)
            if scores:
                rows.append((part.name, side, *_summary_cells(summary(scores))))
    yield from _table(("table", "groups are", *_SUMMARY_HEAD), rows)
    yield ""
    yield from _prose(f"One calibration on 5 trials took {results.calibration_s:.2f} s.")


_SUMMARY_HEAD = (
    "groups",
    "rows",
    "tau",
    "regret",
    "regret, 90 %",
    "error, not calibrated",
    *(f"after {trials}" for trials in CALIBRATION_TRIALS),
    "band",
    "band after 3",
)


def _summary_cells(figures: Summary) -> tuple[str, ...]:
    return (
        str(figures.groups),
        str(figures.rows),
        _value(figures.tau, ""),
        _value(figures.regret, "%"),
        _value(figures.regret_90, "%"),
        *(_value(error, "%") for error in figures.error.values()),
        _value(figures.coverage[0], "%"),
        _value(figures.coverage[3], "%"),
    )


def _memory(results: Results) -> Iterator[str]:
    yield from ("", "## Memory", "")
    yield from _prose(
        "vTrain's and nanotron's rows with a step time fitted, whatever the model says. nanotron's failed rows "
        "ran out of memory, timed out or crashed, and the table does not say which; the share of them predicted "
        "not to fit is no recall. *Shown to be out* are failed rows whose layout ran with at least two other "
        "microbatches, where the straight line through the measured memory passes the GPU's memory at the failed "
        "microbatch (memory is affine in the microbatch while the microbatches fill the pipeline); *shown to have "
        "room* those where it stays below 90 % of it. Recall is over the former; precision also counts the rows "
        "that ran and those with room as wrongly ruled out."
    )
    yield ""
    rows = []
    for table in ("nanotron", "vtrain"):
        for fitted, side in SIDES:
            error = summary([s for s in results.scores[table] if s.group.fitted == fitted]).memory_error
            rows.append((table, side, *_memory_cells(error, memory_counts(results, table, fitted=fitted))))
    head = ("median error", "ran, predicted to fit", "failed, predicted out", "shown to be out, predicted out")
    yield from _table(("table", "groups are", *head, "shown to have room, predicted out", "recall", "precision"), rows)


def _memory_cells(error: float, counts: MemoryCounts) -> tuple[str, ...]:
    return (
        _value(error, "%"),
        f"{counts.ran_predicted_to_fit} of {counts.ran}",
        f"{counts.failed_predicted_out} of {counts.failed}",
        f"{counts.out_predicted_out} of {counts.out}",
        f"{counts.room_predicted_out} of {counts.room}",
        _value(counts.recall, ""),
        _value(counts.precision, ""),
    )


def _clocks(results: Results) -> Iterator[str]:
    yield from ("", "## Time and energy against the clock", "")
    yield from _prose(
        "Each stage of the Perseus profiles after calibrating on its first, middle and last clock, judged on the "
        "others. The profile has one forward and one backward pass of a stage; the model predicts them as a step "
        "of many microbatches on the stage's 8 GPUs. The A40 is reported apart."
    )
    yield ""
    yield from _table(
        ("stage", "clocks judged", "time, median error", "largest", "energy, median error", "largest"),
        (
            (
                clock.group.name,
                str(len(clock.time_errors)),
                *(
                    _value(figure, "%")
                    for errors in (clock.time_errors, clock.energy_errors)
                    for figure in (quantile(errors, 0.5), float(errors.max()))
                ),
            )
            for clock in results.clocks
        ),
    )


def _limits(results: Results) -> Iterator[str]:
    yield from ("", "## What the tables hold that the physics cannot know", "")
    yield from _prose(
        "Many pipeline runs of the nanotron table over several nodes wait some 0.5 s (2 stages) or some 1.2 s "
        "(more stages) in each microbatch, whatever the model, tp or microbatch size; others of the same shape do "
        "not. The clearest sign needs no model: twins, two runs over several nodes that have all but their ZeRO "
        "stage (0 and 1) in common, by what a microbatch takes longer in one than in the other. Now the one "
        "waits, now the other, and there is nothing in between."
    )
    yield ""
    yield from _twins(results)
    low, high = STALL_S[2], STALL_S[4]
    yield ""
    yield from _prose(
        "Something in that cluster or framework waits, and a configuration does not tell when. A row counts as "
        "*stalled* here where it has several stages, its group several nodes, (measured - predicted) / "
        f"microbatches, without calibration, is {low[0]} to {low[1]} s for 2 stages or {high[0]} to {high[1]} s "
        "for more, and that is at least a quarter of the predicted time of a microbatch. The rows are picked by "
        "the model's own error, so what is left without them is no score: it says how much of the error this one "
        "thing explains. Every other figure on this page includes these rows."
    )
    yield ""
    rows = []
    for each in results.scores["nanotron"]:
        hung = stalled(each)
        if hung.any():
            rows.append((each.group.name, *_stall_cells(each, hung)))
    yield from _table(
        ("group", "rows", "stalled, 2 stages", "more stages", "tau", "without stalled", "error", "without stalled"),
        rows,
    )
    yield ""
    spreads = repeat_spreads()
    yield from _prose(
        f"{len(spreads)} configurations of that table ran more than once: the slowest run took "
        f"{', '.join(_value(spread, '%') for spread in spreads)} longer than the fastest. No model can be held to less."
    )


def _twins(results: Results) -> list[str]:
    edges = (0.0, 0.1, 0.4, 0.8, 1.0, 1.5, math.inf)
    differences = twin_differences(each.group for each in results.scores["nanotron"])
    spans = [f"{low} to {high} s" for low, high in itertools.pairwise(edges[:-1])]
    return _table(
        ("stages", "twins", *spans, f"over {edges[-2]} s"),
        (
            (
                f"{stages} or more" if stages == 4 else str(stages),
                str(len(values)),
                *map(str, np.histogram(values, edges)[0]),
            )
            for stages, values in differences.items()
        ),
    )


def _stall_cells(each: Score, hung: NDArray[np.bool_]) -> tuple[str, ...]:
    measured, pp = each.group.measured, each.group.measured.configurations.pp
    rest = ~hung
    enough = rest.sum() >= LEAST_ROWS
    return (
        str(len(hung)),
        str(int((hung & (pp == 2)).sum())),
        str(int((hung & (pp > 2)).sum())),
        _value(each.tau, ""),
        _value(kendalls_tau(measured.step_time_s[rest], each.prediction.step_time_s[rest]) if enough else math.nan, ""),
        _value(quantile(each.errors, 0.5), "%"),
        _value(quantile(each.errors[rest], 0.5), "%"),
    )


def _residuals(results: Results) -> Iterator[str]:
    yield from ("", "## Largest residuals", "")
    yield from _prose(
        f"The {RESIDUALS} rows of each table whose step time is farthest from the prediction, as a ratio, without "
        "calibration."
    )
    for table, scores in results.scores.items():
        rows = [row for each in scores for row in _residual_rows(each)]
        rows.sort(key=lambda row: -abs(math.log(row[2] / row[3])))
        yield from ("", f"### {table}", "")
        yield from _table(
            ("group", "configuration", "measured step time, s", "predicted step time, s", "measured / predicted"),
            (
                (name, configuration, f"{measured:.3g}", f"{predicted:.3g}", f"{measured / predicted:.2f}")
                for name, configuration, measured, predicted in rows[:RESIDUALS]
            ),
        )


def _residual_rows(each: Score) -> Iterator[tuple[str, str, float, float]]:
    x = each.group.measured.configurations
    for row in range(len(x)):
        layout = Layout(*(int(getattr(x, name)[row]) for name in ("dp", "tp", "pp", "microbatch")))
        configuration = f"{layout}, ZeRO {int(x.zero_stage[row])}, recompute {RECOMPUTE[int(x.recompute[row])]}"
        yield each.group.name, configuration, each.group.measured.step_time_s[row], each.prediction.step_time_s[row]


def _groups(results: Results) -> Iterator[str]:
    yield from ("", "## Every group", "")
    yield from _prose(f"Groups of under {LEAST_ROWS} rows are drawn together at the end of their table.")
    for table, scores in results.scores.items():
        yield from ("", f"### {table}", "")
        large = [each for each in scores if len(each.group) >= LEAST_ROWS]
        small = [each for each in scores if len(each.group) < LEAST_ROWS]
        rows = [_group_cells(each.group.name, [each]) for each in large]
        for fitted, _ in SIDES:
            together = [each for each in small if each.group.fitted == fitted]
            if together:
                rows.append(_group_cells(f"{len(together)} smaller", together))
        head = ("rows", "tau", "regret", "error, not calibrated", *(f"after {trials}" for trials in CALIBRATION_TRIALS))
        yield from _table(("group", "is", *head, "memory error"), rows)


def _group_cells(name: str, scores: Sequence[Score]) -> tuple[str, ...]:
    figures = summary(scores)
    return (
        name,
        dict(SIDES)[scores[0].group.fitted],
        str(figures.rows),
        _value(figures.tau, ""),
        _value(figures.regret, "%"),
        *(_value(error, "%") for error in figures.error.values()),
        _value(figures.memory_error, "%"),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]] | Iterator[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _prose(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _value(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    if unit == "%":
        return f"{100 * value:.1f} %"
    return f"{value:.2f} s" if unit == "s" else f"{value:.2f}"
