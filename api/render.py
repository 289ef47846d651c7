"""What the command line shows a person: tables, the frontier as a plot, the recommendations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.schemas import (
    ConfigurationAnswer,
    FrontierAnswer,
    LayoutsAnswer,
    PointAnswer,
    RecommendationAnswer,
    StudiesAnswer,
    StudyDetailAnswer,
)
from tuner.result import Role


def provenance(runner: str) -> str:
    """The word that stands beside every number that was not measured; empty for real measurements."""
    return {"simulated": "simulated, no GPU was measured", "replay": "replayed from a measured table"}.get(runner, "")


def configuration(answer: ConfigurationAnswer) -> str:
    """A configuration in one line."""
    clock = "default clock" if answer.frequency_mhz is None else f"{answer.frequency_mhz} MHz"
    return f"dp {answer.dp}  tp {answer.tp}  pp {answer.pp}  microbatch {answer.microbatch}  {clock}"


def figures(value: float) -> str:
    """A number in four significant figures, never in powers of ten."""
    decimals = 3 - math.floor(math.log10(abs(value))) if value else 3
    return f"{value:.{min(max(decimals, 0), 9)}f}"


def percent(value: float | None) -> str:
    """A share with its sign, empty where unknown."""
    return "" if value is None else f"{round(value, 3) + 0.0:+.1%}"


def frontier_table(answer: FrontierAnswer) -> RenderableType:
    """The frontier as a table, the baseline below it."""
    word = provenance(answer.study.runner)
    table = Table(title=f"Frontier of {answer.study.name}" + (f" ({word})" if word else ""), title_justify="left")
    for name in ("trial", "dp", "tp", "pp", "mb", "clock MHz", "s/step", "kJ/step", "time", "energy", "kW", "GiB"):
        table.add_column(name, justify="right")
    for point in answer.frontier:
        table.add_row(*_row(point))
    if answer.baseline is not None:
        table.add_section()
        table.add_row(*_row(answer.baseline), style="dim")
        table.caption = "time and energy against the baseline (last row)"
    summary = _summary(answer)
    if not answer.frontier:
        return Text(f"{answer.study.name}: no feasible configuration yet; {summary}")
    return Group(table, Text(summary))


def _summary(answer: FrontierAnswer) -> str:
    counts = answer.counts
    hours = " ".join(filter(None, (f"{counts.gpu_hours:.2f}", _short(answer.study.runner), "GPU-hours")))
    return (
        f"{counts.complete} trials complete, {counts.infeasible} infeasible, {counts.failed + counts.lost} failed; "
        f"hypervolume {answer.hypervolume:.4f}; {hours}"
    )


def _short(runner: str) -> str:
    return {"simulated": "simulated", "replay": "replayed"}.get(runner, "")


def _row(point: PointAnswer) -> list[str]:
    c, m = point.configuration, point.measurement
    return [
        str(point.trial),
        *(str(value) for value in (c.dp, c.tp, c.pp, c.microbatch)),
        "default" if c.frequency_mhz is None else str(c.frequency_mhz),
        figures(m.step_time_s),
        "" if m.energy_j is None else figures(m.energy_j / 1e3),
        percent(point.slowdown),
        percent(None if point.energy_saving is None else -point.energy_saving),
        "" if m.average_power_w is None else figures(m.average_power_w / 1e3),
        "" if m.peak_memory_gib is None else f"{m.peak_memory_gib:.1f}",
    ]


def frontier_plot(answer: FrontierAnswer, *, colors: bool, width: int = 78, height: int = 18) -> str:
    """The frontier as a plot for the terminal; empty without energies."""
    if len(answer.objectives) < 2 or not answer.frontier:
        return ""
    import plotext

    plotext.clear_figure()
    plotext.plotsize(width, height)
    plotext.theme("clear")
    others = [p for p in answer.others if p.role in (Role.dominated, Role.tied)]
    for points, marker, label in ((others, "·", "dominated"), (answer.frontier, "●", "frontier")):
        if points:
            plotext.scatter(*_series(points), marker=marker, label=label)
    if answer.baseline is not None:
        plotext.scatter(*_series([answer.baseline]), marker="B", label="baseline")
    word = provenance(answer.study.runner)
    plotext.title(f"{answer.study.name}" + (f" ({word})" if word else ""))
    plotext.xlabel("seconds per step")
    plotext.ylabel("kJ per step")
    plot = str(plotext.build())
    return plot if colors else str(plotext.uncolorize(plot))


def _series(points: Sequence[PointAnswer]) -> tuple[list[float], list[float]]:
    measured = [p.measurement for p in points]
    return [m.step_time_s for m in measured], [(m.energy_j or 0.0) / 1e3 for m in measured]


def recommendation(answer: RecommendationAnswer) -> RenderableType:
    """One recommendation in three lines."""
    point = answer.point
    m = point.measurement
    numbers = [f"{figures(m.step_time_s)} s/step"]
    if m.energy_j is not None:
        numbers.append(f"{figures(m.energy_j / 1e3)} kJ/step")
    if point.slowdown is not None:
        numbers.append(f"time {percent(point.slowdown)}")
    if point.energy_saving is not None:
        numbers.append(f"energy {percent(-point.energy_saving)}")
    word = _short(answer.study.runner)
    return Group(
        Text(f"{answer.description}:", style="bold"),
        Text(f"  {configuration(point.configuration)}"),
        Text(f"  {', '.join(numbers)}" + (f"  ({word})" if word else "")),
    )


def studies_table(answer: StudiesAnswer) -> RenderableType:
    """The studies as a table."""
    table = Table()
    for name in ("name", "state", "runner", "created", "id"):
        table.add_column(name)
    for study in answer.studies:
        created = study.created_at.strftime("%Y-%m-%d %H:%M")
        table.add_row(study.name, study.state, study.runner, created, study.id)
    return table if answer.studies else Text("no studies; start one with: paretune tune STUDY.yaml")


def study_table(answer: StudyDetailAnswer) -> RenderableType:
    """One study as a list of facts."""
    table = Table(show_header=False, box=None)
    counts = answer.counts.model_dump(exclude={"gpu_hours"})
    reached = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    for name, value in (
        ("study", f"{answer.name} ({answer.id})"),
        ("state", answer.state + (f": {answer.state_reason}" if answer.state_reason else "")),
        ("runner", answer.runner + (f" ({word})" if (word := provenance(answer.runner)) else "")),
        ("space", f"{answer.configurations} configurations"),
        ("trials", f"{reached or 'none'} of {answer.budget_trials}"),
        (" ".join(filter(None, (_short(answer.runner), "GPU-hours"))), f"{answer.counts.gpu_hours:.2f}"),
    ):
        table.add_row(name, value)
    return table


def layouts_table(answer: LayoutsAnswer) -> RenderableType:
    """Valid layouts, then the refused ones with reasons."""
    valid = Table(title=f"{len(answer.layouts)} valid layouts", title_justify="left")
    refused = Table(title=f"{len(answer.refused)} refused", title_justify="left")
    for table in (valid, refused):
        for name in ("dp", "tp", "pp", "microbatch"):
            table.add_column(name, justify="right")
    valid.add_column("microbatches", justify="right")
    refused.add_column("reason")
    for layout in answer.layouts:
        row = (layout.dp, layout.tp, layout.pp, layout.microbatch, layout.microbatches)
        valid.add_row(*map(str, row))
    for refusal in answer.refused:
        degrees = (refusal.dp, refusal.tp, refusal.pp, refusal.microbatch)
        refused.add_row(*("any" if value is None else str(value) for value in degrees), refusal.reason)
    clocks = [clock for clock in answer.frequencies_mhz if clock is not None]
    span = f"the default and {len(clocks)} from {min(clocks)} to {max(clocks)} MHz" if clocks else "the default"
    baseline = configuration(answer.baseline)
    summary = Text(f"clocks: {span}; {answer.configurations} configurations; baseline: {baseline}")
    return Group(valid, *([refused] if answer.refused else []), summary)


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or as any table needs where there is none."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=120)
