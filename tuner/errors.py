"""Every error a user can cause or meet: one sentence, one stable type, one HTTP status, one exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one field of the input.

    Args:
        field: Dotted path of the field as the user wrote it, such as ``cluster.gpu``.
        value: The value given, or ``None`` where it is missing.
        reason: What is valid, without a full stop.
    """

    field: str
    value: Any
    reason: str

    def __str__(self) -> str:
        value = "missing" if self.value is None else repr(self.value)
        shown = value if len(value) <= 80 else value[:77] + "..."
        # A field's name can come from the user, and with it anything that would break the sentence over lines.
        field = self.field if self.field.isprintable() else repr(self.field)[1:-1]
        return f"{field}: {shown}: {self.reason}"


class ParetuneError(Exception):
    """Base of all errors that are shown to a user as one sentence, never as a traceback."""

    type: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1


class InvalidInput(ParetuneError):
    """Input that can never work: malformed, out of range, or contradictory."""

    type = "invalid-input"
    title = "Invalid input"
    status = 422
    exit_code = 2

    def __init__(self, *problems: FieldProblem) -> None:
        super().__init__(*problems)
        self.problems = problems

    @classmethod
    def of(cls, field: str, value: Any, reason: str) -> Self:
        """An error about a single field."""
        return cls(FieldProblem(field, value, reason))

    def __str__(self) -> str:
        return "; ".join(str(problem) for problem in self.problems)


class NoRecommendation(ParetuneError):
    """No measured configuration satisfies the policy (yet)."""

    type = "no-recommendation"
    title = "No recommendation"
    status = 409
    exit_code = 3


class NotFound(ParetuneError):
    """A study or trial that does not exist."""

    type = "not-found"
    title = "Not found"
    status = 404
    exit_code = 4


class Conflict(ParetuneError):
    """The request contradicts what exists: another spec under the same name, or a state that forbids the action."""

    type = "conflict"
    title = "Conflict"
    status = 409
    exit_code = 5

    def __init__(self, message: str, differences: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(message, differences)
        self.message = message
        self.differences = differences

    def __str__(self) -> str:
        details = "; ".join(f"{d.field}: {d.reason}" for d in self.differences)
        return f"{self.message}: {details}" if details else self.message


class DatabaseUnavailable(ParetuneError):
    """The database cannot be reached, is busy, read-only or full; nothing was written."""

    type = "database-unavailable"
    title = "Database unavailable"
    status = 503
    exit_code = 6


class WrongRevision(ParetuneError):
    """The database schema is not the one that this version needs."""

    type = "wrong-revision"
    title = "Database at another revision"
    status = 503
    exit_code = 6


class ClusterUnavailable(ParetuneError):
    """The Ray cluster cannot be reached or has too few GPUs."""

    type = "cluster-unavailable"
    title = "Cluster unavailable"
    status = 503
    exit_code = 7


class LeaseLost(ParetuneError):
    """Another dispatcher owns the study now; what this one still had to say about it is void."""

    type = "lease-lost"
    title = "Lease lost"
    status = 409
    exit_code = 8


ERRORS: tuple[type[ParetuneError], ...] = (
    ParetuneError,
    InvalidInput,
    NoRecommendation,
    NotFound,
    Conflict,
    DatabaseUnavailable,
    WrongRevision,
    ClusterUnavailable,
    LeaseLost,
)
