from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import SHAPE, document, measurement, table
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service import Service

from api.app import create_app
from tuner.trial import FailureKind, TrialFailure

JOB = {name: document()[name] for name in ("job", "cluster", "space")}
ONE = {"dp": 4, "tp": 1, "pp": 1, "microbatch": 1}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(f"sqlite:///{tmp_path / 'paretune.db'}")
    with TestClient(create_app(made.repository), raise_server_exceptions=False) as client:
        made.client = client
        yield made


def predictions(service: Service, **changes: Any) -> dict[str, Any]:
    response = service.client.post("/v1/predictions", json=JOB | changes)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def refusal(service: Service, status: int = 422, **changes: Any) -> dict[str, Any]:
    response = service.client.post("/v1/predictions", json=JOB | changes)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "instance", "errors"}
    assert "\n" not in problem["detail"]
    return problem


def test_a_space_is_answered_by_its_frontier_with_bands_and_a_breakdown_that_adds_up(service: Service) -> None:
    answer = predictions(service)
    assert answer["source"] == "predicted"
    assert answer["configurations"] >= answer["fitting"] >= len(answer["frontier"]) > 0
    times = [point["step_time_s"]["value"] for point in answer["frontier"]]
    energies = [point["energy_j"]["value"] for point in answer["frontier"]]
    assert times == sorted(times)
    assert energies == sorted(energies, reverse=True)
    for point in answer["frontier"]:
        assert point["source"] == "predicted"
        assert point["fits"] is True
        for name in ("step_time_s", "energy_j", "peak_memory_gib"):
            assert 0 < point[name]["low"] <= point[name]["value"] <= point[name]["high"]
        assert sum(point["breakdown"].values()) == pytest.approx(point["step_time_s"]["value"])
        assert point["breakdown"][point["binds"]] == max(point["breakdown"].values())
        power_w = point["average_power_w"] * answer["gpus"]
        assert power_w * point["step_time_s"]["value"] == pytest.approx(point["energy_j"]["value"])
        assert point["tokens_per_s"] * point["step_time_s"]["value"] == pytest.approx(16 * 1024)
    assert answer["picks"]["fastest"] == 0
    assert answer["picks"]["least_energy"] == len(answer["frontier"]) - 1
    assert answer["calibration"] == {"trials": 0, "fitted_to": None, "moved": [], "notes": [], "document": None}


def test_the_memory_picture_has_every_stage_and_its_fullest_is_the_peak(service: Service) -> None:
    asked = [ONE | {"dp": 1, "pp": 4}, ONE | {"dp": 1, "tp": 2, "pp": 2, "recompute": "full"}, ONE]
    answer = predictions(service, configurations=asked)
    assert [picture["pp"] for picture in answer["memory"]] == [4, 2, 1]
    for picture, point in zip(answer["memory"], answer["predictions"], strict=True):
        assert picture["source"] == "predicted"
        assert picture["capacity_gib"] == 80
        assert [stage["stage"] for stage in picture["stages"]] == list(range(picture["pp"]))
        assert sum(stage["layers"] for stage in picture["stages"]) == SHAPE["layers"]
        for stage in picture["stages"]:
            held = ("weights", "gradients", "optimizer", "activations", "logits", "overhead")
            assert stage["total_gib"] == pytest.approx(sum(stage[f"{name}_gib"] for name in held))
        fullest = max(picture["stages"], key=lambda stage: stage["total_gib"])
        assert picture["binding_stage"] == point["binding_stage"] == fullest["stage"]
        assert fullest["total_gib"] == pytest.approx(point["peak_memory_gib"]["value"])


def test_each_configuration_asked_for_is_answered_in_order_fitting_or_not(service: Service) -> None:
    gpu = {"cluster": {"gpu": "A40", "gpus_per_node": 4}}
    shape = SHAPE | {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 16384}
    asked = [ONE | {"microbatch": 4}, ONE | {"dp": 1, "tp": 4, "frequency_mhz": 900, "zero_stage": 3}]
    answer = predictions(service, **gpu, job=JOB["job"] | {"model": shape}, space={}, configurations=asked)
    first, second = answer["predictions"]
    assert first["configuration"] == ONE | {
        "microbatch": 4,
        "frequency_mhz": None,
        "zero_stage": 1,
        "recompute": "none",
    }
    assert second["configuration"]["frequency_mhz"] == 900
    assert second["configuration"]["zero_stage"] == 3
    assert first["fits"] is False
    assert first["peak_memory_gib"]["value"] > second["peak_memory_gib"]["value"]
    assert answer["frontier"] == []
    assert answer["picks"] == {}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_schedule_of_the_pipeline_decides_how_many_microbatches_are_held(service: Service, schedule: str) -> None:
    job = JOB["job"] | {"pipeline_schedule": schedule}
    answer = predictions(service, job=job, configurations=[ONE | {"dp": 1, "pp": 4}])
    assert answer["memory"][0]["stages"][0]["in_flight"] == {"1f1b": 4, "gpipe": 16}[schedule]


