"""What the command line shows of predictions: the frontier, its breakdown, and the memory picture of its layouts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.prediction_answers import (
    BandAnswer,
    CalibrationAnswer,
    LayoutMemoryAnswer,
    PredictedConfigurationAnswer,
    PredictionAnswer,
    PredictionsAnswer,
    StageAnswer,
    layout_of,
)
from api.render import figures

_SHOWN_ROWS = 40
_SHOWN_STAGES = 16
_PARTS = ("weights_gib", "gradients_gib", "optimizer_gib", "activations_gib", "logits_gib", "overhead_gib", "total_gib")


def predictions(answer: PredictionsAnswer) -> RenderableType:
    """Everything that a prediction answers, for a person."""
    summary = f"{answer.configurations:,} configurations predicted, {answer.fitting:,} of them fit into memory"
    after = [Text(summary), Text(_basis(answer.calibration)), *(Text(note) for note in answer.calibration.notes)]
    where = f"{answer.gpus} x {answer.gpu}"
    if answer.predictions:
        shown = answer.predictions[:_SHOWN_ROWS]
        left = len(answer.predictions) - len(shown)
        more = [Text(f"{left:,} more; --output OUT.csv writes all")] if left else []
        return Group(_points(f"PREDICTED on {where}", shown), *more, *after)
    if not answer.frontier:
        least = f"PREDICTED: no configuration fits; the smallest needs {figures(answer.least_memory_gib)} GiB a GPU"
        return Group(Text(least), *after)
    picked = _by_point(answer)
    return Group(
        _points(f"PREDICTED frontier on {where}", answer.frontier),
        *(_memory(picture, _names(picture, picked)) for picture in _pictures(answer, picked)),
        _breakdown(picked),
        *after,
    )


def _points(title: str, points: Sequence[PredictionAnswer]) -> Table:
    kinds = {(p.configuration.zero_stage, p.configuration.recompute) for p in points}
    shared = ""
    if len(kinds) == 1:
        ((zero_stage, recompute),) = kinds
        shared = f", ZeRO {zero_stage}, recompute {recompute}"
    table = Table(title=title + shared, title_justify="left", caption=Text("in brackets: 80 % interval"))
    for name in ("dp", "tp", "pp", "mb", *(() if shared else ("ZeRO", "recompute")), "MHz", "runs at"):
        table.add_column(name, justify="right", no_wrap=True)
    all_fit = all(point.fits for point in points)
    for name in ("s/step", "kJ/step", "GiB", *(() if all_fit else ("fits",)), "binds"):
        table.add_column(name, no_wrap=True)
    for point in points:
        c = point.configuration
        table.add_row(
            *map(str, (c.dp, c.tp, c.pp, c.microbatch, *(() if shared else (c.zero_stage, c.recompute)))),
            "default" if c.frequency_mhz is None else str(c.frequency_mhz),
            f"{point.achieved_mhz:.0f}",
            _band(point.step_time_s),
            _band(point.energy_j, 1e-3),
            _band(point.peak_memory_gib),
            *(() if all_fit else ("yes" if point.fits else "no",)),
            _word(point.binds),
        )
    return table


def _band(band: BandAnswer, scale: float = 1.0) -> str:
    value, low, high = (_short(each * scale) for each in (band.value, band.low, band.high))
    return f"{value} ({low}..{high})"


def _short(value: float) -> str:
    """Three significant figures: a prediction is not surer than that."""
    return figures(float(f"{value:.3g}")).rstrip("0").rstrip(".") if value < 100 else f"{value:,.0f}"


def _by_point(answer: PredictionsAnswer) -> list[tuple[str, PredictionAnswer]]:
    """The points picked, each once, with all of its names."""
    names: dict[int, list[str]] = {}
    for name, position in answer.picks.items():
        names.setdefault(position, []).append(name.replace("_", " "))
    return [(", ".join(each), answer.frontier[position]) for position, each in sorted(names.items())]


def _pictures(answer: PredictionsAnswer, picked: Sequence[tuple[str, PredictionAnswer]]) -> list[LayoutMemoryAnswer]:
    return [picture for picture in answer.memory if _names(picture, picked)]


def _names(picture: LayoutMemoryAnswer, picked: Sequence[tuple[str, PredictionAnswer]]) -> str:
    key = (picture.dp, picture.tp, picture.pp, picture.microbatch, picture.zero_stage, picture.recompute)
    return ", ".join(name for name, point in picked if _key(point.configuration) == key)


def _key(c: PredictedConfigurationAnswer) -> tuple[object, ...]:
    return (c.dp, c.tp, c.pp, c.microbatch, c.zero_stage, c.recompute)


def _memory(picture: LayoutMemoryAnswer, names: str) -> Table:
    layout = f"dp {picture.dp}  tp {picture.tp}  pp {picture.pp}  microbatch {picture.microbatch}"
    table = Table(
        title=f"PREDICTED memory per stage in GiB, {names} ({layout}); a GPU has {picture.capacity_gib:.1f}",
        title_justify="left",
    )
    for name in ("stage", "layers", "in flight", *(part.removesuffix("_gib") for part in _PARTS), ""):
        table.add_column(name, justify="right", no_wrap=True)
    previous = -1
    for stage in _shown_stages(picture):
        if stage.stage != previous + 1:
            table.add_row(*["..."] * (len(_PARTS) + 3), "")
        previous = stage.stage
        parts = (f"{getattr(stage, part):.2f}" for part in _PARTS)
        binding = stage.stage == picture.binding_stage
        mark = "binds" if binding else ""
        style = "bold" if binding else ""
        table.add_row(str(stage.stage), str(stage.layers), str(stage.in_flight), *parts, mark, style=style)
    return table


def _shown_stages(picture: LayoutMemoryAnswer) -> list[StageAnswer]:
    """All stages, or of a long pipeline the ends and the binding one."""
    stages = picture.stages
    if len(stages) <= _SHOWN_STAGES:
        return stages
    ends = _SHOWN_STAGES // 2
    return [s for s in stages if s.stage < ends or s.stage >= len(stages) - ends or s.stage == picture.binding_stage]


def _breakdown(picked: Sequence[tuple[str, PredictionAnswer]]) -> Table:
    table = Table(title="PREDICTED breakdown of the step time", title_justify="left")
    table.add_column("part")
    for name, point in picked:
        c = layout_of(point.configuration)
        clock = point.configuration.frequency_mhz
        at = "default clock" if clock is None else f"{clock} MHz"
        table.add_column(f"{name}\ndp {c.dp} tp {c.tp} pp {c.pp} mb {c.microbatch}\n{at}", justify="right")
    for part in picked[0][1].breakdown:
        cells = [_part(point, part) for _, point in picked]
        table.add_row(_word(part), *cells)
    table.add_section()
    table.add_row("step", *(f"{figures(point.step_time_s.value)} s  100.0 %" for _, point in picked))
    return table


def _part(point: PredictionAnswer, part: str) -> str:
    seconds = point.breakdown[part]
    if seconds == 0:
        return "-"
    mark = "binds  " if part == point.binds else ""
    return f"{mark}{figures(seconds)} s  {seconds / point.step_time_s.value:6.1%}".replace("%", " %")


def _word(part: str) -> str:
    return part.removesuffix("_s")


def _basis(calibration: CalibrationAnswer) -> str:
    if not calibration.trials:
        return "not calibrated: nothing of this cluster was measured"
    trials = "1 trial" if calibration.trials == 1 else f"{calibration.trials} trials"
    text = f"calibrated on {trials}"
    if calibration.fitted_to is not None:
        text += f" ({calibration.fitted_to})"
    if calibration.moved:
        moved = (f"{m.coefficient} {m.before:.3g} -> {m.after:.3g}" for m in calibration.moved)
        text += f"; moved most: {', '.join(moved)}"
    return text
