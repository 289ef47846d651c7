from __future__ import annotations

import numpy as np
import pytest
from builders import spec, table

from tuner import measured as module
from tuner.errors import InvalidInput
from tuner.measured import measured_trials
from tuner.physics.configurations import RECOMPUTE
from tuner.physics.evidence import Measured
from tuner.table import parse_table

JOB, CLUSTER = spec().training_job(), spec().hardware()


def measured(text: str) -> Measured:
    rows = parse_table(text, "M.csv", repeats=True)
    return measured_trials(rows, JOB, CLUSTER, "M.csv", lambda row, name: f"M.csv line {rows[row].line}, {name}")


def test_what_is_unknown_is_nan_and_what_ran_out_of_memory_does_not_fit() -> None:
    found = measured(table("4,1,1,1,900,,1.5,2000,40,ok\n4,1,1,2,,,2,,,ok\n4,1,1,4,,,,,,oom\n"))
    assert found.step_time_s[:2].tolist() == [1.5, 2.0]
    assert np.isnan(found.step_time_s[2])
    assert np.isnan(found.energy_j).tolist() == [False, True, True]
    assert np.isnan(found.peak_memory_gib).tolist() == [False, True, True]
    assert found.fits.tolist() == [True, True, False]
    assert found.configurations.frequency_mhz.tolist() == [900, 1410, 1410]


def test_a_row_may_name_its_zero_stage_and_recomputation() -> None:
    header = "dp,tp,pp,microbatch,frequency_mhz,step_time_s,energy_j,peak_memory_gib,status,zero_stage,recompute\n"
    x = measured(header + "4,1,1,1,,1,,,ok,3,selective\n4,1,1,1,,2,,,ok,,\n").configurations
    assert x.zero_stage.tolist() == [3, JOB.zero_stage]
    assert [RECOMPUTE[int(index)] for index in x.recompute] == ["selective", JOB.recompute]


def test_a_configuration_may_be_measured_more_than_once() -> None:
    assert len(measured(table("4,1,1,1,,,1,,,ok\n4,1,1,1,,,1.1,,,ok\n")).fits) == 2


def test_a_row_that_cannot_have_run_is_refused_by_its_line() -> None:
    with pytest.raises(InvalidInput, match=r"M\.csv line 3, dp \* tp \* pp: 8: must be the cluster's 4 GPUs"):
        measured(table("4,1,1,1,,,1,,,ok\n8,1,1,1,,,1,,,ok\n"))


def test_trials_that_all_ran_out_of_memory_teach_nothing() -> None:
    with pytest.raises(InvalidInput, match=r"M\.csv: '1 trials': must hold at least one that ran"):
        measured(table("4,1,1,1,,,,,,oom\n"))


def test_more_trials_than_a_fit_can_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRIALS", 2)
    with pytest.raises(InvalidInput, match="must hold at most 2"):
        measured(table("4,1,1,1,,,1,,,ok\n" * 3))


@pytest.mark.parametrize(
    ("cells", "name"), [("1e9,,", "step_time_s"), ("1,1e300,", "energy_j"), ("1,,1e-9", "peak_memory_gib")]
)
def test_a_number_that_no_cluster_can_measure_is_refused_by_its_line_and_column(cells: str, name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"M\.csv line 2, {name}: \S+: must be from"):
        measured(table(f"4,1,1,1,,,{cells},ok\n"))
