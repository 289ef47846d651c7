"""Reading a study file: YAML or JSON, with the files it names read into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tuner.errors import InvalidInput
from tuner.spec import StudySpec


def load_study(path: Path) -> StudySpec:
    """Read and check a study file. Paths in it are relative to the file.

    Raises:
        InvalidInput: It cannot be read, is no YAML or JSON, or is not a study.
    """
    return StudySpec.parse(read_document(path))


def read_document(path: Path) -> Any:
    """The document of a study or job file, with ``job.model`` and ``runner.table`` replaced by the files' contents.

    Raises:
        InvalidInput: A file cannot be read or parsed.
    """
    document = _parse(path, _read(path, "the study file"), "the study file")
    if not isinstance(document, dict):
        return document
    job, runner = document.get("job"), document.get("runner")
    if isinstance(job, dict) and isinstance(job.get("model"), str):
        model = path.parent / job["model"]
        document["job"] = job | {"model": _parse(model, _read(model, "job.model"), "job.model")}
    if isinstance(runner, dict) and isinstance(runner.get("table"), str):
        table = path.parent / runner["table"]
        rest = {key: value for key, value in runner.items() if key != "table"}
        document["runner"] = rest | {"csv": _read(table, "runner.table")}
    return document


def _read(path: Path, field: str) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidInput.of(field, str(path), f"must be a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidInput.of(field, str(path), "must be text in UTF-8") from None


def _parse(path: Path, text: str, field: str) -> Any:
    try:
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except json.JSONDecodeError as error:
        raise InvalidInput.of(field, str(path), f"is no JSON: {error}") from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InvalidInput.of(field, str(path), f"is no YAML: {problem}") from None
    except RecursionError:
        raise InvalidInput.of(field, str(path), "is nested too deeply") from None
