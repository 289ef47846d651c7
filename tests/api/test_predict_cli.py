"""``paretune predict`` as a user runs it, less the process: the same entry point, in this one."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import SHAPE, document, table

from api.cli import main
from tuner.hardware import find_gpu

JOB = {name: document()[name] for name in ("job", "cluster", "space")}
HEADER = "dp,tp,pp,microbatch,frequency_mhz,zero_stage,recompute\n"


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str


class Cli:
    """The command line in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)
        self.write("job.yaml", yaml.safe_dump(JOB))

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def predict(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["paretune", "predict", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        said = self._capsys.readouterr()
        return Done(int(caught.value.code or 0), said.out, said.err)

    def refused(self, *arguments: str) -> str:
        """The one sentence with which the command line refuses."""
        done = self.predict(*arguments)
        assert done.code == 2, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def rows(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader((self.folder / name).read_text().splitlines()))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path, monkeypatch, capsys)


def test_a_job_alone_shows_its_predicted_frontier_memory_and_breakdown(cli: Cli) -> None:
    done = cli.predict("job.yaml")
    assert done.code == 0, done.stderr
    assert "PREDICTED frontier on 4 x A100-SXM4-80GB" in done.stdout
    assert "PREDICTED memory per stage in GiB" in done.stdout
    assert "a GPU has 80.0" in done.stdout
    assert "PREDICTED breakdown of the step time" in done.stdout
    assert "fastest" in done.stdout
    assert "least energy" in done.stdout
    assert "binds" in done.stdout
    assert "not calibrated: nothing of this cluster was measured" in done.stdout
    assert "\x1b" not in done.stdout
    # Nothing is kept anywhere.
    assert [path.name for path in cli.folder.iterdir()] == ["job.yaml"]


def test_a_study_file_is_a_job_file_whose_space_bounds_what_is_predicted(cli: Cli) -> None:
    cli.write("study.yaml", yaml.safe_dump(document(space={"tp": [2], "frequency_mhz": [900]})))
    answer = json.loads(cli.predict("study.yaml", "--json").stdout)
    assert answer["source"] == "predicted"
    assert {point["configuration"]["tp"] for point in answer["frontier"]} == {2}
    assert {point["configuration"]["frequency_mhz"] for point in answer["frontier"]} <= {None, 900}


def test_a_gpu_too_small_for_any_configuration_is_said_with_the_least_that_is_needed(cli: Cli) -> None:
    big = JOB["job"] | {"model": SHAPE | {"layers": 512, "hidden": 16384, "ffn": 65536}}
    cli.write("big.yaml", yaml.safe_dump(JOB | {"job": big}))
    done = cli.predict("big.yaml")
    assert done.code == 0, done.stderr
    assert "PREDICTED: no configuration fits; the smallest needs" in done.stdout
    assert " 0 of them fit into memory" in done.stdout


def test_a_gpu_that_the_catalogue_does_not_hold_is_given_inline(cli: Cli) -> None:
    gpu = find_gpu("A100-SXM4-80GB")
    facts = {name: getattr(gpu, name) for name in gpu.__slots__} | {"name": "mine"}
    cli.write("inline.yaml", yaml.safe_dump(JOB | {"cluster": {"gpu": facts, "gpus_per_node": 4}}))
    assert "4 x mine" in cli.predict("inline.yaml").stdout
    cli.write("unknown.yaml", yaml.safe_dump(JOB | {"cluster": {"gpu": "mine", "gpus_per_node": 4}}))
    assert "cluster.gpu: 'mine': must be one of" in cli.refused("unknown.yaml")


def test_each_row_of_a_csv_is_predicted_in_order(cli: Cli) -> None:
    cli.write("in.csv", HEADER + "1,4,1,2,900,0,full\n4,1,1,1,,,\n1,1,4,8,1110,3,selective\n")
    done = cli.predict("job.yaml", "--configurations", "in.csv", "--output", "out.csv")
    assert done.code == 0, done.stderr
    assert done.stdout == ""
    assert "3 configurations PREDICTED (uncalibrated)" in done.stderr
    rows = cli.rows("out.csv")
    assert [(row["dp"], row["tp"], row["pp"], row["microbatch"]) for row in rows] == [
        ("1", "4", "1", "2"),
        ("4", "1", "1", "1"),
        ("1", "1", "4", "8"),
    ]
    assert [(row["frequency_mhz"], row["zero_stage"], row["recompute"]) for row in rows] == [
        ("900", "0", "full"),
        ("1410", "1", "none"),
        ("1110", "3", "selective"),
    ]
    shown = cli.predict("job.yaml", "--configurations", "in.csv")
    assert "PREDICTED on 4 x A100-SXM4-80GB" in shown.stdout
    answer = json.loads(cli.predict("job.yaml", "--configurations", "in.csv", "--json").stdout)
    assert [float(row["step_time_s"]) for row in rows] == pytest.approx(
        [point["step_time_s"]["value"] for point in answer["predictions"]]
    )
    assert answer["frontier"] == []


def test_a_space_is_written_whole_beside_its_frontier(cli: Cli) -> None:
    done = cli.predict("job.yaml", "--output", "out.csv", "--json")
    answer = json.loads(done.stdout)
    rows = cli.rows("out.csv")
    assert len(rows) == answer["configurations"]
    assert sum(row["fits"] == "true" for row in rows) == answer["fitting"]
    fastest = min(float(row["step_time_s"]) for row in rows if row["fits"] == "true")
    assert answer["frontier"][answer["picks"]["fastest"]]["step_time_s"]["value"] == pytest.approx(fastest, rel=2e-3)


def slowed(cli: Cli, factor: float, *, rows: int = 4) -> str:
    """A table as if the cluster were this much slower than predicted."""
    cli.predict("job.yaml", "--output", "base.csv")
    lines = [
        f"{r['dp']},{r['tp']},{r['pp']},{r['microbatch']},{r['frequency_mhz']},,{float(r['step_time_s']) * factor},,,ok\n"
        for r in cli.rows("base.csv")[:: len(cli.rows("base.csv")) // rows][:rows]
    ]
    return cli.write("measured.csv", table("".join(lines)))


def test_measured_trials_pull_the_predictions_towards_them_and_narrow_the_bands(cli: Cli) -> None:
    slowed(cli, 1.5)
    done = cli.predict("job.yaml", "--calibrate", "measured.csv", "--output", "after.csv")
    assert done.code == 0, done.stderr
    assert "calibrated on 4 trials (measured.csv); moved most:" in done.stdout
    before, after = cli.rows("base.csv"), cli.rows("after.csv")
    ratios = [float(a["step_time_s"]) / float(b["step_time_s"]) for a, b in zip(after, before, strict=True)]
    assert 1.15 < sorted(ratios)[len(ratios) // 2] < 1.6

    def width(rows: list[dict[str, str]]) -> float:
        return sum(float(row["step_time_high_s"]) / float(row["step_time_low_s"]) for row in rows) / len(rows)

    assert width(after) < width(before)


def test_a_saved_calibration_predicts_as_the_trials_did_and_only_where_it_is_named(cli: Cli) -> None:
    slowed(cli, 1.4)
    cli.predict("job.yaml", "--calibrate", "measured.csv", "--save-calibration", "mine.json", "--output", "fitted.csv")
    done = cli.predict("job.yaml", "--calibration", "mine.json", "--output", "saved.csv")
    assert "calibrated on 4 trials (measured.csv)" in done.stdout
    assert cli.rows("saved.csv") == cli.rows("fitted.csv")
    cli.predict("job.yaml", "--output", "again.csv")
    assert cli.rows("again.csv") == cli.rows("base.csv")
    saved = json.loads((cli.folder / "mine.json").read_text())
    assert saved["gpu"] == "A100-SXM4-80GB"
    assert saved["intra_node_gb_s"] == 300


def test_a_saved_calibration_is_refused_on_another_gpu_and_said_on_another_number_of_nodes(cli: Cli) -> None:
    slowed(cli, 1.4)
    cli.predict("job.yaml", "--calibrate", "measured.csv", "--save-calibration", "mine.json")
    cli.write("two.yaml", yaml.safe_dump(JOB | {"cluster": JOB["cluster"] | {"nodes": 2}}))
    done = cli.predict("two.yaml", "--calibration", "mine.json")
    assert done.code == 0, done.stderr
    assert "the calibration was fitted on 1 x 4 GPUs, and is used for 2 x 4 GPUs" in done.stdout
    cli.write("h100.yaml", yaml.safe_dump(JOB | {"cluster": {"gpu": "H100-SXM5-80GB", "gpus_per_node": 4}}))
    sentence = cli.refused("h100.yaml", "--calibration", "mine.json")
    assert "--calibration.gpu: 'A100-SXM4-80GB': must be the cluster's GPU model, H100-SXM5-80GB" in sentence


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "the header lacks dp, tp, pp, microbatch"),
        (HEADER, "must hold at least one row"),
        ("dp,tp,pp\n4,1,1\n", "the header lacks microbatch"),
        (HEADER + "3,1,1,1,,,\n", "line 2, dp * tp * pp: 3: must be the cluster's 4 GPUs"),
        (HEADER + "4,1,1,-1,,,\n", "line 2, microbatch: '-1': must be a whole number above 0"),
        (HEADER + "4,1,1,8,,,\n", "dp * microbatch: 32: must divide the global batch of 16"),
        (HEADER + "4,1,1,nan,,,\n", "line 2, microbatch: 'nan'"),
        (HEADER + "4,1,1,1,5000,,\n", "line 2, frequency_mhz: 5000: must be a clock of A100-SXM4-80GB"),
        (b"\x00\xff\xfe" * 900, "must be text in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\x00", "must be text in UTF-8"),
        (b"\x00" * 300_000, "a line is longer than any row of numbers"),
    ],
)
def test_a_configurations_file_that_cannot_be_is_refused_in_one_sentence_and_nothing_is_written(
    cli: Cli, content: str | bytes, part: str
) -> None:
    cli.write("in.csv", content)
    assert part in cli.refused("job.yaml", "--configurations", "in.csv", "--output", "out.csv")
    assert not (cli.folder / "out.csv").exists()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "the header lacks dp, tp, pp, microbatch, frequency_mhz, step_time_s"),
        (table(""), "must hold at least one row"),
        (table("4,1,1,1,,,,,,oom\n"), "must hold at least one that ran"),
        (table("4,1,1,1,,,nan,,,ok\n"), "line 2, step_time_s: 'nan': must be a number above 0"),
        (table("8,1,1,1,,,1,,,ok\n"), "line 2, dp * tp * pp: 8: must be the cluster's 4 GPUs"),
        (b"\xff\x00", "must be text in UTF-8"),
    ],
)
def test_a_measured_table_that_cannot_be_is_refused_in_one_sentence(cli: Cli, content: str | bytes, part: str) -> None:
    cli.write("measured.csv", content)
    sentence = cli.refused("job.yaml", "--calibrate", "measured.csv", "--save-calibration", "mine.json")
    assert part in sentence
    assert "--calibrate" in sentence
    assert not (cli.folder / "mine.json").exists()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("9" * 10_000, "is no JSON"),
        ("{}", "must be a calibration as saved by paretune predict --save-calibration"),
        ("[1, 2]", "must be a calibration"),
        (b"\xff\xfe", "must be text in UTF-8"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_in_one_sentence(cli: Cli, content: str | bytes, part: str) -> None:
    cli.write("mine.json", content)
    sentence = cli.refused("job.yaml", "--calibration", "mine.json")
    assert part in sentence
    assert "--calibration" in sentence


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"job": JOB["job"] | {"global_batch_size": -1}},
            "job.global_batch_size: -1: must be greater than or equal to 1",
        ),
        ({"job": JOB["job"] | {"sequence_length": 0}}, "job.sequence_length: 0"),
        ({"job": JOB["job"] | {"model": SHAPE | {"layers": -8}}}, "job.model.layers: -8"),
        ({"job": JOB["job"] | {"model": SHAPE | {"layers": 10**8}}}, "must not exceed 10,000 to be predicted"),
        ({"job": JOB["job"] | {"pipeline_schedule": "zigzag"}}, "job.pipeline_schedule: 'zigzag': must be '1f1b' or"),
        ({"cluster": JOB["cluster"] | {"nodes": 0}}, "cluster.nodes: 0"),
        ({"cluster": JOB["cluster"] | {"inter_node_gb_s": float("nan")}}, "cluster.inter_node_gb_s"),
        ({"space": {"tp": [3]}}, "space: 'no valid layout'"),
        ({"colour": "red"}, "colour: 'red': is not a known field; valid: job, cluster, space"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_sentence(cli: Cli, changes: dict[str, Any], part: str) -> None:
    cli.write("bad.yaml", yaml.safe_dump(JOB | changes))
    assert part in cli.refused("bad.yaml")


def test_files_that_cannot_be_read_or_written_are_named(cli: Cli) -> None:
    cli.write("in.csv", HEADER + "4,1,1,1,,,\n")
    cli.write("measured.csv", table("4,1,1,1,,,1,,,ok\n"))
    for arguments, part in (
        (("missing.yaml",), "the job file: 'missing.yaml': must be a readable file"),
        (("job.yaml", "--configurations", "missing.csv"), "--configurations: 'missing.csv'"),
        (("job.yaml", "--configurations", "."), "--configurations: '.': must be a readable file (Is a directory)"),
        (("job.yaml", "--calibrate", "missing.csv"), "--calibrate: 'missing.csv'"),
        (("job.yaml", "--calibration", "missing.json"), "--calibration: 'missing.json'"),
        (("job.yaml", "--configurations", "in.csv", "--output", "no/out.csv"), "--output: 'no/out.csv'"),
        (("job.yaml", "--calibrate", "measured.csv", "--save-calibration", "no/x"), "--save-calibration: 'no/x'"),
        (("job.yaml", "--save-calibration", "mine.json"), "--save-calibration: 'mine.json': needs --calibrate"),
    ):
        assert part in cli.refused(*arguments)


def test_more_rows_than_can_be_shown_need_an_output(cli: Cli) -> None:
    cli.write("in.csv", HEADER + "4,1,1,1,,,\n" * 10_001)
    assert "use --output OUT.csv" in cli.refused("job.yaml", "--configurations", "in.csv")
    done = cli.predict("job.yaml", "--configurations", "in.csv", "--output", "out.csv")
    assert done.code == 0, done.stderr
    assert len(cli.rows("out.csv")) == 10_001


def test_the_command_runs_in_a_process_of_its_own_from_standard_input(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api.cli", "predict", "job.yaml", "--configurations", "/dev/stdin", "--json"],
        cwd=cli.folder,
        env=os.environ | {"PARETUNE_DATABASE_URL": "sqlite:////nowhere/x.db"},
        input=HEADER + "4,1,1,1,,,\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["configurations"] == 1


def test_a_long_pipeline_is_shown_by_its_ends_and_its_fullest_stage(cli: Cli) -> None:
    job = JOB["job"] | {"model": SHAPE | {"layers": 64}, "global_batch_size": 64}
    cluster = {"gpu": "A100-SXM4-80GB", "nodes": 8, "gpus_per_node": 4}
    cli.write("deep.yaml", yaml.safe_dump({"job": job, "cluster": cluster, "space": {"pp": [32], "microbatch": [1]}}))
    done = cli.predict("deep.yaml")
    assert done.code == 0, done.stderr
    picture = done.stdout.partition("PREDICTED memory")[2].partition("PREDICTED breakdown")[0]
    stages = [line.split()[1] for line in picture.splitlines() if line.startswith("│")]
    assert stages[0] == "0"
    assert stages[-1] == "31"
    assert "..." in stages
    assert len(stages) < 20
    assert picture.count("binds") == 1
