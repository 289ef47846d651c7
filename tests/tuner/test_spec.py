from __future__ import annotations

import json
from typing import Any

import pytest
from builders import SHAPE, document, spec
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidInput
from tuner.spec import StudySpec, fingerprint

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 4096,
    "vocab_size": 32000,
}


def problems(data: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        StudySpec.parse(data)
    return {problem.field: problem.reason for problem in caught.value.problems}


def test_a_hugging_face_config_and_the_same_shape_inline_are_the_same_study() -> None:
    inline = spec()
    read = spec(job=document()["job"] | {"model": LLAMA})
    assert read.job.model.model_dump(exclude={"head_dim"}) == inline.job.model.model_dump(exclude={"head_dim"})
    assert read.training_job() == inline.training_job()


def test_the_document_with_defaults_filled_in_reads_back_to_the_same_study() -> None:
    first = spec()
    assert StudySpec.parse(json.loads(json.dumps(first.document()))) == first


def test_the_digest_ignores_the_name_and_nothing_else() -> None:
    assert spec(name="other").digest == spec().digest
    assert spec(budget={"trials": 7}).digest != spec().digest
    assert spec(runner={"kind": "simulated", "seed": 2}).digest != spec().digest


def test_a_job_field_that_came_later_leaves_the_digest_of_older_studies_as_it_was_until_it_is_used() -> None:
    job = document()["job"]
    assert spec().digest == "c3c2b2d75335e5af4bb3006b1c0c0e9a"
    assert spec(job=job | {"pipeline_schedule": "1f1b", "sequence_parallel": True}).digest == spec().digest
    assert spec(job=job | {"pipeline_schedule": "gpipe"}).digest != spec().digest
    assert spec(job=job | {"sequence_parallel": False}).digest != spec().digest


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"budget": {"trials": 0}}, "budget.trials", "must be greater than or equal to 1"),
        ({"budget": {"gpu_hours": 0}}, "budget.gpu_hours", "must be greater than 0"),
        ({"budget": {"wall_time_s": float("nan")}}, "budget.wall_time_s", "must be a finite number"),
        ({"budget": {"trial": 3}}, "budget.trial", "is not a known field; valid: trials, gpu_hours"),
        ({"colour": 1}, "colour", "is not a known field; valid: job, cluster, space, name"),
        ({"runner": {"kind": "quantum"}}, "runner", "kind must be one of 'simulated', 'replay'"),
        ({"runner": {"seed": 1}}, "runner", "kind is required"),
        ({"runner": {"kind": "replay", "table": "../../etc/passwd"}}, "runner", "only the command line reads"),
        ({"sampler": {"kind": "magic"}}, "sampler.kind", "must be 'tpe', 'nsga2', 'gp', 'random' or 'grid'"),
        ({"space": {"tp": "all"}}, "space.tp", "must be 'auto', or be a valid list"),
        ({"space": {"tp": []}}, "space.tp", "at least 1 item"),
        ({"space": {"tp": [0]}}, "space.tp.0", "must be greater than or equal to 1"),
        ({"space": {"frequency_mhz": {"min": 1, "max": 2}}}, "space.frequency_mhz.step", "is required"),
        ({"name": "two words"}, "name", "must be 1 to 100 letters"),
        ({"name": "x\n"}, "name", "must be 1 to 100 letters"),
        ({"name": "<b>"}, "name", "must be 1 to 100 letters"),
        ({"job": document()["job"] | {"model": "/etc/passwd"}}, "job.model", "a path is read by the command line only"),
        ({"job": document()["job"] | {"model": {"model_type": "mixtral"}}}, "job.model.model_type", "must be one of"),
        (
            {"job": document()["job"] | {"model": SHAPE | {"layers": True}}},
            "job.model.layers",
            "must be a valid integer",
        ),
        ({"job": document()["job"] | {"zero_stage": 4}}, "job.zero_stage", "must be less than or equal to 3"),
        (
            {"job": document()["job"] | {"pipeline_schedule": "pipe"}},
            "job.pipeline_schedule",
            "must be '1f1b' or 'gpipe'",
        ),
        ({"job": document()["job"] | {"sequence_parallel": 1}}, "job.sequence_parallel", "must be a valid boolean"),
        (
            {"cluster": {"gpu": "A100-SXM4-80GB", "gpus_per_node": 0}},
            "cluster.gpus_per_node",
            "greater than or equal to 1",
        ),
        ({"cluster": {"gpu": {"name": "mine"}, "gpus_per_node": 1}}, "cluster.gpu.memory_gib", "is required"),
        (
            {"cluster": document()["cluster"] | {"intra_node_gb_s": 1e-300}},
            "cluster.intra_node_gb_s",
            "greater than or equal to 0.001",
        ),
        ({"budget": {"gpu_hours": 1e308}}, "budget.gpu_hours", "less than or equal to"),
    ],
)
def test_bad_input_is_named_by_its_field_and_says_what_is_valid(
    changes: dict[str, Any], field: str, reason: str
) -> None:
    found = problems(document(**changes))
    assert field in found
    assert reason in found[field]


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_a_document_that_is_no_mapping_is_refused(data: Any) -> None:
    assert "must be a mapping" in problems(data)["document"]


def test_every_problem_of_a_document_is_reported_at_once() -> None:
    assert set(problems(document(name="", budget={"trials": 0}, colour=1))) == {"name", "budget.trials", "colour"}


def test_an_unknown_gpu_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="H100-SXM5-80GB"):
        spec(cluster={"gpu": "H100", "gpus_per_node": 4}).hardware()


def test_links_come_from_the_catalogue_unless_given() -> None:
    assert spec().hardware().intra_node_gb_s == 300
    given = spec(cluster=document()["cluster"] | {"intra_node_gb_s": 12.5}).hardware()
    assert given.intra_node_gb_s == 12.5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(StudySpec.model_fields)), JSON)
def test_whatever_stands_in_a_field_is_accepted_or_refused_in_one_sentence(field: str, value: Any) -> None:
    try:
        StudySpec.parse(document(**{field: value}))
    except InvalidInput as error:
        assert all(problem.field.startswith(field) for problem in error.problems)
        assert "\n" not in str(error)


@given(st.dictionaries(st.text(), st.integers()))
def test_a_fingerprint_does_not_depend_on_the_order_of_the_keys(values: dict[str, int]) -> None:
    assert fingerprint(values) == fingerprint(dict(reversed(values.items())))


def test_a_document_that_holds_itself_or_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "nested too deeply" in next(iter(problems(document(space=endless)).values()))
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    assert "nested too deeply" in next(iter(problems(document(space=deep)).values()))
