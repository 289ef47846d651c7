"""Measured tables: the CSV that replay studies and benchmarks read."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import FieldProblem, InvalidInput
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
_SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row of a measured table.

    Args:
        configuration: What was run.
        launch_s: Seconds that starting it took.
        step_time_s: Seconds per optimizer step; ``None`` where it ran out of memory.
        energy_j: Joules per optimizer step over all GPUs; ``None`` where unknown.
        peak_memory_gib: Peak memory of the fullest GPU; ``None`` where unknown.
    """

    configuration: Configuration
    launch_s: float
    step_time_s: float | None
    energy_j: float | None
    peak_memory_gib: float | None

    @property
    def out_of_memory(self) -> bool:
        """Whether the configuration did not fit."""
        return self.step_time_s is None


def parse_table(text: str, field: str = "runner.csv") -> tuple[TableRow, ...]:
    """Read a table whose header holds ``COLUMNS`` in any order.

    ``launch_s`` may be left out (60 s); ``status`` is ``ok`` or ``oom``; an empty ``frequency_mhz`` is the default,
    an empty ``energy_j`` or ``peak_memory_gib`` is unknown.

    Args:
        text: The CSV.
        field: What to call it in errors.

    Raises:
        InvalidInput: A missing column, or rows that cannot be: each named by its line.
    """
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    header = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = header
    missing = [name for name in REQUIRED_COLUMNS if name not in header]
    if missing:
        raise InvalidInput.of(
            field, ",".join(header), f"the header lacks {', '.join(missing)}; it needs {','.join(REQUIRED_COLUMNS)}"
        )
    rows: dict[Configuration, TableRow] = {}
    problems: list[FieldProblem] = []
    for values in reader:
        where = f"{field} line {reader.line_num}"
        try:
            row = _row(values, where)
        except InvalidInput as error:
            problems.extend(error.problems)
            continue
        if row.configuration in rows:
            problems.append(FieldProblem(where, str(row.configuration), "must not stand in the table twice"))
        rows[row.configuration] = row
    if problems:
        raise InvalidInput(*problems[:_SHOWN_PROBLEMS])
    if not rows:
        raise InvalidInput.of(field, "", "must hold at least one row")
    return tuple(rows.values())


def _row(values: Mapping[str, str | None], where: str) -> TableRow:
    def number(name: str, *, whole: bool = False) -> float | None:
        text = (values.get(name) or "").strip()
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
    status = (values.get("status") or "").strip()
    if status not in ("ok", "oom"):
        raise InvalidInput.of(f"{where}, status", status, "must be ok or oom")
    step_time_s = number("step_time_s")
    if status == "ok" and step_time_s is None:
        raise InvalidInput.of(f"{where}, step_time_s", None, "is required where status is ok")
    ok = status == "ok"
    return TableRow(
        configuration=configuration,
        launch_s=number("launch_s") or DEFAULT_LAUNCH_S,
        step_time_s=step_time_s if ok else None,
        energy_j=number("energy_j") if ok else None,
        peak_memory_gib=number("peak_memory_gib"),
    )
