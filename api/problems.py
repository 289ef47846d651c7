"""Errors on the wire: every one as RFC 9457 problem details, in one shape."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from api.schemas import ProblemAnswer
from tuner.errors import Conflict, DatabaseUnavailable, FieldProblem, InvalidInput, ParetuneError

PROBLEM_JSON = "application/problem+json"
TYPE_PREFIX = "urn:paretune:error:"
# What a study document with a large table needs, and no more.
MAX_BODY_BYTES = 24_000_000
_RETRY_AFTER_S = 2
_log = logging.getLogger(__name__)

# Every route can answer with any of these; said once, for the OpenAPI document.
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemAnswer, "description": "The request cannot be carried out; the problem says why."},
    "5XX": {"model": ProblemAnswer, "description": "The service cannot carry it out now."},
}


def install(app: FastAPI) -> None:
    """Answer every error of the application in the one shape."""
    app.add_exception_handler(ParetuneError, _on_paretune_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)


def problem(
    request: Request, type_: str, title: str, status: int, detail: str, fields: tuple[FieldProblem, ...] = ()
) -> Response:
    """One problem as a response."""
    body = ProblemAnswer(
        type=TYPE_PREFIX + type_,
        title=title,
        status=status,
        detail=detail,
        instance=request.url.path,
        errors=[{"field": f.field, "value": _shown(f.value), "reason": f.reason} for f in fields],
    )
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    # As ASCII: what was refused may be text that no encoding can carry.
    return Response(json.dumps(body.model_dump()), status, headers, media_type=PROBLEM_JSON)


def too_large(path: str) -> Response:
    """The answer to a body beyond the limit; nothing of it was read."""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    body = ProblemAnswer(
        type=TYPE_PREFIX + "content-too-large",
        title="Content Too Large",
        status=status,
        detail=f"the body must not exceed {MAX_BODY_BYTES:,} bytes",
        instance=path,
    )
    return Response(json.dumps(body.model_dump()), status, media_type=PROBLEM_JSON)


def _on_paretune_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ParetuneError)
    fields: tuple[FieldProblem, ...] = ()
    if isinstance(error, InvalidInput):
        fields = error.problems
    elif isinstance(error, Conflict):
        fields = error.differences
    if isinstance(error, DatabaseUnavailable):
        _log.warning("%s %s: %s", request.method, request.url.path, error)
    return problem(request, error.type, error.title, error.status, str(error), fields)


def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if any(detail["loc"] == ("body",) for detail in error.errors()) and media_type != "application/json":
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        shown = media_type or "missing"
        detail = f"Content-Type: {shown}: must be application/json"
        return problem(request, "unsupported-media-type", status.phrase, status, detail)
    invalid = InvalidInput(*(_field_problem(detail) for detail in error.errors()))
    return problem(request, invalid.type, invalid.title, invalid.status, str(invalid), invalid.problems)


def _field_problem(detail: Mapping[str, Any]) -> FieldProblem:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return FieldProblem(where, None, "is required")
    if detail["type"] == "json_invalid":
        reason = detail["ctx"]["error"]
        return FieldProblem("body", f"character {detail['loc'][-1]}", f"is no JSON: {reason}")
    reason = detail["msg"].replace("Input should", "must").replace("be a valid dictionary", "be a JSON object")
    return FieldProblem(where, detail["input"], reason)


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return too_large(request.url.path)
    answer = problem(request, status.phrase.lower().replace(" ", "-"), status.phrase, status, str(error.detail))
    answer.headers.update(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router names the methods of one route only, and a path can have several.
        answer.headers["Allow"] = ", ".join(sorted(_methods_at(request)))
    return answer


def _methods_at(request: Request) -> set[str]:
    methods: set[str] = set()
    for route in request.app.state.routes:
        allowed: set[str] = route.methods
        if any(route.matches(dict(request.scope) | {"method": method})[0] is Match.FULL for method in allowed):
            methods |= allowed
    return methods | ({"HEAD"} if "GET" in methods else set())


def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    base = ParetuneError
    return problem(request, base.type, base.title, base.status, "an internal error; the server's log has the details")


def _shown(value: Any) -> Any:
    """A value short and plain enough to be sent back."""
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
