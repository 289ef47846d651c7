"""Measured tables: the CSV that replay studies, calibration and benchmarks read."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.errors import FieldProblem, InvalidInput
from tuner.job import Recompute
from tuner.layout import Configuration, Layout

REQUIRED_COLUMNS = (
    "dp",
    "tp",
    "pp",
    "microbatch",
    "frequency_mhz",
    "step_time_s",
    "energy_j",
    "peak_memory_gib",
    "status",
)
COLUMNS = (*REQUIRED_COLUMNS[:5], "launch_s", *REQUIRED_COLUMNS[5:])
DEFAULT_LAUNCH_S = 60.0
SHOWN_PROBLEMS = 5
# Far more than any row of numbers needs, so that a file without line ends is refused before it fills the memory.
_LONGEST_LINE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row of a measured table.

    Args:
        line: Where it stands in the file; the header is line 1.
        configuration: What was run.
        zero_stage: ZeRO stage; ``None`` for the job's.
        recompute: Activation recomputation; ``None`` for the job's.
        launch_s: Seconds that starting it took.
        step_time_s: Seconds per optimizer step; ``None`` where it ran out of memory.
        energy_j: Joules per optimizer step over all GPUs; ``None`` where unknown.
        peak_memory_gib: Peak memory of the fullest GPU; ``None`` where unknown.
    """

    line: int
    configuration: Configuration
    zero_stage: int | None
    recompute: Recompute | None
    launch_s: float
    step_time_s: float | None
    energy_j: float | None
    peak_memory_gib: float | None

    @property
    def out_of_memory(self) -> bool:
        """Whether the configuration did not fit."""
        return self.step_time_s is None


def parse_table(text: str, field: str = "runner.csv", *, repeats: bool = False) -> tuple[TableRow, ...]:
    """Read a table whose header holds ``COLUMNS`` in any order.

    ``launch_s`` may be left out (60 s); ``status`` is ``ok`` or ``oom``; an empty ``frequency_mhz`` is the default,
    an empty ``energy_j`` or ``peak_memory_gib`` is unknown. Where there are columns ``zero_stage`` and ``recompute``,
    an empty one is the job's.

    Args:
        text: The CSV.
        field: What to call it in errors.
        repeats: Whether a configuration may stand in the table more than once.

    Raises:
        InvalidInput: A missing column, or rows that cannot be: each named by its line.
    """
    header, lines = read_csv(io.StringIO(text, newline=""), field, REQUIRED_COLUMNS)
    rows: list[TableRow] = []
    known: set[Configuration] = set()
    problems: list[FieldProblem] = []
    for line, values in lines:
        where = f"{field} line {line}"
        try:
            row = _row(dict(zip(header, values, strict=False)), line, where)
        except InvalidInput as error:
            problems.extend(error.problems)
            continue
        if not repeats and row.configuration in known:
            problems.append(FieldProblem(where, str(row.configuration), "must not stand in the table twice"))
        known.add(row.configuration)
        rows.append(row)
    if problems:
        raise InvalidInput(*problems[:SHOWN_PROBLEMS])
    if not rows:
        raise InvalidInput.of(field, "", "must hold at least one row")
    return tuple(rows)


def read_csv(
    stream: io.TextIOBase, field: str, required: Sequence[str]
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Read a header and then, one by one, the rows with the lines they end on; empty lines are passed over.

    Args:
        stream: The CSV, opened without newline translation.
        field: What to call it in errors.
        required: Columns that the header must hold.

    Raises:
        InvalidInput: No CSV in UTF-8, or a missing column. Rows raise it as they are read.
    """
    rows = _rows(stream, field)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    missing = [name for name in required if name not in header]
    if missing:
        raise InvalidInput.of(
            field, ",".join(header), f"the header lacks {', '.join(missing)}; it needs {','.join(required)}"
        )
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput.of(field, ",".join(header), f"the header must not hold {twice} twice")
    return header, rows


def _rows(stream: io.TextIOBase, field: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(_lines(stream, field), strict=True)
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise InvalidInput.of(f"{field} line {reader.line_num}", "...", f"is no CSV: {error}") from None
        except UnicodeDecodeError:
            raise InvalidInput.of(field, f"line {reader.line_num + 1}", "must be text in UTF-8") from None
        if values is None:
            return
        if values:
            yield reader.line_num, values


def _lines(stream: io.TextIOBase, field: str) -> Iterable[str]:
    first = True
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise InvalidInput.of(field, line[:20], "is no table: a line is longer than any row of numbers")
        yield line.lstrip("\ufeff") if first else line
        first = False


def _row(values: Mapping[str, str], line: int, where: str) -> TableRow:
    def number(name: str, *, whole: bool = False) -> float | None:
        text = values.get(name, "").strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0 or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            raise InvalidInput.of(f"{where}, {name}", text, f"must be {kind} above 0")
        return value

    def degree(name: str) -> int:
        value = number(name, whole=True)
        if value is None:
            raise InvalidInput.of(f"{where}, {name}", None, "is required")
        return int(value)

    frequency = number("frequency_mhz", whole=True)
    configuration = Configuration(
        Layout(degree("dp"), degree("tp"), degree("pp"), degree("microbatch")),
        None if frequency is None else int(frequency),
    )
    status = values.get("status", "").strip()
    if status not in ("ok", "oom"):
        raise InvalidInput.of(f"{where}, status", status, "must be ok or oom")
    step_time_s = number("step_time_s")
    if status == "ok" and step_time_s is None:
        raise InvalidInput.of(f"{where}, step_time_s", None, "is required where status is ok")
    ok = status == "ok"
    return TableRow(
        line=line,
        configuration=configuration,
        zero_stage=parse_zero_stage(values.get("zero_stage", ""), f"{where}, zero_stage"),
        recompute=parse_recompute(values.get("recompute", ""), f"{where}, recompute"),
        launch_s=number("launch_s") or DEFAULT_LAUNCH_S,
        step_time_s=step_time_s if ok else None,
        energy_j=number("energy_j") if ok else None,
        peak_memory_gib=number("peak_memory_gib"),
    )


def parse_zero_stage(text: str, field: str) -> int | None:
    """Read a ZeRO stage; empty is ``None``.

    Raises:
        InvalidInput: No stage.
    """
    text = text.strip()
    # Written with a decimal point by programs that know no empty whole number.
    stage = text.removesuffix(".0")
    if stage not in ("", "0", "1", "2", "3"):
        raise InvalidInput.of(field, text, "must be 0, 1, 2 or 3, or empty for the job's")
    return int(stage) if stage else None


def parse_recompute(text: str, field: str) -> Recompute | None:
    """Read an activation recomputation; empty is ``None``.

    Raises:
        InvalidInput: No such recomputation.
    """
    text = text.strip()
    if text not in ("", *Recompute):
        raise InvalidInput.of(field, text, f"must be {', '.join(Recompute)}, or empty for the job's")
    return Recompute(text) if text else None
