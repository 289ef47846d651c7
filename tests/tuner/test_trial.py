from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from builders import measurement

from tuner.errors import ERRORS, Conflict, FieldProblem, InvalidInput, ParetuneError
from tuner.trial import FailureKind, TrialFailure


def test_a_trial_failure_crosses_processes_unchanged() -> None:
    failure = TrialFailure(FailureKind.out_of_memory, "needs 90 GiB", "last line", 12.5)
    copy = pickle.loads(pickle.dumps(failure))
    assert (copy.kind, copy.message, copy.log_tail, copy.elapsed_s) == (
        FailureKind.out_of_memory,
        "needs 90 GiB",
        "last line",
        12.5,
    )


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput.of("cluster.gpu", "H100", "must be one of A40"),
        Conflict("another spec", (FieldProblem("budget.trials", 3, "is 4"),)),
        ParetuneError("sentence"),
    ],
)
def test_our_errors_cross_processes_unchanged(error: ParetuneError) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_each_kind_of_failure_is_knowledge_or_transient_or_neither_but_never_both() -> None:
    assert not [kind for kind in FailureKind if kind.is_infeasible and kind.is_transient]
    assert FailureKind.out_of_memory.is_infeasible
    assert FailureKind.node_lost.is_transient


def test_every_kind_of_error_has_its_own_type() -> None:
    assert len({error.type for error in ERRORS}) == len(ERRORS)


def test_a_problem_is_one_sentence_however_long_or_odd_the_value() -> None:
    problem = FieldProblem("space.\ntp", "x" * 500 + "\n", "must be a number")
    assert "\n" not in str(problem)
    assert len(str(problem)) < 150


@pytest.mark.parametrize(
    "broken",
    [
        {"step_time_s": float("nan")},
        {"step_time_s": 0.0},
        {"energy_j": float("inf")},
        {"energy_j": 0.0},
        {"step_time_sem_s": float("nan")},
        {"energy_sem_j": -1.0},
        {"duration_s": float("inf")},
    ],
)
def test_a_runner_cannot_answer_with_what_no_measurement_can_be(broken: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"a measurement with {next(iter(broken))} = "):
        replace(measurement(), **broken)
