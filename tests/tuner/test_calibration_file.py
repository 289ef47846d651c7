from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import spec

from tuner.calibration_file import CalibrationFile
from tuner.errors import InvalidInput
from tuner.hardware import find_gpu
from tuner.physics.calibration import DEFAULT

CLUSTER = spec().hardware()


def saved() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(CalibrationFile.of(DEFAULT, CLUSTER, "M.csv").to_document()))
    return document


def test_a_calibration_reads_back_as_it_was_saved() -> None:
    read = CalibrationFile.from_document(saved(), "FILE")
    assert read.to_document() == saved()
    assert read.calibration.coefficients == DEFAULT.coefficients
    read.check_gpu(CLUSTER, "FILE")
    assert read.notes(CLUSTER) == ()


def test_a_calibration_of_another_gpu_model_is_refused() -> None:
    file = CalibrationFile.from_document(saved(), "FILE")
    other = replace(CLUSTER, gpu=find_gpu("H100-SXM5-80GB"))
    with pytest.raises(
        InvalidInput, match=r"FILE\.gpu: 'A100-SXM4-80GB': must be the cluster's GPU model, H100-SXM5-80GB"
    ):
        file.check_gpu(other, "FILE")


def test_another_number_of_nodes_and_other_links_are_allowed_and_said() -> None:
    file = CalibrationFile.from_document(saved(), "FILE")
    other = replace(CLUSTER, nodes=3, inter_node_gb_s=7.0)
    file.check_gpu(other, "FILE")
    nodes, links = file.notes(other)
    assert "fitted on 1 x 4 GPUs, and is used for 3 x 4 GPUs" in nodes
    assert "links between nodes" in links
    assert "these have 7" in links


@pytest.mark.parametrize("document", [None, [], "text", {}, {"gpu": "x"}, {"calibration": {}}])
def test_a_document_that_is_no_calibration_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a calibration as saved by paretune predict --save-calibration"):
        CalibrationFile.from_document(document, "FILE")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu", 3),
        ("gpu", "two\nlines"),
        ("nodes", "1"),
        ("nodes", 0),
        ("nodes", True),
        ("gpus_per_node", 1.5),
        ("intra_node_gb_s", -1),
        ("inter_node_gb_s", float("nan")),
        ("inter_node_gb_s", float("inf")),
        ("fitted_to", "x" * 5000),
        ("calibration", None),
        ("calibration", {}),
        ("colour", 1),
    ],
)
def test_a_field_that_cannot_be_is_refused_in_one_sentence(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        CalibrationFile.from_document(saved() | {field: value}, "FILE")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("FILE")
