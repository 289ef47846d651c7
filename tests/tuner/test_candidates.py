from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from builders import spec
from hypothesis import given
from hypothesis import strategies as st

from tuner.candidates import check_configurations, read_configurations, space_candidates
from tuner.errors import InvalidInput
from tuner.physics.configurations import RECOMPUTE, Configurations
from tuner.space import build_space
from tuner.spec import SpaceSection

# Four A100 with clocks from 210 to 1410 MHz; 8 layers, 16 heads, ffn 4096, a batch of 16, ZeRO 1 without recomputation.
JOB, CLUSTER = spec().training_job(), spec().hardware()


def read(text: str, at_most: int = 1000) -> Configurations:
    return read_configurations(io.StringIO(text, newline=""), JOB, CLUSTER, "IN.csv", at_most)


def refusal(text: str, at_most: int = 1000) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text, at_most)
    return str(caught.value)


def test_rows_are_read_in_order_with_the_jobs_own_where_they_leave_something_out() -> None:
    x = read("dp,tp,pp,microbatch,frequency_mhz,zero_stage,recompute\n4,1,1,2,,,\n1,2,2,16,900,3,full\n")
    assert x.dp.tolist() == [4, 1]
    assert x.tp.tolist() == [1, 2]
    assert x.pp.tolist() == [1, 2]
    assert x.microbatch.tolist() == [2, 16]
    assert x.frequency_mhz.tolist() == [1410, 900]
    assert x.zero_stage.tolist() == [1, 3]
    assert [RECOMPUTE[int(index)] for index in x.recompute] == ["none", "full"]


def test_columns_may_be_left_out_stand_in_any_order_and_be_unknown() -> None:
    x = read("\ufeffnote, microbatch,pp,tp,dp\r\nhi,2,1,1,4\r\n\r\nho,1,1,4,1\r\n")
    assert (x.dp.tolist(), x.microbatch.tolist()) == ([4, 1], [2, 1])
    assert x.frequency_mhz.tolist() == [1410, 1410]


def test_whole_numbers_may_be_written_as_programs_without_an_empty_one_do() -> None:
    x = read("dp,tp,pp,microbatch,frequency_mhz,zero_stage\n4.0,1.0,1.0,2.0,900.0,2.0\n4,1,1,2,,\n")
    assert x.dp.tolist() == [4, 4]
    assert x.zero_stage.tolist() == [2, 1]


def test_layouts_that_only_some_trainers_cannot_run_are_predicted() -> None:
    # Over 8 layers pp = 3 is uneven; tp = 16 is more than the 8 kv heads and crosses nodes; 1 microbatch for 4 stages.
    cluster = spec(cluster={"gpu": "A100-SXM4-80GB", "nodes": 12, "gpus_per_node": 4}).hardware()
    text = "dp,tp,pp,microbatch\n1,16,3,16\n"
    assert len(read_configurations(io.StringIO(text), JOB, cluster, "IN.csv", 10)) == 1


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("3,1,1,1", "IN.csv line 3, dp * tp * pp: 3: must be the cluster's 4 GPUs"),
        ("8,1,1,1", "IN.csv line 3, dp * tp * pp: 8: must be the cluster's 4 GPUs"),
        ("4,1,1,32", "line 3, dp * microbatch: 128: must divide the global batch of 16"),
        ("4,1,1,3", "line 3, dp * microbatch: 12: must divide the global batch of 16"),
        ("-4,1,-1,1", "line 3, dp: '-4': must be a whole number above 0"),
        ("4,1,0,1", "line 3, pp: '0': must be a whole number above 0"),
        ("4,1,1,1.5", "line 3, microbatch: '1.5': must be a whole number above 0"),
        ("4,1,1,nan", "line 3, microbatch: 'nan': must be a whole number above 0"),
        ("4,1,1,inf", "line 3, microbatch: 'inf'"),
        ("1e308,1e308,1e308,1", "line 3, dp * tp * pp: inf: must be the cluster's 4 GPUs"),
        ("4,1,1,", "line 3, microbatch: missing: must be a whole number above 0"),
        ("4,1,1", "line 3, microbatch: missing: must be a whole number above 0"),
        ("4,one,1,1", "line 3, tp: 'one': must be a whole number above 0"),
        ("4,1,1,1,100", "line 3, frequency_mhz: 100: must be a clock of A100-SXM4-80GB, 210 to 1410 MHz"),
        ("4,1,1,1,1411", "line 3, frequency_mhz: 1411: must be a clock"),
        ("4,1,1,1,0", "line 3, frequency_mhz: '0': must be a whole number above 0"),
        ("4,1,1,1,,4", "line 3, zero_stage: '4': must be 0, 1, 2 or 3, or empty for the job's"),
        ("4,1,1,1,,,some", "line 3, recompute: 'some': must be none, selective, full, or empty for the job's"),
    ],
)
def test_a_row_that_cannot_be_is_refused_by_line_field_and_value(row: str, sentence: str) -> None:
    text = f"dp,tp,pp,microbatch,frequency_mhz,zero_stage,recompute\n4,1,1,1,,,\n{row}\n"
    assert sentence in refusal(text)


