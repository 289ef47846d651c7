from __future__ import annotations

import pytest
from builders import configuration, table

from tuner.errors import InvalidInput
from tuner.table import DEFAULT_LAUNCH_S, parse_table


def test_rows_are_read_with_units_as_the_header_names_them() -> None:
    rows = parse_table(table("4,1,1,1,1410,30,1.5,2000,40.5,ok\n4,1,1,2,,,,,,oom\n"))
    assert rows[0].configuration == configuration(mhz=1410)
    assert (rows[0].launch_s, rows[0].step_time_s, rows[0].energy_j, rows[0].peak_memory_gib) == (30, 1.5, 2000, 40.5)
    assert rows[1].configuration == configuration(microbatch=2)
    assert rows[1].out_of_memory
    assert rows[1].launch_s == DEFAULT_LAUNCH_S


def test_launch_s_may_be_left_out_and_columns_may_stand_in_any_order() -> None:
    text = "status,dp,tp,pp,microbatch,frequency_mhz,step_time_s,energy_j,peak_memory_gib,note\nok,4,1,1,1,,2,,,hi\n"
    (row,) = parse_table(text)
    assert row.launch_s == DEFAULT_LAUNCH_S
    assert row.energy_j is None


def test_a_byte_order_mark_and_spaces_in_the_header_are_no_obstacle() -> None:
    text = (
        "\ufeffdp, tp, pp, microbatch, frequency_mhz, step_time_s, energy_j, peak_memory_gib, status\n4,1,1,1,,2,,,ok\n"
    )
    assert len(parse_table(text)) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dp,tp\n1,1\n", "the header lacks pp, microbatch, frequency_mhz, step_time_s"),
        ("", "the header lacks dp"),
        (table(""), "must hold at least one row"),
        (table("4,1,1,1,,,nan,,,ok\n"), "line 2, step_time_s: 'nan': must be a number above 0"),
        (table("4,1,1,1,,,-1,,,ok\n"), "line 2, step_time_s: '-1': must be a number above 0"),
        (table("4,1,1,1,,,inf,,,ok\n"), "line 2, step_time_s: 'inf'"),
        (table("4,1,1,1,,,1,0,,ok\n"), "line 2, energy_j: '0'"),
        (table("4,1,1,1,1410.5,,1,,,ok\n"), "line 2, frequency_mhz: '1410.5': must be a whole number above 0"),
        (table("4,1,1,x,,,1,,,ok\n"), "line 2, microbatch: 'x'"),
        (table("4,1,1,,,,1,,,ok\n"), "line 2, microbatch: missing: is required"),
        (table("4,1,1,1,,,,,,ok\n"), "line 2, step_time_s: missing: is required where status is ok"),
        (table("4,1,1,1,,,1,,,fine\n"), "line 2, status: 'fine': must be ok or oom"),
        (
            table("4,1,1,1,,,1,,,ok\n4,1,1,1,,,2,,,ok\n"),
            "line 3: 'dp4-tp1-pp1-mb1@default': must not stand in the table twice",
        ),
    ],
)
def test_a_table_that_cannot_be_is_refused_by_line_and_column(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_table(text)
    assert sentence in str(caught.value)


def test_zero_stage_and_recompute_are_read_where_there_are_such_columns_and_are_the_jobs_where_empty() -> None:
    header = "dp,tp,pp,microbatch,frequency_mhz,step_time_s,energy_j,peak_memory_gib,status,zero_stage,recompute\n"
    rows = parse_table(header + "4,1,1,1,,2,,,ok,3,full\n4,1,1,2,,2,,,ok,,\n4,1,1,4,,2,,,ok,0.0, none\n")
    assert [(row.zero_stage, row.recompute) for row in rows] == [(3, "full"), (None, None), (0, "none")]
    for cells, sentence in (("4,none", "line 2, zero_stage: '4'"), ("1,most", "line 2, recompute: 'most'")):
        with pytest.raises(InvalidInput, match=sentence):
            parse_table(header + f"4,1,1,1,,2,,,ok,{cells}\n")


def test_a_configuration_may_stand_twice_where_repeats_are_wanted() -> None:
    rows = parse_table(table("4,1,1,1,,,1,,,ok\n\n4,1,1,1,,,2,,,ok\n"), repeats=True)
    assert [(row.line, row.step_time_s) for row in rows] == [(2, 1.0), (4, 2.0)]


@pytest.mark.parametrize("second", ["x", '"x', '"x"'])
def test_a_quote_left_open_swallows_no_rows(second: str) -> None:
    rows = f'4,1,1,1,,,1,,,"open,ok\n4,1,1,2,,,1,,,{second},ok\n'
    with pytest.raises(InvalidInput, match="is no CSV"):
        parse_table(table("").replace("status", "note,status") + rows)


def test_a_column_that_may_be_left_out_must_not_stand_twice_either() -> None:
    with pytest.raises(InvalidInput, match="the header must not hold recompute twice"):
        parse_table(table("").replace("status", "status,recompute,recompute") + "4,1,1,1,,,1,,,ok,full,none\n")


def test_what_no_csv_reader_can_take_is_refused_by_its_line() -> None:
    with pytest.raises(InvalidInput, match="a line is longer than any row of numbers"):
        parse_table(table("4,1,1,1,,,1,,," + "x" * 200_000 + "\n"))
