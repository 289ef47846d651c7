"""When a study has had enough."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.spec import BudgetSection


def reason_to_stop(
    budget: BudgetSection, trials: int, gpu_seconds: float, active_s: float, hypervolumes: Sequence[float]
) -> str | None:
    """Say why no further trial may start, or ``None`` while one may.

    Args:
        budget: The study's budget.
        trials: Trials started so far, whatever became of them.
        gpu_seconds: GPU time charged so far.
        active_s: Wall time in which the study was being worked on.
        hypervolumes: Hypervolume after each finished trial, by number.
    """
    if trials >= budget.trials:
        return f"budget.trials: {budget.trials} trials done"
    if budget.gpu_hours is not None and gpu_seconds >= budget.gpu_hours * 3600:
        return f"budget.gpu_hours: {gpu_seconds / 3600:.2f} of {budget.gpu_hours:g} GPU-hours used"
    if budget.wall_time_s is not None and active_s >= budget.wall_time_s:
        return f"budget.wall_time_s: {active_s:.0f} of {budget.wall_time_s:g} s used"
    if budget.patience is not None and len(hypervolumes) > budget.patience:
        before, now = hypervolumes[-budget.patience - 1], hypervolumes[-1]
        if before > 0 and now <= before * (1 + budget.min_growth):
            return (
                f"budget.patience: the hypervolume grew by {now / before - 1:.1%} in {budget.patience} trials, "
                f"not more than min_growth = {budget.min_growth:.1%}"
            )
    return None
