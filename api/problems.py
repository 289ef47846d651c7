"""Errors on the wire: every one as RFC 9457 problem details, in one shape."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from api.schemas import ProblemAnswer
from tuner.errors import Conflict, DatabaseUnavailable, FieldProblem, InvalidInput, ParetuneError

PROBLEM_JSON = "application/problem+json"
TYPE_PREFIX = "urn:paretune:error:"
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
) -> JSONResponse:
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
    return JSONResponse(body.model_dump(mode="json"), status, headers, media_type=PROBLEM_JSON)


def _on_paretune_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ParetuneError)
    fields: tuple[FieldProblem, ...] = ()
    if isinstance(error, InvalidInput):
        fields = error.problems
    elif isinstance(error, Conflict):
        fields = error.differences
    if isinstance(error, DatabaseUnavailable):
        _log.warning("%s %s: %s", request.method, request.url.path, error)
    return problem(request, error.type, error.title, error.status, str(error), fields)


def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = []
    for detail in error.errors():
        where = ".".join(str(part) for part in detail["loc"])
        reason = "is required" if detail["type"] == "missing" else detail["msg"].replace("Input should", "must")
        fields.append(FieldProblem(where, None if detail["type"] == "missing" else detail["input"], reason))
    invalid = InvalidInput(*fields)
    return problem(request, invalid.type, invalid.title, invalid.status, str(invalid), invalid.problems)


def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    answer = problem(request, status.phrase.lower().replace(" ", "-"), status.phrase, status, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _on_bug(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    base = ParetuneError
    return problem(request, base.type, base.title, base.status, "an internal error; the server's log has the details")


def _shown(value: Any) -> Any:
    """A value short and plain enough to be sent back."""
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
