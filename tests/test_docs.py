"""Nothing a user can meet is left out of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel
from service import Service
from typer.testing import CliRunner

from api.app import create_app
from api.cli import app as cli
from api.settings import Settings
from api.studyfile import load_study
from tuner.errors import ERRORS
from tuner.hardware import gpu_catalogue
from tuner.policy import PolicyKind
from tuner.result import Role
from tuner.space import build_space
from tuner.spec import StudySpec
from tuner.states import StudyState, TrialState

ROOT = Path(__file__).parent.parent
DOCS = {path.stem: path.read_text() for path in (ROOT / "docs").glob("*.md")}
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def test_every_command_and_option_is_documented() -> None:
    for command in cli.registered_commands:
        assert command.callback is not None
        name = command.callback.__name__
        row = next((line for line in DOCS["cli"].splitlines() if line.startswith(f"| `paretune {name}")), None)
        assert row is not None, name
        shown = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "200"}).stdout
        for option in set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help", "--dispatcher"}:
            assert option in row, (name, option)


def test_every_setting_is_documented_with_its_name_in_the_environment() -> None:
    for name in Settings.model_fields:
        assert f"`PARETUNE_{name.upper()}`" in DOCS["cli"]


def test_every_endpoint_is_documented_and_nothing_else_is(tmp_path: Path) -> None:
    service = Service(f"sqlite:///{tmp_path / 'x.db'}")
    with TestClient(create_app(service.repository)) as client:
        paths = client.get("/v1/openapi.json").json()["paths"]
    served = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    documented = set(re.findall(r"^\| `((?:GET|POST|DELETE|PUT|PATCH) [^`]+)`", DOCS["api"], re.MULTILINE))
    assert documented == served


def test_every_kind_of_error_is_documented_with_its_status_and_exit_code() -> None:
    for error in ERRORS:
        assert f"| `{error.type}` | {error.status} |" in DOCS["api"]
        assert f"\n| {error.exit_code} |" in DOCS["cli"]


def test_every_event_that_the_page_follows_is_documented() -> None:
    kinds = re.findall(r'"((?:study|trial)\.[a-z]+)"', (ROOT / "api/web/live.js").read_text())
    assert len(kinds) == 20
    states = {f"study.{state}" for state in StudyState} | {f"trial.{state}" for state in TrialState}
    assert states <= set(kinds)
    for kind in kinds:
        assert f"`{kind}`" in DOCS["api"], kind


def sections(schema: type[BaseModel], prefix: str = "") -> list[str]:
    """Every field of the study file, as a dotted path."""
    found = []
    for name, field in schema.model_fields.items():
        path = f"{prefix}{name}"
        inner = [a for a in (field.annotation, *get_args(field.annotation)) if isinstance(a, type)]
        nested = [a for a in inner if issubclass(a, BaseModel)]
        found += [path] if not nested else [p for a in nested for p in sections(a, f"{path}.")]
    return found


def test_every_field_of_the_study_file_is_documented() -> None:
    text = DOCS["study-file"]
    for path in sections(StudySpec):
        assert re.search(rf"\b{path.rpartition('.')[2]}\b", text), path
    assert {"job.model.layers", "space.frequency_mhz.step", "runner.csv"} <= set(sections(StudySpec))


def test_every_gpu_policy_role_and_state_is_documented() -> None:
    for name in gpu_catalogue():
        assert name in DOCS["study-file"]
    for kind in PolicyKind:
        assert kind.value in DOCS["cli"]
    for role in Role:
        assert f"| {role.value} |" in DOCS["concepts"]
    for state in (*StudyState, *TrialState):
        assert state.value in DOCS["concepts"], state


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_study_that_can_be_run(path: Path) -> None:
    spec = load_study(path)
    assert spec.name == path.stem
    assert build_space(spec).configurations


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_the_architecture_names_every_module() -> None:
    text = DOCS["architecture"]
    for folder in ("tuner", "workers", "api"):
        for path in (ROOT / folder).glob("*.py"):
            assert path.name in text or path.name == "__init__.py", path
