"""The commands as a user runs them: in a process of their own, over a database of their own."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from builders import document, measurement, table
from server import Server
from service import Service

from tuner.table import parse_table
from tuner.trial import FailureKind, TrialFailure

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "api.cli"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {
        "PARETUNE_DATABASE_URL": f"sqlite:///{tmp_path / 'paretune.db'}",
        "PARETUNE_CONFIG": str(tmp_path / "paretune.toml"),
    }


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=environment | changes,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    return run


@pytest.fixture
def service(environment: dict[str, str]) -> Service:
    return Service(environment["PARETUNE_DATABASE_URL"])


def write_study(folder: Path, **changes: Any) -> str:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(document(**changes)))
    return str(path)


def assert_one_sentence(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def test_tune_runs_a_study_and_shows_its_frontier_recommendations_and_picture(tmp_path: Path, run: Run) -> None:
    # A cluster that Ray would find by itself is none of ours to use.
    done = run("tune", write_study(tmp_path), RAY_ADDRESS="127.0.0.1:1")
    assert done.returncode == 0, done.stderr
    assert "Frontier of small (simulated, no GPU was measured)" in done.stdout
    assert "kJ per step" in done.stdout
    for policy in ("fastest:", "least energy, at most 5 % slower than the baseline:", "least energy:"):
        assert policy in done.stdout
    assert "hypervolume" in done.stderr
    assert (tmp_path / "small.png").read_bytes().startswith(b"\x89PNG")
    assert "\x1b" not in done.stdout
    again = run("tune", write_study(tmp_path))
    assert again.stdout == done.stdout
    assert "completed already" in again.stderr
    shown = run("frontier", "small", "--json")
    assert json.loads(shown.stdout)["study"]["state"] == "completed"


def test_tune_killed_at_random_moments_ends_with_the_trials_and_the_frontier_of_an_undisturbed_run(
    tmp_path: Path, environment: dict[str, str], run: Run
) -> None:
    study = write_study(tmp_path, budget={"trials": 14})
    assert run("tune", study).returncode == 0
    expected = findings(run)
    environment["PARETUNE_DATABASE_URL"] = f"sqlite:///{tmp_path / 'killed.db'}"
    rng, kills = random.Random(11), 0
    while kills < 4:
        process = subprocess.Popen(
            [*COMMAND, "tune", study],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # A start takes some seconds before the first trial; kills fall from there into the trials.
        time.sleep(rng.uniform(4.0, 9.0))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 2
    assert run("tune", study).returncode == 0
    assert findings(run) == expected


def findings(run: Run) -> tuple[str, list[dict[str, str]]]:
    """The frontier file and the trials, less what a restart may cost."""
    answer = json.loads(run("frontier", "small", "--json").stdout)
    frontier = json.dumps([answer["frontier"], answer["hypervolume_history"]])
    rows = list(csv.DictReader(io.StringIO(run("export", "small").stdout)))
    return frontier, [{k: v for k, v in row.items() if k != "gpu_seconds"} for row in rows]


@pytest.fixture
def two_nodes() -> Iterator[str]:
    """The address of a real Ray cluster of two nodes with two logical GPUs each, in a process of its own."""
    code = (
        "import sys\n"
        "from ray.cluster_utils import Cluster\n"
        "node = dict(num_cpus=1, num_gpus=2, object_store_memory=80 * 2**20)\n"
        "cluster = Cluster(initialize_head=True, head_node_args=dict(node, include_dashboard=False))\n"
        "cluster.add_node(**node)\n"
        "print(cluster.address, flush=True)\n"
        "sys.stdin.read()\n"
        "cluster.shutdown()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    assert process.stdout is not None
    yield next(line.strip() for line in process.stdout if re.fullmatch(r"\S+:\d+\n", line))
    process.communicate(timeout=60)


def test_a_study_runs_on_a_ray_cluster_that_is_there_already(tmp_path: Path, run: Run, two_nodes: str) -> None:
    cluster = {"gpu": "A100-SXM4-80GB", "nodes": 2, "gpus_per_node": 2}
    study = write_study(tmp_path, cluster=cluster, budget={"trials": 3})
    done = run("tune", study, "--ray-address", two_nodes, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["complete"] == 3
    large = write_study(tmp_path, name="large", cluster=cluster | {"nodes": 4})
    assert_one_sentence(run("tune", large, "--ray-address", two_nodes), 7, "8 GPUs are needed", "has 4")


def test_every_command_that_reads_agrees_with_the_service(service: Service, run: Run) -> None:
    lease = service.started()
    for outcome in (measurement(1.0, 1000.0), measurement(1.04, 900.0), measurement(2.0, 1.0)):
        service.finish(lease, outcome)
    frontier = json.loads(run("frontier", "small", "--json").stdout)
    assert [point["trial"] for point in frontier["frontier"]] == [0, 1]
    shown = json.loads(run("show", "small", "--json").stdout)
    assert shown["counts"]["complete"] == 3
    assert json.loads(run("studies", "--json").stdout)["studies"][0]["name"] == "small"
    recommended = run("recommend", "small", "--policy", "least_energy", "--max-slowdown", "0.05", "--json")
    assert json.loads(recommended.stdout)["point"]["trial"] == 1
    assert "simulated" in run("recommend", "small").stdout
    assert "running" in run("studies").stdout
    assert "3 complete" in run("show", "small").stdout


def test_an_export_can_be_replayed(service: Service, run: Run, tmp_path: Path) -> None:
    lease = service.started()
    service.finish(lease, measurement(1.0, 1000.0))
    service.finish(lease, TrialFailure(FailureKind.out_of_memory, "needs, 99 GiB"))
    out = tmp_path / "trials.csv"
    assert run("export", "small", "--output", str(out)).returncode == 0
    rows = parse_table(out.read_text())
    assert [row.out_of_memory for row in rows] == [False, True]
    assert rows[0].energy_j == 1000
    assert len(json.loads(run("export", "small", "--format", "json").stdout)["trials"]) == 2


def test_a_study_is_steered_and_deleted(service: Service, run: Run) -> None:
    service.submit()
    assert json.loads(run("pause", "small", "--json").stdout)["state"] == "paused"
    assert json.loads(run("resume", "small", "--json").stdout)["state"] == "running"
    assert json.loads(run("stop", "small", "--json").stdout)["state"] == "stopped"
    assert_one_sentence(run("cancel", "small"), 5, "a stopped study cannot cancel")
    assert run("delete", "small").returncode == 0
    assert_one_sentence(run("show", "small"), 4, "there is no study 'small'")


def test_layouts_shows_valid_and_refused_layouts_and_stores_nothing(tmp_path: Path, run: Run) -> None:
    study = write_study(tmp_path, space={"tp": [1, 3]})
    assert "tp * pp = 3 does not divide the 4 GPUs" in run("layouts", study).stdout
    assert json.loads(run("layouts", study, "--json").stdout)["layouts"]
    assert not (tmp_path / "paretune.db").exists()


def test_no_recommendation_has_its_own_exit_code(service: Service, run: Run) -> None:
    service.submit()
    assert_one_sentence(run("recommend", "small"), 3, "no configuration has been measured yet")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"budget": {"trials": 0}}, ["budget.trials: 0", "greater than or equal to 1"]),
        ({"cluster": {"gpu": "H100", "gpus_per_node": 4}}, ["cluster.gpu: 'H100'", "H100-SXM5-80GB"]),
        ({"job": document()["job"] | {"model": "missing.json"}}, ["job.model", "missing.json", "must be a readable file"]),
        ({"runner": {"kind": "replay", "table": "none.csv"}}, ["runner.table", "none.csv", "must be a readable file"]),
        ({"job": document()["job"] | {"global_batch_size": 7}, "space": {"tp": [1], "pp": [1]}}, ["does not divide the global batch of 7"]),
    ],
)  # fmt: skip
def test_a_study_file_that_cannot_be_run_is_one_sentence_and_makes_no_database(
    tmp_path: Path, run: Run, changes: dict[str, Any], parts: list[str]
) -> None:
    assert_one_sentence(run("tune", write_study(tmp_path, **changes)), 2, *parts)
    assert not (tmp_path / "paretune.db").exists()


@pytest.mark.parametrize("text", ["name: [", "{", "\x00", "- a\n- b", "", "a: &x [*x]", "name: x\n\tjob: y"])
def test_a_file_that_is_no_study_is_one_sentence(tmp_path: Path, run: Run, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    assert_one_sentence(run("layouts", str(path)), 2)


def test_paths_in_a_study_file_are_relative_to_it(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "studies"
    folder.mkdir()
    (folder / "measured.csv").write_text(table("4,1,1,1,,,1,10,,ok\n"))
    study = write_study(folder, runner={"kind": "replay", "table": "measured.csv"}, space={})
    assert json.loads(run("layouts", study, "--json").stdout)["configurations"] == 1


def test_an_unreachable_ray_cluster_or_one_too_small_stores_nothing(tmp_path: Path, run: Run, service: Service) -> None:
    study = write_study(tmp_path)
    assert_one_sentence(run("tune", study, "--ray-address", "127.0.0.1:1"), 7, "cannot reach Ray at 127.0.0.1:1")
    assert_one_sentence(
        run("tune", study, PARETUNE_LOCAL_GPUS="2"), 7, "nodes * gpus_per_node = 4 GPUs are needed", "has 2"
    )
    assert service.repository.studies()[0] == []


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"PARETUNE_DATABASE_URL": "mysql://x:secret@h/n"}, ["PARETUNE_DATABASE_URL", "sqlite:///PATH"]),
        ({"PARETUNE_DATABASE_URL": "nonsense"}, ["PARETUNE_DATABASE_URL"]),
        ({"PARETUNE_PORT": "many"}, ["PARETUNE_PORT: 'many'"]),
        ({"PARETUNE_LOCAL_GPUS": "0"}, ["PARETUNE_LOCAL_GPUS"]),
    ],
)
def test_a_bad_setting_is_named_as_it_stands_in_the_environment(
    run: Run, changes: dict[str, str], parts: list[str]
) -> None:
    done = run("studies", **changes)
    assert_one_sentence(done, 2, *parts)
    assert "secret" not in done.stderr


def test_settings_come_from_a_file_and_the_environment_wins(tmp_path: Path, run: Run, service: Service) -> None:
    service.submit()
    (tmp_path / "paretune.toml").write_text('database_url = "mysql://h/n"\nport = 1\n')
    assert "small" in run("studies").stdout
    (tmp_path / "paretune.toml").write_text("colour = 1\n")
    assert_one_sentence(run("studies"), 2, "COLOUR")
    (tmp_path / "paretune.toml").write_text("= broken")
    assert_one_sentence(run("studies"), 2, "PARETUNE_CONFIG", "TOML")


def test_a_database_that_cannot_be_written_is_one_sentence(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").write_text("")
    assert_one_sentence(run("studies", PARETUNE_DATABASE_URL=f"sqlite:///{tmp_path}/file/below/x.db"), 6, "folder")
    (tmp_path / "no.db").write_text("this is no database, however long one looks at it " * 20)
    assert_one_sentence(run("studies", PARETUNE_DATABASE_URL=f"sqlite:///{tmp_path}/no.db"), 6, "not a database")


def test_serve_has_the_studies_it_is_given_and_refuses_what_it_cannot_serve(
    tmp_path: Path, run: Run, service: Service, environment: dict[str, str]
) -> None:
    study = write_study(tmp_path)
    with Server(environment["PARETUNE_DATABASE_URL"], study) as server:
        assert httpx2.get(f"{server.url}/v1/studies/small").json()["state"] == "queued"
        taken = server.url.rpartition(":")[2]
        assert_one_sentence(run("serve", "--port", taken), 2, "PARETUNE_PORT", "must be free to listen on")
    assert_one_sentence(run("serve", write_study(tmp_path, budget={"trials": 7})), 5, "budget.trials")
    assert_one_sentence(run("serve", "--host", "no.such.host.invalid"), 2, "PARETUNE_HOST")


def test_help_names_every_command_and_the_version_of_usage_errors_is_two(run: Run) -> None:
    assert "tune" in run("--help").stdout
    assert run("explode").returncode == 2