def test_a_studys_trials_calibrate_the_model_and_are_said_to_be_simulated(service: Service) -> None:
    plain = predictions(service, configurations=[ONE])["predictions"][0]
    lease = service.started()
    for _ in range(3):
        service.finish(lease, measurement(2 * plain["step_time_s"]["value"], 2 * plain["energy_j"]["value"]))
    service.finish(lease, TrialFailure(FailureKind.out_of_memory, "too large"))
    service.finish(lease, TrialFailure(FailureKind.crashed, "bang"))
    answer = predictions(service, configurations=[ONE], study="small")
    assert answer["calibration"]["trials"] == 3
    assert answer["calibration"]["fitted_to"] == "study small (simulated)"
    assert answer["calibration"]["moved"]
    assert answer["predictions"][0]["step_time_s"]["value"] > 1.1 * plain["step_time_s"]["value"]
    # What it learned can be sent along instead of the study, to a cluster of another size as well.
    learned = answer["calibration"]["document"]
    again = predictions(service, configurations=[ONE], calibration=learned)
    assert again["predictions"] == answer["predictions"]
    assert again["calibration"]["moved"] == []
    two = predictions(
        service,
        cluster=JOB["cluster"] | {"nodes": 2},
        configurations=[ONE | {"dp": 8}],
        calibration=learned,
    )
    assert "fitted on 1 x 4 GPUs, and is used for 2 x 4 GPUs" in two["calibration"]["notes"][0]


def test_a_study_that_is_missing_has_no_trial_or_ran_on_another_gpu_is_refused(service: Service) -> None:
    assert refusal(service, 404, study="nowhere")["type"] == "urn:paretune:error:not-found"
    service.started()
    assert "study: '0 trials': must hold at least one that ran" in refusal(service, study="small")["detail"]
    other = {"gpu": "H100-SXM5-80GB", "gpus_per_node": 4}
    problem = refusal(service, study="small", cluster=other, space={})
    assert problem["errors"][0]["field"] == "study"
    assert "ran on A100-SXM4-80GB" in problem["detail"]


def test_a_replayed_study_is_said_to_be_replayed(service: Service) -> None:
    csv = table("4,1,1,1,,,1,,,ok\n4,1,1,2,,,1.5,,,ok\n")
    lease = service.started(runner={"kind": "replay", "csv": csv}, space={})
    service.finish(lease, measurement(1.0, None))
    answer = predictions(service, configurations=[ONE], study="small")
    assert answer["calibration"]["fitted_to"] == "study small (replayed)"


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"configurations": []}, "configurations", "at least 1 item"),
        ({"configurations": [ONE] * 10_001}, "configurations", "at most 10000 items"),
        ({"configurations": [ONE, ONE | {"dp": 3}]}, "configurations.1.dp * tp * pp", "must be the cluster's 4 GPUs"),
        ({"configurations": [ONE | {"dp": -4}]}, "configurations.0.dp", "must be greater than or equal to 1"),
        (
            {"configurations": [ONE | {"microbatch": 32}]},
            "configurations.0.dp * microbatch",
            "must divide the global batch",
        ),
        ({"configurations": [ONE | {"microbatch": 1.5}]}, "configurations.0.microbatch", "must be a valid integer"),
        ({"configurations": [ONE | {"frequency_mhz": 100}]}, "configurations.0.frequency_mhz", "must be a clock of"),
        ({"configurations": [ONE | {"zero_stage": 4}]}, "configurations.0.zero_stage", "less than or equal to 3"),
        (
            {"configurations": [ONE | {"recompute": "some"}]},
            "configurations.0.recompute",
            "must be 'none', 'selective'",
        ),
        ({"configurations": [{"dp": 4}]}, "configurations.0.tp", "is required"),
        ({"configurations": 3}, "configurations", "must be a valid list"),
        ({"job": JOB["job"] | {"global_batch_size": 0}}, "job.global_batch_size", "greater than or equal to 1"),
        ({"job": JOB["job"] | {"model": "/etc/passwd"}}, "job.model", "read by the command line only"),
        ({"job": JOB["job"] | {"model": SHAPE | {"layers": 10**9}}}, "job.model.layers", "must not exceed 10,000"),
        ({"cluster": {"gpu": "mine", "gpus_per_node": 4}}, "cluster.gpu", "must be one of"),
        ({"space": {"tp": [3]}}, "space", "candidates are refused"),
        ({"calibration": {}}, "calibration", "must be a calibration"),
        ({"calibration": []}, "calibration", "must be a mapping"),
        ({"study": ""}, "study", "at least 1 character"),
        ({"name": "x"}, "name", "is not a known field; valid: job, cluster, space, configurations, study, calibration"),
    ],
)
def test_a_request_that_cannot_be_is_refused_by_field(
    service: Service, changes: dict[str, Any], field: str, reason: str
) -> None:
    errors = {error["field"]: error["reason"] for error in refusal(service, **changes)["errors"]}
    assert reason in errors[field]


def test_a_space_beyond_the_bound_is_refused_with_its_size(service: Service) -> None:
    shape = {"layers": 256, "hidden": 4096, "heads": 256, "kv_heads": 256, "ffn": 4096, "vocab": 32768}
    problem = refusal(
        service,
        job=JOB["job"] | {"model": shape, "global_batch_size": 4096 * 180_180},
        cluster={"gpu": "A100-SXM4-80GB", "nodes": 512, "gpus_per_node": 8},
        space={
            "frequency_mhz": {"min": 210, "max": 1410, "step": 15},
            "microbatch": list(range(1, 65)),
            "tp_within_node": False,
            "microbatches_fill_pipeline": False,
        },
    )
    assert problem["errors"][0]["field"] == "space"
    assert "must hold at most 200,000" in problem["detail"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["job", "cluster", "space", "configurations", "study", "calibration"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dp", "gpu", "x"]), inner),
        max_leaves=5,
    ),
)
def test_whatever_stands_in_a_field_is_answered_or_refused_in_the_one_shape(
    service: Service, field: str, value: Any
) -> None:
    response = service.client.post("/v1/predictions", json=JOB | {field: value})
    assert response.status_code in (200, 404, 422), response.text
    assert "Traceback" not in response.text


def test_the_web_process_imports_no_solver_until_it_calibrates() -> None:
    code = "import sys, api.app; print(sorted({'scipy', 'ray', 'torch', 'optuna'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
