"""Reading a study file: YAML or JSON, with the files it names read into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tuner.document import parse_as
from tuner.errors import InvalidInput
from tuner.spec import JobFile, StudySpec


def load_study(path: Path) -> StudySpec:
    """Read and check a study file. Paths in it are relative to the file.

    Raises:
        InvalidInput: It cannot be read, is no YAML or JSON, or is not a study.
    """
    return StudySpec.parse(read_document(path))


def load_job(path: Path) -> JobFile:
    """Read and check a job file, or a study file, which holds a job, its cluster and a space as well.

    Raises:
        InvalidInput: It cannot be read, is no YAML or JSON, or is neither.
    """
    document = read_document(path, "the job file")
    is_study = isinstance(document, dict) and "runner" in document
    return parse_as(StudySpec if is_study else JobFile, document)


def read_document(path: Path, field: str = "the study file") -> Any:
    """The document of a study or job file, with ``job.model`` and ``runner.table`` replaced by the files' contents.

    Args:
        path: The file.
        field: What to call it in errors.

    Raises:
        InvalidInput: A file cannot be read or parsed.
    """
    document = _parse(path, read_text(path, field), field)
    if not isinstance(document, dict):
        return document
    job, runner = document.get("job"), document.get("runner")
    if isinstance(job, dict) and isinstance(job.get("model"), str):
        model = path.parent / job["model"]
        document["job"] = job | {"model": _parse(model, read_text(model, "job.model"), "job.model")}
    if isinstance(runner, dict) and isinstance(runner.get("table"), str):
        table = path.parent / runner["table"]
        rest = {key: value for key, value in runner.items() if key != "table"}
        document["runner"] = rest | {"csv": read_text(table, "runner.table")}
    return document


def read_text(path: Path, field: str) -> str:
    """The text of a file.

    Args:
        path: The file.
        field: What to call it in errors.

    Raises:
        InvalidInput: It cannot be read, or is no text.
    """
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidInput.of(field, str(path), f"must be a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidInput.of(field, str(path), "must be text in UTF-8") from None


def read_json(path: Path, field: str) -> Any:
    """The document of a JSON file, whatever its name.

    Args:
        path: The file.
        field: What to call it in errors.

    Raises:
        InvalidInput: It cannot be read or parsed.
    """
    return _parse_json(path, read_text(path, field), field)


def _parse(path: Path, text: str, field: str) -> Any:
    if path.suffix == ".json":
        return _parse_json(path, text, field)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise InvalidInput.of(field, str(path), f"is no YAML: {problem}") from None
    except RecursionError:
        raise InvalidInput.of(field, str(path), "is nested too deeply") from None


def _parse_json(path: Path, text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput.of(field, str(path), f"is no JSON: {error}") from None
    except RecursionError:
        raise InvalidInput.of(field, str(path), "is nested too deeply") from None
