"""What is to be predicted: the configurations of a space, of a CSV, or of measured trials, checked against the job."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tuner.errors import FieldProblem, InvalidInput
from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.layout import Configuration, divisors
from tuner.physics.configurations import RECOMPUTE, Configurations, Floats
from tuner.space import space_clocks, space_layouts
from tuner.spec import SpaceSection
from tuner.table import SHOWN_PROBLEMS, parse_recompute, parse_zero_stage, read_csv

DEGREES = ("dp", "tp", "pp", "microbatch")
_AXES = tuple(field.name for field in fields(Configurations))
_CHUNK = 65_536

Where = Callable[[int, str], str]
Rule = tuple[str, Floats, NDArray[np.bool_], str]


def space_candidates(section: SpaceSection, job: TrainingJob, cluster: Cluster, at_most: int) -> Configurations:
    """Every valid layout of a space at every clock of it, layout by layout, from the highest clock downwards.

    Args:
        section: The space.
        job: The training job.
        cluster: The cluster.
        at_most: Number of configurations that may be predicted.

    Raises:
        InvalidInput: No valid layout, a clock that the GPU does not have, or too many configurations.
    """
    highest = cluster.gpu.max_clock_mhz
    # The default clock is the highest, which a list may name as well.
    clocks = list(dict.fromkeys(clock or highest for clock in space_clocks(section.frequency_mhz, cluster.gpu)))
    layouts, _ = space_layouts(section, job, cluster)
    size = len(layouts) * len(clocks)
    if size > at_most:
        reason = f"must hold at most {at_most:,}; give fewer values of tp, pp, microbatch or frequency_mhz"
        raise InvalidInput.of("space", f"{size:,} configurations", reason)
    at_default = Configurations.of([Configuration(layout, None) for layout in layouts], job, cluster.gpu)
    each = at_default[np.repeat(np.arange(len(layouts)), len(clocks))]
    return replace(each, frequency_mhz=np.tile(np.array(clocks, float), len(layouts)))


def read_configurations(
    stream: io.TextIOBase, job: TrainingJob, cluster: Cluster, field: str, at_most: int
) -> Configurations:
    """Read the configurations of a CSV, in its order.

    The header holds dp, tp, pp, microbatch and may hold frequency_mhz (empty for the default clock), zero_stage and
    recompute (empty for the job's); further columns are passed over.

    Args:
        stream: The CSV, opened without newline translation.
        job: The training job.
        cluster: The cluster.
        field: What to call the CSV in errors.
        at_most: Number of rows that may be predicted.

    Raises:
        InvalidInput: No CSV, a missing column, no or too many rows, or rows that cannot be: the first ones named.
    """
    header, rows = read_csv(stream, field, DEGREES)
    pieces: list[Configurations] = []
    count = 0
    while chunk := list(islice(rows, _CHUNK)):
        count += len(chunk)
        if count > at_most:
            raise InvalidInput.of(field, f"more than {at_most:,} rows", f"must hold at most {at_most:,} configurations")
        pieces.append(_parse_chunk(header, chunk, job, cluster, field))
    if not pieces:
        raise InvalidInput.of(field, "no row", "must hold at least one row below the header")
    return Configurations(**{n: np.concatenate([getattr(p, n) for p in pieces]) for n in _AXES})


def check_configurations(x: Configurations, job: TrainingJob, cluster: Cluster, where: Where) -> None:
    """Refuse configurations that cannot be, as against those that some trainers cannot run.

    Args:
        x: Configurations.
        job: The training job.
        cluster: The cluster; a configuration takes all of its GPUs.
        where: Names a field of a configuration, given its position and the field.

    Raises:
        InvalidInput: The first configurations that cannot be, each with its first problem.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rules = list(_rules(x, job, cluster))
    bad = np.any([broken for _, _, broken, _ in rules], axis=0)
    problems = []
    for row in np.flatnonzero(bad)[:SHOWN_PROBLEMS].tolist():
        field, values, _, reason = next(rule for rule in rules if rule[2][row])
        problems.append(FieldProblem(where(row, field), _plain(values[row]), reason))
    if problems:
        raise InvalidInput(*problems)


def _rules(x: Configurations, job: TrainingJob, cluster: Cluster) -> Iterator[Rule]:
    """Each rule as field, values, which of them break it, and what is valid."""
    model, gpu = job.model, cluster.gpu
    for name in DEGREES:
        values = getattr(x, name)
        yield name, values, ~_is_count(values), "must be a whole number above 0"
    world = x.dp * x.tp * x.pp
    yield "dp * tp * pp", world, world != cluster.world_size, f"must be the cluster's {cluster.world_size} GPUs"
    yield "pp", x.pp, x.pp > model.layers, f"must not exceed the model's {model.layers} layers"
    valid = ", ".join(map(str, divisors(model.heads)))
    heads = f"must divide the model's heads = {model.heads}; valid: {valid}"
    yield "tp", x.tp, np.remainder(model.heads, x.tp) != 0, heads
    yield "tp", x.tp, np.remainder(model.ffn, x.tp) != 0, f"must divide the model's ffn = {model.ffn}"
    together = x.dp * x.microbatch
    batch = f"must divide the global batch of {job.global_batch_size}"
    yield "dp * microbatch", together, np.remainder(job.global_batch_size, together) != 0, batch
    outside = ~((x.frequency_mhz >= gpu.min_clock_mhz) & (x.frequency_mhz <= gpu.max_clock_mhz))
    clocks = f"must be a clock of {gpu.name}, {gpu.min_clock_mhz} to {gpu.max_clock_mhz} MHz, or empty for the default"
    yield "frequency_mhz", x.frequency_mhz, outside, clocks


def _parse_chunk(
    header: Sequence[str], rows: Sequence[tuple[int, list[str]]], job: TrainingJob, cluster: Cluster, field: str
) -> Configurations:
    texts = {name: _column(header, rows, name) for name in _AXES}

    def where(row: int, name: str) -> str:
        return f"{field} line {rows[row][0]}, {name}"

    columns = {name: _numbers(texts[name]) for name in DEGREES}
    columns["frequency_mhz"] = _numbers(texts["frequency_mhz"], empty=cluster.gpu.max_clock_mhz)
    problems = [
        FieldProblem(where(row, name), texts[name][row].strip() or None, "must be a whole number above 0")
        for name, values in columns.items()
        for row in np.flatnonzero(~_is_count(values))[:SHOWN_PROBLEMS].tolist()
    ]
    if problems:
        raise InvalidInput(*problems[:SHOWN_PROBLEMS])
    zero_stages = {
        text: parse_zero_stage(text, where(row, "zero_stage")) for text, row in _distinct(texts["zero_stage"])
    }
    recomputes = {text: parse_recompute(text, where(row, "recompute")) for text, row in _distinct(texts["recompute"])}
    stage = {text: job.zero_stage if value is None else value for text, value in zero_stages.items()}
    recompute = {text: RECOMPUTE.index(value or job.recompute) for text, value in recomputes.items()}
    x = Configurations(
        **columns,
        zero_stage=np.array([stage[text] for text in texts["zero_stage"]], float),
        recompute=np.array([recompute[text] for text in texts["recompute"]], float),
    )
    check_configurations(x, job, cluster, where)
    return x


def _column(header: Sequence[str], rows: Sequence[tuple[int, list[str]]], name: str) -> list[str]:
    """The texts of a column; empty where there is none, or where a row ends before it."""
    if name not in header:
        return [""] * len(rows)
    index = header.index(name)
    return [row[index] if index < len(row) else "" for _, row in rows]


def _numbers(texts: Sequence[str], empty: float = math.nan) -> Floats:
    """Texts as numbers, nan where they are none."""
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return np.array([_number(text, empty) for text in texts])


def _number(text: str, empty: float) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan if text.strip() else empty


def _distinct(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Every text once, with the first row that holds it."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(text, row)
    return list(first.items())


def _is_count(values: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(values) & (values >= 1) & (values == np.floor(values)))


def _plain(value: float) -> int | float:
    return int(value) if math.isfinite(value) and value == int(value) else float(value)
