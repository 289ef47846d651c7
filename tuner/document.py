"""Reading a document against a schema: every problem with its field, the value given and what is valid."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tuner.errors import FieldProblem, InvalidInput

# Nobody reads more, and a hostile document can hold millions.
_SHOWN_PROBLEMS = 50
_DEEPEST = 20
Section = TypeVar("Section", bound=BaseModel)


def parse_as(schema: type[Section], data: Any) -> Section:
    """Validate data against a schema.

    Args:
        schema: What the document must be.
        data: The document, as JSON or YAML gave it.

    Raises:
        InvalidInput: Each problem with its field, the value given and what is valid.
    """
    if not isinstance(data, dict):
        raise InvalidInput.of("document", data, f"must be a mapping with the fields {_names(schema)}")
    _check_text(data)
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(*field_problems(error, schema)) from None
    except InvalidInput as error:
        # The pure code names fields as it knows them: a model's fields stand under ``job`` in the document.
        raise InvalidInput(
            *(
                FieldProblem(f"job.{p.field}" if p.field.startswith("model.") else p.field, p.value, p.reason)
                for p in error.problems
            )
        ) from None


def _check_text(value: Any, path: str = "", depth: int = 0) -> None:
    """Refuse text that no encoding can carry, which JSON can spell, and a document that holds itself, as YAML's can."""
    if depth > _DEEPEST:
        raise InvalidInput.of(path[:60], "...", "is nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_text(str(key), f"{path}.(a key)" if path else "(a key)", depth + 1)
            _check_text(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_text(inner, f"{path}.{index}", depth + 1)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput.of(path, value, "must be text that UTF-8 can encode") from None


def field_problems(error: ValidationError, schema: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """Translate pydantic's errors: dotted path, the value given, what is valid."""
    problems: dict[str, tuple[Any, str]] = {}
    for detail in error.errors(include_url=False, include_context=True)[:_SHOWN_PROBLEMS]:
        path = [str(part) for part in detail["loc"] if not _is_tag(part)]
        reason = detail["msg"].removeprefix("Value error, ").replace("Input should", "must").rstrip(".")
        reason = re.sub(r"be a valid dictionary( or .*)?$", "be a mapping", reason)
        value = detail["input"]
        if detail["type"] == "missing":
            value, reason = None, "is required"
        elif detail["type"] == "extra_forbidden":
            reason = f"is not a known field; valid: {_names(_schema_at(schema, path[:-1]))}"
        elif detail["type"] == "string_pattern_mismatch":
            reason = "must be 1 to 100 letters, digits, '.', '_' or '-', starting with a letter or digit"
        elif detail["type"] == "union_tag_invalid":
            reason = f"kind must be one of {detail['ctx']['expected_tags']}"
        elif detail["type"] == "union_tag_not_found":
            value, reason = None, "kind is required"
        field = ".".join(path) or "document"
        known = problems.get(field)
        problems[field] = (value, reason if known is None else f"{known[1]}, or {reason.removeprefix('must ')}")
    # A union reports one error a branch: where the branch that was meant is known, its own fields say more.
    return tuple(
        FieldProblem(field, value, reason)
        for field, (value, reason) in problems.items()
        if not any(other.startswith(f"{field}.") for other in problems)
    )


_TAGS = frozenset({"simulated", "replay", "str", "GpuSection", "FrequencyRange"})


def _is_tag(part: Any) -> bool:
    """Whether a path element is pydantic's name for a branch of a union, which no user wrote."""
    return isinstance(part, str) and (part in _TAGS or part.startswith(("literal[", "constrained-", "list[")))


def _schema_at(schema: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for name in path:
        field = schema.model_fields.get(name)
        annotation = field.annotation if field else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        schema = next((c for c in inner if isinstance(c, type) and issubclass(c, BaseModel)), schema)
    return schema


def _names(schema: type[BaseModel]) -> str:
    return ", ".join(schema.model_fields)
