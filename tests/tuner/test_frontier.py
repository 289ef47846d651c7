from __future__ import annotations

from itertools import pairwise
from random import Random

import moocore  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tuner.frontier import hypervolume, hypervolume_history, knee, pareto_mask, tied_mask

# Few distinct values, so that duplicates and equal coordinates are common rather than never drawn.
coarse = st.integers(-6, 6).map(float)
fine = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


def points_of(objectives: int, *, least: int = 0) -> st.SearchStrategy[NDArray[np.float64]]:
    shapes = st.integers(least, 25).map(lambda n: (n, objectives))
    return shapes.flatmap(
        lambda shape: arrays(np.float64, shape, elements=coarse) | arrays(np.float64, shape, elements=fine)
    )


any_points = points_of(1) | points_of(2)


def beats(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def area_by_cells(points: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Cut the box into cells at every coordinate and add up those that some point covers."""
    corner_x, corner_y = reference.tolist()
    inside: list[list[float]] = [p for p in points.tolist() if p[0] < corner_x and p[1] < corner_y]
    xs = sorted({p[0] for p in inside} | {corner_x})
    ys = sorted({p[1] for p in inside} | {corner_y})
    return sum(
        (right - left) * (top - bottom)
        for left, right in pairwise(xs)
        for bottom, top in pairwise(ys)
        if any(p[0] <= left and p[1] <= bottom for p in inside)
    )


@given(any_points)
def test_frontier_is_what_no_other_point_beats(points: NDArray[np.float64]) -> None:
    expected = [not any(beats(other, point) for other in points) for point in points]
    assert pareto_mask(points).tolist() == expected


@given(points_of(2, least=1))
def test_frontier_agrees_with_moocore(points: NDArray[np.float64]) -> None:
    assert pareto_mask(points).tolist() == moocore.is_nondominated(points, keep_weakly=True).tolist()


@given(any_points, st.randoms(use_true_random=False))
def test_frontier_does_not_depend_on_the_order_of_points(points: NDArray[np.float64], random: Random) -> None:
    order = list(range(len(points)))
    random.shuffle(order)
    assert pareto_mask(points[order]).tolist() == pareto_mask(points)[order].tolist()


def test_all_copies_of_a_frontier_point_are_on_the_frontier_and_copies_of_a_beaten_point_are_not() -> None:
    points = np.array([[1.0, 2.0], [3.0, 3.0], [1.0, 2.0], [2.0, 1.0], [3.0, 3.0]])
    assert pareto_mask(points).tolist() == [True, False, True, True, False]


def test_negative_zero_is_a_copy_of_zero() -> None:
    assert pareto_mask(np.array([[0.0, 1.0], [-0.0, 1.0]])).tolist() == [True, True]


def test_a_single_objective_leaves_the_minima() -> None:
    assert pareto_mask(np.array([[2.0], [1.0], [1.0]])).tolist() == [False, True, True]


def test_no_points_have_an_empty_frontier_and_no_hypervolume() -> None:
    for objectives in (1, 2):
        nothing = np.zeros((0, objectives))
        reference = np.ones(objectives)
        assert pareto_mask(nothing).shape == (0,)
        assert tied_mask(nothing, nothing).shape == (0,)
        assert hypervolume(nothing, reference) == 0.0
        assert hypervolume_history(nothing, reference).shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    points = np.array([[1.0, 2.0], [bad, 1.0]])
    reference = np.array([3.0, 3.0])
    with pytest.raises(ValueError, match="finite"):
        pareto_mask(points)
    with pytest.raises(ValueError, match="finite"):
        hypervolume(points, reference)
    with pytest.raises(ValueError, match="finite"):
        hypervolume_history(points, reference)
    with pytest.raises(ValueError, match="finite"):
        knee(points)
    with pytest.raises(ValueError, match="finite"):
        hypervolume(points[:1], np.array([3.0, bad]))
    with pytest.raises(ValueError, match="finite"):
        tied_mask(points[:1], np.array([[0.1, bad]]))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, 1\) or \(n, 2\)"):
        pareto_mask(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"\(n, 1\) or \(n, 2\)"):
        pareto_mask(np.zeros(3))
    with pytest.raises(ValueError, match="reference must be 2"):
        hypervolume(np.zeros((2, 2)), np.ones(1))
    with pytest.raises(ValueError, match="shape of the values"):
        tied_mask(np.zeros((2, 2)), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="z must be"):
        tied_mask(np.zeros((2, 2)), np.zeros((2, 2)), z=-1.0)


def test_a_hundred_thousand_points_with_a_long_frontier_agree_with_moocore() -> None:
    """Comparing all pairs would run into the timeout."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 1.0, 100_000)
    points = np.column_stack([x, 1.0 - x + rng.choice([0.0, 0.1], x.size)])
    points[1::10] = points[::10]
    expected = moocore.is_nondominated(points, keep_weakly=True)
    assert 10_000 < expected.sum() < 90_000
    assert (pareto_mask(points) == expected).all()


@given(points_of(2, least=1), st.tuples(fine, fine) | st.tuples(coarse, coarse))
def test_hypervolume_agrees_with_moocore_and_with_counting_cells(
    points: NDArray[np.float64], corner: tuple[float, float]
) -> None:
    reference = np.array(corner)
    volume = hypervolume(points, reference)
    assert volume == pytest.approx(area_by_cells(points, reference), rel=1e-9)
    assert volume == pytest.approx(moocore.hypervolume(points, ref=reference), rel=1e-9)


@given(points_of(1), coarse)
def test_hypervolume_of_one_objective_is_the_distance_to_the_best(points: NDArray[np.float64], corner: float) -> None:
    expected = max([corner - p for p in points[:, 0] if p < corner], default=0.0)
    assert hypervolume(points, np.array([corner])) == expected


def test_points_on_or_beyond_the_reference_contribute_nothing() -> None:
    reference = np.array([2.0, 2.0])
    beyond = np.array([[-9.0, 2.0], [2.0, -9.0], [3.0, 1.0], [1.0, 3.0]])
    assert hypervolume(beyond, reference) == 0.0
    assert hypervolume(np.vstack([beyond, [[1.0, 1.0]]]), reference) == 1.0


@given(points_of(2), st.tuples(fine, fine) | st.tuples(coarse, coarse))
def test_hypervolume_history_is_the_hypervolume_of_every_prefix_and_never_falls(
    points: NDArray[np.float64], corner: tuple[float, float]
) -> None:
    reference = np.array(corner)
    history = hypervolume_history(points, reference)
    expected = [hypervolume(points[: i + 1], reference) for i in range(len(points))]
    assert history == pytest.approx(expected, rel=1e-9)
    assert (np.diff(history) >= 0.0).all()


@given(points_of(1), coarse)
def test_hypervolume_history_of_one_objective_is_that_of_every_prefix(
    points: NDArray[np.float64], corner: float
) -> None:
    reference = np.array([corner])
    expected = [hypervolume(points[: i + 1], reference) for i in range(len(points))]
    assert hypervolume_history(points, reference).tolist() == expected


def test_hypervolume_history_of_many_points_ends_at_their_hypervolume() -> None:
    points = np.random.default_rng(1).uniform(0.0, 1.0, (20_000, 2))
    reference = np.array([1.0, 1.0])
    assert hypervolume_history(points, reference)[-1] == pytest.approx(hypervolume(points, reference))


def test_knee_is_where_the_frontier_bends_whatever_the_units() -> None:
    frontier = np.array([[0.0, 10.0], [1.0, 3.0], [4.0, 2.0], [10.0, 0.0]])
    assert knee(frontier) == 1
    assert knee(frontier * [1e-3, 1e6] + [5.0, -7.0]) == 1


@given(points_of(2, least=3))
def test_knee_is_a_frontier_point_farthest_below_the_line_through_the_two_ends(points: NDArray[np.float64]) -> None:
    chosen = knee(points)
    assert pareto_mask(points)[chosen]
    frontier: list[list[float]] = sorted(points[pareto_mask(points)].tolist())
    (x0, y0), (x1, y1) = frontier[0], frontier[-1]
    if x0 == x1:
        return

    def depth(x: float, y: float) -> float:
        on_the_line = y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
        return (on_the_line - y) / (y0 - y1)

    assert depth(*points[chosen]) == pytest.approx(max(depth(*p) for p in frontier), abs=1e-9)


def test_knee_passes_over_points_that_are_beaten() -> None:
    assert knee(np.array([[100.0, 100.0], [0.0, 10.0], [1.0, 1.0], [10.0, 0.0], [1.0, 2.0]])) == 2


def test_knee_of_one_point_or_of_its_copies_is_the_first() -> None:
    assert knee(np.array([[3.0, 4.0]])) == 0
    assert knee(np.array([[5.0, 4.0], [3.0, 4.0], [3.0, 4.0]])) == 1


@pytest.mark.parametrize(
    "frontier",
    [
        [[2.0, 1.0], [1.0, 2.0]],
        # Rounding alone puts the points between these ends a hair below the chord.
        [[i * 0.1, (7 - i) * 0.1] for i in (1, 0, 2, 3, 4, 5, 6, 7)],
        [[3.0, 0.0], [0.0, 3.0], [2.0, 2.0]],
    ],
    ids=["two points", "straight", "bulging"],
)
def test_knee_without_a_bend_is_the_end_with_the_smaller_first_objective(frontier: list[list[float]]) -> None:
    assert knee(np.array(frontier)) == 1


@pytest.mark.parametrize("shape", [(0, 2), (3, 1)])
def test_knee_needs_points_of_two_objectives(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="knee needs"):
        knee(np.ones(shape))


@given(points_of(1, least=1) | points_of(2, least=1), st.data(), st.sampled_from([0.0, 1.0, 1.96]))
def test_ties_follow_their_definition(points: NDArray[np.float64], data: st.DataObject, z: float) -> None:
    sems = data.draw(arrays(np.float64, points.shape, elements=st.sampled_from([0.0, 0.5, 1.0, 3.0])))
    n, m = points.shape
    frontier = [i for i in range(n) if not any(beats(other, points[i]) for other in points)]

    def surely_beaten(i: int) -> bool:
        return any(
            all(points[i, k] - points[j, k] > z * (sems[i, k] ** 2 + sems[j, k] ** 2) ** 0.5 for k in range(m))
            for j in frontier
        )

    assert tied_mask(points, sems, z).tolist() == [i not in frontier and not surely_beaten(i) for i in range(n)]


def test_a_point_is_tied_when_one_objective_is_within_the_uncertainty_of_the_difference() -> None:
    points = np.array([[1.0, 1.0], [1.2, 5.0], [1.4, 5.0]])
    sems = np.full((3, 2), 0.1)
    # The difference's standard error is 0.1 * sqrt(2), so that 1.96 of them are 0.277.
    assert tied_mask(points, sems).tolist() == [False, True, False]


def test_a_beaten_point_that_equals_the_frontier_in_one_objective_is_tied_even_without_uncertainty() -> None:
    points = np.array([[1.0, 1.0], [1.0, 2.0], [1.1, 1.1]])
    assert tied_mask(points, np.zeros((3, 2))).tolist() == [False, True, False]
