from __future__ import annotations

import pytest

from tuner.bench.clairvoyant import clairvoyant_s
from tuner.bench.run import run, seconds_to
from tuner.bench.truth import Truth, is_reached
from tuner.errors import InvalidInput
from tuner.layout import Configuration, Layout
from tuner.search.believed import Believed
from tuner.table import parse_table

HEAD = "dp,tp,pp,microbatch,frequency_mhz,step_time_s,energy_j,peak_memory_gib,launch_s,status\n"
ROWS = (
    HEAD
    + "8,1,1,1,1410,1.0,4000,10,60,ok\n8,1,1,1,1110,1.2,3000,10,60,ok\n"
    + "4,2,1,1,1410,2.0,6000,10,50,ok\n4,2,1,1,1110,2.4,5000,10,50,ok\n"
    + "8,1,1,2,1410,,,,40,oom\n8,1,1,2,1110,,,,40,oom\n"
)


@pytest.fixture
def truth() -> Truth:
    return Truth("table", parse_table(ROWS))


class InOrder:
    """Goes through the table; believes everything measured."""

    def __init__(self, truth: Truth) -> None:
        self._left = list(truth.configurations)

    def suggest(self, trials: object, open_layout: Layout | None) -> Configuration | None:
        return self._left.pop(0) if self._left else None

    def believed(self, trials: object) -> Believed:
        return Believed(tuple(trial.configuration for trial in trials if trial.measurement))  # type: ignore[attr-defined]


def test_the_whole_frontier_scores_one_and_a_part_of_it_less(truth: Truth) -> None:
    assert len(truth.frontier) == 2
    assert truth.share(truth.frontier) == pytest.approx(1.0)
    assert 0 < truth.share(truth.frontier[:1]) < 1
    assert truth.share(()) == 0


def test_the_score_is_the_hypervolume_in_spans_of_the_frontier_with_the_reference_at_one_point_one(
    truth: Truth,
) -> None:
    # In spans the frontier is (0, 1) and (1, 0): it covers 1.1 * 0.1 + 0.1 * 1.0 of the box, one point alone 0.11.
    assert truth.share(truth.frontier[:1]) == pytest.approx(0.11 / 0.21)


def test_a_trial_in_an_open_launch_pays_no_launch_and_one_out_of_memory_only_its_launch(truth: Truth) -> None:
    steps = list(run(truth, InOrder(truth), seed=0, noise=0.0, max_trials=9, gpus=8))
    charged = [after.seconds - before for after, before in zip(steps, [0.0, *(s.seconds for s in steps)], strict=False)]
    assert charged == pytest.approx([60 + 13, 13 * 1.2, 50 + 26, 13 * 2.4, 40, 40])
    assert [step.new_launch for step in steps] == [True, False, True, False, True, True]


def test_the_time_to_a_score_is_that_of_the_first_trial_that_reaches_it(truth: Truth) -> None:
    steps = list(run(truth, InOrder(truth), seed=0, noise=0.0, max_trials=9, gpus=8))
    assert seconds_to(steps, 0.99) == pytest.approx(73 + 15.6)
    assert seconds_to(steps, 1.01) is None


def test_noise_depends_on_the_seed_and_the_configuration_alone(truth: Truth) -> None:
    first, second = truth.configurations[:2]
    assert truth.measure(first, 1, 0.01) == truth.measure(first, 1, 0.01)
    assert truth.measure(first, 1, 0.01) != truth.measure(first, 2, 0.01)
    assert truth.measure(second, 1, 0.0) is not None
    assert truth.measure(second, 1, 0.0).step_time_s == 1.2  # type: ignore[union-attr]


def test_the_bound_opens_only_the_layout_that_holds_the_frontier(truth: Truth) -> None:
    assert clairvoyant_s(truth, 0.99) == pytest.approx(60 + 13 * (1.0 + 1.2))


def test_a_table_where_all_ran_out_of_memory_has_nothing_to_find() -> None:
    rows = parse_table(HEAD + "8,1,1,2,1410,,,,40,oom\n")
    with pytest.raises(InvalidInput, match="no feasible configuration"):
        Truth("table", rows)


def test_an_energy_missing_in_some_rows_is_refused() -> None:
    rows = parse_table(HEAD + "8,1,1,1,1410,1.0,4000,10,60,ok\n4,2,1,1,1410,2.0,,10,60,ok\n")
    with pytest.raises(InvalidInput, match="1 of 2 rows"):
        Truth("table", rows)


def test_a_score_is_reached_up_to_rounding() -> None:
    assert is_reached(0.95 - 1e-15, 0.95)
    assert not is_reached(0.9499, 0.95)