@pytest.mark.parametrize(
    ("changes", "row", "sentence"),
    [
        ({"layers": 2}, "1,1,4,1", "pp: 4: must not exceed the model's 2 layers"),
        (
            {"heads": 6, "hidden": 1020, "kv_heads": 6},
            "1,4,1,1",
            "tp: 4: must divide the model's heads = 6; valid: 1, 2",
        ),
        ({"ffn": 4098}, "1,4,1,1", "tp: 4: must divide the model's ffn = 4098"),
    ],
)
def test_a_row_that_the_model_cannot_be_split_by_is_refused(changes: dict[str, Any], row: str, sentence: str) -> None:
    shape = spec().job.model.model_dump() | {"head_dim": 0} | changes
    job = spec(job=spec().job.model_dump() | {"model": shape}).training_job()
    with pytest.raises(InvalidInput) as caught:
        read_configurations(io.StringIO(f"dp,tp,pp,microbatch\n{row}\n"), job, CLUSTER, "IN.csv", 10)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the header lacks dp, tp, pp, microbatch"),
        ("\n\n", "the header lacks dp, tp, pp, microbatch"),
        ("dp,tp,pp\n4,1,1\n", "the header lacks microbatch; it needs dp,tp,pp,microbatch"),
        ("dp,tp,pp,microbatch\n", "must hold at least one row below the header"),
        ("dp,tp,pp,microbatch,dp\n4,1,1,1,4\n", "the header must not hold dp twice"),
        ("\x00\x01\x02", "the header lacks dp"),
        ("dp,tp,pp,microbatch\n" + "4" * 200_000, "a line is longer than any row of numbers"),
    ],
)
def test_a_file_that_is_no_table_is_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(text)


def test_a_file_without_end_is_given_up_at_the_bound() -> None:
    class Endless(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            return super().readline() or "4,1,1,1\n"

    with pytest.raises(InvalidInput, match="must hold at most 100,000 configurations"):
        read_configurations(Endless("dp,tp,pp,microbatch\n"), JOB, CLUSTER, "IN.csv", 100_000)


def test_only_the_first_bad_rows_are_named() -> None:
    assert refusal("dp,tp,pp,microbatch\n" + "3,1,1,1\n" * 900).count("must be the cluster's 4 GPUs") == 5


def test_lines_are_counted_as_an_editor_does_where_a_cell_spans_several() -> None:
    assert "line 5, dp" in refusal('dp,tp,pp,microbatch,note\n4,1,1,1,"a\nb"\n\nx,1,1,1,\n')


@given(st.text(max_size=60))
def test_whatever_stands_in_a_file_is_read_or_refused_in_one_sentence(text: str) -> None:
    for content in (text, "dp,tp,pp,microbatch,frequency_mhz,zero_stage\n" + text):
        try:
            x = read(content)
        except InvalidInput as error:
            assert "\n" not in str(error)
        else:
            assert np.all(x.dp * x.tp * x.pp == 4)


def test_a_space_holds_every_valid_layout_at_every_clock_once() -> None:
    # The list names the highest clock, which the default is as well.
    section = SpaceSection(frequency_mhz=[1110, 1410])
    x = space_candidates(section, JOB, CLUSTER, 10_000)
    layouts = build_space(spec()).layouts
    assert len(x) == 2 * len(layouts)
    assert x.frequency_mhz.tolist() == [1410, 1110] * len(layouts)
    rows = set(zip(x.dp, x.tp, x.pp, x.microbatch, x.frequency_mhz, strict=True))
    assert len(rows) == len(x)
    check_configurations(x, JOB, CLUSTER, lambda row, name: f"{row}.{name}")


def test_a_space_beyond_the_bound_is_refused_with_its_size() -> None:
    with pytest.raises(InvalidInput, match=r"space: '\d+ configurations': must hold at most 10; give fewer"):
        space_candidates(SpaceSection(), JOB, CLUSTER, 10)
