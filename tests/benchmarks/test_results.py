from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.results import Target, quantile, summary
from benchmarks.scores import score


def test_errors_are_pooled_over_rows_and_orders_over_groups(make_group) -> None:
    exact, off = score(make_group(), draws=0), score(make_group(((16, 1, 1, 1),), slower=2.0), draws=0)
    figures = summary([exact, off])
    assert (figures.groups, figures.rows) == (2, 9)
    assert figures.tau == pytest.approx(1)
    assert figures.error[0] == pytest.approx(0)
    assert math.isnan(figures.error[3])
    assert figures.coverage[0] >= 8 / 9


def test_regret_is_the_median_and_the_ninth_decile_of_the_groups(make_group) -> None:
    each = score(make_group(), draws=0)
    figures = summary([replace(each, regret=value) for value in (0.0, 0.1, 0.2, math.nan)])
    assert figures.regret == pytest.approx(0.1)
    assert figures.regret_90 == pytest.approx(np.quantile([0.0, 0.1, 0.2], 0.9))


def test_no_rows_have_no_quantile() -> None:
    assert math.isnan(quantile([math.nan], 0.5))


@pytest.mark.parametrize(
    ("judged", "at_least", "reached"),
    [(0.8, True, True), (0.79, True, False), (0.8, False, True), (0.81, False, False), (math.nan, False, False)],
)
def test_a_target_is_reached_by_the_judged_groups_alone(judged: float, at_least: bool, reached: bool) -> None:
    target = Target(what="x", bound=0.8, fitted=0.8, judged=judged, at_least=at_least)
    assert target.reached is reached
