from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import fit_defaults, physics
from tuner.physics.coefficients import COEFFICIENTS


@pytest.fixture
def small_tables(make_group, monkeypatch: pytest.MonkeyPatch):
    stage = replace(make_group(((2, 8, 1, 4),) * 1, name="a stage"), table="perseus")
    x = stage.measured.configurations
    clocks = replace(x, **{f: getattr(x, f).repeat(5) for f in x.__dataclass_fields__})
    clocks = replace(clocks, frequency_mhz=clocks.frequency_mhz - [0, 105, 210, 315, 420])
    measured = replace(
        stage.measured,
        configurations=clocks,
        **{f: getattr(stage.measured, f).repeat(5) for f in ("step_time_s", "energy_j", "peak_memory_gib", "fits")},
    )
    measured = replace(measured, energy_j=1e3 * measured.step_time_s)
    tables = {
        "nanotron": (replace(make_group(name="fitted one"), fitted=True), make_group(name="judged one", slower=1.3)),
        "vtrain": (replace(make_group(name="of vtrain"), table="vtrain"),),
        "llm_foundry": (replace(make_group(((16, 1, 1, 1),), name="alone"), table="llm_foundry"),),
        "perseus": (replace(stage, measured=measured),),
    }
    monkeypatch.setattr(physics, "CONFIGURATIONS", 1000)
    monkeypatch.setattr(physics, "read_tables", lambda: dict(tables))
    monkeypatch.setattr(fit_defaults, "read_tables", lambda: dict(tables))
    return tables


def run(monkeypatch: pytest.MonkeyPatch, path: Path, *arguments: str) -> None:
    monkeypatch.setattr(physics, "DOCUMENT", path)
    monkeypatch.setattr("sys.argv", ["physics.py", *arguments])
    physics.main()


def test_the_document_names_every_group_and_says_what_is_reached(
    small_tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path / "accuracy.md")
    text = (tmp_path / "accuracy.md").read_text()
    for name in ("fitted one", "judged one", "of vtrain", "1 smaller", "a stage"):
        assert f"| {name} |" in text, name
    assert (
        "| nanotron: Kendall's tau of step time, not calibrated, median over groups | ≥ 0.80 | 1.00 | 1.00 | yes |"
        in text
    )
    assert "| a million configurations predicted |" in capsys.readouterr().out
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


def test_a_quick_run_leaves_the_document_alone(small_tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, tmp_path / "accuracy.md", "--quick")
    assert not (tmp_path / "accuracy.md").exists()


def test_every_coefficient_is_fitted_and_printed_as_the_source_holds_it(
    small_tables, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_defaults.main()
    lines = capsys.readouterr().out.splitlines()
    headers = [line for line in lines if line.startswith("#")]
    assert [line.split(",")[:2] for line in headers] == [
        ["# Coefficients: 1 groups", " 8 rows"],
        ["# MEGATRON: 0 groups", " 0 rows"],
    ]
    fitted = [line for line in lines if not line.startswith("#")]
    assert [line.split("=")[0].strip() for line in fitted] == 2 * list(COEFFICIENTS)
    assert all(", was " in line and ", spread " in line for line in fitted)
