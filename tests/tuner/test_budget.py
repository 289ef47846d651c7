from __future__ import annotations

import pytest

from tuner.budget import reason_to_stop
from tuner.spec import BudgetSection


def reason(budget: dict[str, float], **reached: object) -> str | None:
    values: dict[str, object] = {"trials": 0, "gpu_seconds": 0.0, "active_s": 0.0, "hypervolumes": []}
    return reason_to_stop(BudgetSection.model_validate(budget), **(values | reached))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "below", "reached", "sentence"),
    [
        ({"trials": 3}, {"trials": 2}, {"trials": 3}, "budget.trials: 3 trials done"),
        ({"gpu_hours": 2.0}, {"gpu_seconds": 7199.0}, {"gpu_seconds": 7200.0}, "2.00 of 2 GPU-hours used"),
        ({"wall_time_s": 60.0}, {"active_s": 59.0}, {"active_s": 61.0}, "61 of 60 s used"),
        (
            {"patience": 2, "min_growth": 0.1},
            {"hypervolumes": [0.1, 0.5, 0.5, 0.56]},
            {"hypervolumes": [0.1, 0.5, 0.5, 0.54]},
            "grew by 8.0% in 2 trials",
        ),
    ],
)
def test_each_budget_ends_the_study_when_it_is_reached_and_not_before(
    budget: dict[str, float], below: dict[str, object], reached: dict[str, object], sentence: str
) -> None:
    assert reason(budget, **below) is None
    found = reason(budget, **reached)
    assert found is not None
    assert sentence in found


def test_patience_waits_for_as_many_trials_as_it_names() -> None:
    assert reason({"patience": 5}, hypervolumes=[0.5] * 5) is None
    assert reason({"patience": 5}, hypervolumes=[0.5] * 6) is not None


def test_a_study_that_has_found_nothing_yet_is_not_out_of_patience() -> None:
    assert reason({"patience": 2}, hypervolumes=[0.0] * 9) is None
