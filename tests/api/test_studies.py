from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from builders import document, measurement, spec, table
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service import Service

from api.app import create_app
from tuner.errors import ERRORS
from tuner.states import StudyEvent, StudyState
from tuner.trial import FailureKind, TrialFailure


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(f"sqlite:///{tmp_path / 'paretune.db'}")
    with TestClient(create_app(made.repository), raise_server_exceptions=False) as client:
        made.client = client
        yield made


def assert_problem(response: Any, status: int, type_: str) -> dict[str, Any]:
    """Every error has the one shape, whatever caused it."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "instance", "errors"}
    assert problem["type"] == f"urn:paretune:error:{type_}"
    assert problem["status"] == status
    assert problem["detail"]
    assert "Traceback" not in response.text
    return problem


def test_creating_a_study_answers_it_queued_with_its_spec_and_the_size_of_its_space(service: Service) -> None:
    response = service.client.post("/v1/studies", json=document())
    assert response.status_code == 201
    study = response.json()
    assert response.headers["location"] == f"/v1/studies/{study['id']}"
    assert study["state"] == "queued"
    assert study["simulated"] is True
    assert study["spec"]["sampler"] == {"kind": "tpe", "seed": 0}
    assert study["configurations"] > 20
    assert service.client.get(response.headers["location"]).json() == study
    assert service.client.get("/v1/studies/small").json() == study


def test_creating_the_same_study_again_gets_it_and_another_spec_is_a_conflict_with_the_difference(
    service: Service,
) -> None:
    first = service.client.post("/v1/studies", json=document()).json()
    again = service.client.post("/v1/studies", json=document())
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = service.client.post("/v1/studies", json=document(budget={"trials": 7}))
    problem = assert_problem(other, 409, "conflict")
    assert problem["errors"] == [{"field": "budget.trials", "value": 7, "reason": "is 6 there and 7 here"}]
    assert service.client.get("/v1/studies/small").json() == first


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (document(budget={"trials": 0}), "budget.trials"),
        (document(cluster={"gpu": "H100", "gpus_per_node": 4}), "cluster.gpu"),
        (document(space={"tp": [3]}), "space"),
        (document(job=document()["job"] | {"global_batch_size": 7}, space={"tp": [1], "pp": [1]}), "space"),
        (document(runner={"kind": "replay", "table": "/etc/passwd"}), "runner"),
        (document(runner={"kind": "replay", "csv": "dp,tp\n1,1\n"}, space={}), "runner.csv"),
        (document(job=document()["job"] | {"model": "/etc/passwd"}), "job.model"),
        ({}, "name"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused_by_field_and_nothing_is_stored(
    service: Service, body: dict[str, Any], field: str
) -> None:
    problem = assert_problem(service.client.post("/v1/studies", json=body), 422, "invalid-input")
    assert field in [error["field"] for error in problem["errors"]]
    assert service.client.get("/v1/studies").json()["studies"] == []
    assert service.repository.last_event_id() == 0


@pytest.mark.parametrize(
    ("content", "type_"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json"),
        (b"3", "application/json"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_in_the_same_shape(
    service: Service, content: bytes, type_: str
) -> None:
    response = service.client.post("/v1/studies", content=content, headers={"content-type": type_})
    assert_problem(response, 422, "invalid-input")


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "\\ud800"}',
        json.dumps(document(cluster={"gpu": "X", "gpus_per_node": 1})).replace("X", "\\ud800"),
        json.dumps(document()).replace("sequence_length", "\\ud800"),
        json.dumps(document(runner={"kind": "replay", "csv": "X"}, space={})).replace("X", "\\udfff"),
    ],
)
def test_text_that_no_encoding_can_carry_is_refused(service: Service, body: str) -> None:
    response = service.client.post("/v1/studies", content=body, headers={"content-type": "application/json"})
    problem = assert_problem(response, 422, "invalid-input")
    assert "must be text that UTF-8 can encode" in problem["detail"]


@pytest.mark.parametrize("type_", ["text/yaml", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_of_another_type_is_told_which_type_is_meant(service: Service, type_: str) -> None:
    response = service.client.post("/v1/studies", content=b"name: x", headers={"content-type": type_})
    problem = assert_problem(response, 415, "unsupported-media-type")
    assert problem["detail"] == f"Content-Type: {type_}: must be application/json"


def test_a_body_beyond_the_limit_is_refused_whether_its_length_is_declared_or_not(service: Service) -> None:
    def stream() -> Iterator[bytes]:
        for _ in range(26):
            yield b" " * 1_000_000

    for content in (b" " * 24_000_001, stream()):
        headers = {"content-type": "application/json"}
        response = service.client.post("/v1/studies", content=content, headers=headers)
        problem = assert_problem(response, 413, "content-too-large")
        assert problem["detail"] == "the body must not exceed 24,000,000 bytes"


def test_a_document_with_a_million_faults_is_answered_soon_and_briefly(service: Service) -> None:
    faults = dict.fromkeys((f"k{n}" for n in range(200_000)), 1)
    problem = assert_problem(service.client.post("/v1/studies", json=document(**faults)), 422, "invalid-input")
    assert len(problem["errors"]) <= 50


def test_broken_json_says_where_it_breaks(service: Service) -> None:
    response = service.client.post("/v1/studies", content=b'{"name":', headers={"content-type": "application/json"})
    problem = assert_problem(response, 422, "invalid-input")
    assert problem["detail"] == "body: 'character 8': is no JSON: Expecting value"


def test_every_get_answers_head_and_a_refused_method_names_the_allowed_ones(service: Service) -> None:
    service.submit()
    for path in ("/", "/healthz", "/readyz", "/v1/studies", "/v1/studies/small/frontier"):
        response = service.client.head(path)
        assert (response.status_code, response.content) == (200, b"")
    assert service.client.head("/v1/studies/nobody").status_code == 404
    assert_problem(service.client.put("/v1/studies"), 405, "method-not-allowed")
    assert service.client.put("/v1/studies").headers["allow"] == "GET, HEAD, POST"
    assert service.client.patch("/v1/studies/small").headers["allow"] == "DELETE, GET, HEAD"


def test_a_body_that_is_no_text_is_a_bad_request_in_the_same_shape(service: Service) -> None:
    response = service.client.post("/v1/studies", content=b"\xff", headers={"content-type": "application/json"})
    assert_problem(response, 400, "bad-request")


def test_numbers_that_are_none_are_refused(service: Service) -> None:
    body = json.dumps(document(budget={"gpu_hours": float("nan")}))
    response = service.client.post("/v1/studies", content=body, headers={"content-type": "application/json"})
    problem = assert_problem(response, 422, "invalid-input")
    assert problem["errors"][0]["field"] == "budget.gpu_hours"


def test_studies_are_listed_newest_first_page_by_page_each_exactly_once(service: Service) -> None:
    names = [f"study-{n}" for n in range(7)]
    for name in names:
        service.client.post("/v1/studies", json=document(name=name))
    seen: list[str] = []
    cursor = None
    while True:
        page = service.client.get("/v1/studies", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [study["name"] for study in page["studies"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == names[::-1]
    assert service.client.get("/v1/studies", params={"state": "paused"}).json() == {"studies": [], "next": None}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/studies/nobody",
        "/v1/studies/nobody/frontier",
        "/v1/studies/nobody/trials",
        "/v1/studies/nobody/recommendation",
        "/v1/studies/nobody/events",
        "/v1/studies/..%2f..%2fetc",
        "/v1/studies/x'%20OR%201=1--",
        "/v1/nothing",
    ],
)
def test_what_is_not_there_is_not_found_in_the_same_shape(service: Service, path: str) -> None:
    assert_problem(service.client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/studies?limit=0", "query.limit"),
        ("/v1/studies?limit=many", "query.limit"),
        ("/v1/studies?state=happy", "query.state"),
        ("/v1/studies?cursor=forged", "cursor"),
        ("/v1/events?after=99999999999999999999999", "query.after"),
        ("/v1/studies/small/events?after=-1", "query.after"),
        ("/v1/studies/small/trials?cursor=-1", "cursor"),
        ("/v1/studies/small/trials?cursor=%C2%B2", "cursor"),
        ("/v1/studies/small/trials/x", "path.number"),
        ("/v1/studies/small/recommendation?policy=best", "query.policy"),
        ("/v1/studies/small/recommendation?max_slowdown=-0.1", "policy.max_slowdown"),
        ("/v1/studies/small/recommendation?max_slowdown=nan", "policy.max_slowdown"),
        ("/v1/studies/small/recommendation?max_average_power_w=-1", "policy.max_average_power_w"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_its_name(service: Service, path: str, field: str) -> None:
    service.submit()
    problem = assert_problem(service.client.get(path), 422, "invalid-input")
    assert problem["errors"][0]["field"] == field


def test_a_study_is_steered_by_its_state_table_and_what_it_forbids_is_a_conflict(service: Service) -> None:
    service.submit()
    for action, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        assert service.client.post(f"/v1/studies/small/{action}").json()["state"] == state
    problem = assert_problem(service.client.post("/v1/studies/small/resume"), 409, "conflict")
    assert problem["detail"] == "a stopped study cannot resume; it can do nothing more"
    assert service.client.post("/v1/studies/small/explode").status_code == 422


def test_a_deleted_study_is_gone_and_its_events_remain(service: Service) -> None:
    study = service.submit()
    assert service.client.delete("/v1/studies/small").status_code == 204
    assert_problem(service.client.get("/v1/studies/small"), 404, "not-found")
    assert [event.kind for event in service.repository.events(0, study)] == ["study.created", "study.deleted"]


def test_a_study_that_is_being_worked_on_is_not_deleted(service: Service) -> None:
    service.started()
    assert_problem(service.client.delete("/v1/studies/small"), 409, "conflict")


def test_trials_carry_their_measurement_and_its_source_or_the_reason_why_there_is_none(service: Service) -> None:
    lease = service.started()
    service.finish(lease, measurement(1.5, 900.0))
    service.finish(lease, TrialFailure(FailureKind.out_of_memory, "needs <b>99</b> GiB", "tail"))
    first, second = service.client.get("/v1/studies/small/trials").json()["trials"]
    assert first["state"] == "complete"
    assert first["measurement"]["source"] == "simulated"
    assert first["measurement"]["step_time_s"] == 1.5
    assert first["measurement"]["energy_per_token_j"] == pytest.approx(900 / 16384)
    assert (second["state"], second["failure_kind"]) == ("infeasible", "out_of_memory")
    assert second["message"] == "needs <b>99</b> GiB"
    assert second["measurement"] is None
    assert service.client.get("/v1/studies/small/trials/1").json() == second
    assert_problem(service.client.get("/v1/studies/small/trials/2"), 404, "not-found")


def test_trials_are_paged_by_number(service: Service) -> None:
    lease = service.started()
    for _ in range(5):
        service.finish(lease, measurement())
    page = service.client.get("/v1/studies/small/trials", params={"limit": 3}).json()
    assert [trial["number"] for trial in page["trials"]] == [0, 1, 2]
    rest = service.client.get("/v1/studies/small/trials", params={"cursor": page["next"]}).json()
    assert [trial["number"] for trial in rest["trials"]] == [3, 4]
    assert rest["next"] is None


def test_the_frontier_says_what_it_was_chosen_from_and_against_which_baseline(service: Service) -> None:
    lease = service.started()
    for outcome in (
        measurement(1.0, 1000.0),
        measurement(0.9, 1100.0),
        measurement(1.2, 700.0),
        measurement(1.3, 900.0),
        measurement(9.9, 100.0),
        TrialFailure(FailureKind.out_of_memory, "needs 99 GiB"),
    ):
        service.finish(lease, outcome)
    answer = service.client.get("/v1/studies/small/frontier").json()
    assert [point["trial"] for point in answer["frontier"]] == [1, 0, 2]
    assert {point["trial"]: point["role"] for point in answer["others"]} == {3: "dominated", 4: "beyond_limits"}
    assert [trial["number"] for trial in answer["infeasible"]] == [5]
    assert answer["baseline"]["trial"] == 0
    last = answer["frontier"][-1]
    assert last["slowdown"] == pytest.approx(0.2)
    assert last["energy_saving"] == pytest.approx(0.3)
    assert answer["study"]["simulated"] is True
    assert answer["objectives"] == ["step_time_s", "energy_j"]


def test_a_study_without_a_finished_trial_has_an_empty_frontier_and_no_recommendation(service: Service) -> None:
    service.submit()
    answer = service.client.get("/v1/studies/small/frontier").json()
    assert (answer["frontier"], answer["baseline"], answer["hypervolume"]) == ([], None, 0)
    problem = assert_problem(service.client.get("/v1/studies/small/recommendation"), 409, "no-recommendation")
    assert problem["detail"] == "no configuration has been measured yet"


def test_the_recommendation_names_its_policy_the_point_and_where_it_stands(service: Service) -> None:
    lease = service.started()
    for outcome in (measurement(1.0, 1000.0), measurement(1.04, 900.0), measurement(1.3, 500.0)):
        service.finish(lease, outcome)
    answer = service.client.get(
        "/v1/studies/small/recommendation", params={"policy": "least_energy", "max_slowdown": 0.05}
    ).json()
    assert answer["point"]["trial"] == 1
    assert answer["binding_limit"] == "max_slowdown"
    assert answer["description"] == "least energy, at most 5 % slower than the baseline"
    assert service.client.get("/v1/studies/small/recommendation?policy=fastest").json()["point"]["trial"] == 0


def test_a_time_only_study_has_one_objective_and_energies_that_are_null(service: Service) -> None:
    rows = table("4,1,1,1,,,1,,,ok\n2,2,1,1,,,2,,,ok\n")
    lease = service.started(runner={"kind": "replay", "csv": rows}, space={})
    service.finish(lease, measurement(1.0, None))
    answer = service.client.get("/v1/studies/small/frontier").json()
    assert answer["objectives"] == ["step_time_s"]
    assert answer["frontier"][0]["measurement"]["energy_j"] is None
    assert answer["study"]["replayed"] is True


def test_layouts_are_shown_for_a_document_without_creating_anything(service: Service) -> None:
    answer = service.client.post("/v1/layouts", json=document(space={"tp": [1, 3]})).json()
    assert {layout["tp"] for layout in answer["layouts"]} == {1}
    assert any("tp * pp = 3 does not divide the 4 GPUs" in refusal["reason"] for refusal in answer["refused"])
    assert service.client.get("/v1/studies").json()["studies"] == []


def test_every_answer_carries_the_security_headers(service: Service) -> None:
    for path in ("/", "/v1/studies", "/v1/nothing", "/healthz"):
        headers = service.client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_health_says_that_the_process_answers_and_readiness_that_the_database_does(service: Service) -> None:
    assert service.client.get("/healthz").json() == {"status": "ok"}
    assert service.client.get("/readyz").json() == {"status": "ok", "database": "0001", "dispatchers": 0}
    service.started()
    assert service.client.get("/readyz").json()["dispatchers"] == 1
    service.lose_database()
    assert service.client.get("/healthz").status_code == 200
    response = service.client.get("/readyz")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"


def test_a_bug_is_a_problem_too_and_its_details_stay_in_the_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(service.repository, "studies", broken)
    response = service.client.get("/v1/studies")
    assert_problem(response, 500, "internal")
    assert "secret detail" not in response.text


def test_the_openapi_document_describes_problems_for_every_route(service: Service) -> None:
    paths = service.client.get("/v1/openapi.json").json()["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert {"4XX", "5XX"} <= set(operation["responses"]), (method, path)


TEXT = st.text(max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted(document())), TEXT | st.integers() | st.none(), max_size=3), TEXT)
def test_no_input_is_answered_by_a_server_error(service: Service, changes: dict[str, Any], key: str) -> None:
    assert service.client.post("/v1/studies", json=document(**changes)).status_code < 500
    assert service.client.get("/v1/studies/" + quote(key, safe="")).status_code < 500


def test_every_error_of_ours_has_a_status_that_fits() -> None:
    assert all(400 <= error.status < 600 for error in ERRORS)
    assert {StudyEvent(action) for action in ("pause", "resume", "stop", "cancel")} < set(StudyEvent)
    assert spec().name == "small"
    assert StudyState.queued == "queued"
