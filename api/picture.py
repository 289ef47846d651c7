"""The frontier as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from api.render import provenance
from api.schemas import FrontierAnswer, PointAnswer
from tuner.errors import InvalidInput
from tuner.result import Role

# Okabe and Ito's palette, told apart by the colour-blind; the markers differ as well.
_STYLES = {
    Role.dominated: ("#999999", "o", "dominated"),
    Role.tied: ("#56B4E9", "s", "tied with the frontier"),
    Role.beyond_limits: ("#D55E00", "x", "beyond the limits"),
}


def save_picture(answer: FrontierAnswer, path: Path) -> None:
    """Draw the frontier in time and energy.

    Args:
        answer: The frontier; it must have energies.
        path: Where to write the PNG.

    Raises:
        InvalidInput: The file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for role, (color, marker, label) in _STYLES.items():
        points = [point for point in answer.others if point.role is role]
        if points:
            axes.scatter(*_xy(points), color=color, marker=marker, s=26, alpha=0.65, label=label)
    if answer.frontier:
        x, y = _xy(answer.frontier)
        axes.plot(x, y, color="#0072B2", marker="o", markersize=6, linewidth=1.6, label="frontier")
    if answer.baseline is not None:
        axes.scatter(*_xy([answer.baseline]), color="#E69F00", marker="*", s=170, zorder=3, label="baseline")
        for name, share in (("secondary_xaxis", "time"), ("secondary_yaxis", "energy")):
            _add_relative_axis(axes, name, share, answer.baseline)
    for point in _labelled(answer.frontier):
        c, m = point.configuration, point.measurement
        clock = "default" if c.frequency_mhz is None else f"{c.frequency_mhz} MHz"
        axes.annotate(
            f"dp{c.dp} tp{c.tp} pp{c.pp} mb{c.microbatch}, {clock}",
            (m.step_time_s, (m.energy_j or 0.0) / 1e3),
            textcoords="offset points",
            # Below and to the left of a frontier there is nothing to cover.
            xytext=(-4, -12),
            fontsize=7.5,
            color="#333333",
        )
    axes.margins(x=0.08, y=0.1)
    word = provenance(answer.study.runner)
    axes.set_title(f"{answer.study.name}" + (f"  ({word})" if word else ""), fontsize=11, loc="left")
    axes.set_xlabel("seconds per optimizer step")
    axes.set_ylabel("energy per optimizer step, all GPUs (kJ)")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(frameon=False, fontsize=8.5)
    try:
        figure.savefig(path, metadata={"Software": None})
    except OSError as error:
        reason = f"must be a file that can be written ({error.strerror})"
        raise InvalidInput.of("--picture", str(path), reason) from None


def _add_relative_axis(axes: object, name: str, what: str, baseline: PointAnswer) -> None:
    m = baseline.measurement
    unit = m.step_time_s if what == "time" else (m.energy_j or 1.0) / 1e3
    side = "top" if what == "time" else "right"

    def to_percent(value: float) -> float:
        return (value / unit - 1) * 100

    def from_percent(value: float) -> float:
        return (value / 100 + 1) * unit

    axis = getattr(axes, name)(side, functions=(to_percent, from_percent))
    axis.tick_params(labelsize=7.5)
    set_label = axis.set_xlabel if what == "time" else axis.set_ylabel
    set_label(f"{what} against the baseline (%)", fontsize=8)


def _labelled(frontier: Sequence[PointAnswer]) -> list[PointAnswer]:
    """The ends and the middle: labels on every point would hide the points."""
    if len(frontier) <= 3:
        return list(frontier)
    return [frontier[0], frontier[len(frontier) // 2], frontier[-1]]


def _xy(points: Sequence[PointAnswer]) -> tuple[list[float], list[float]]:
    measured = [point.measurement for point in points]
    return [m.step_time_s for m in measured], [(m.energy_j or 0.0) / 1e3 for m in measured]
