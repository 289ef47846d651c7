from __future__ import annotations

import pytest
from builders import KnownTrial, measurement, spec, table

from tuner.layout import Configuration
from tuner.search.frontier_search import FrontierSearch
from tuner.space import Space, build_space
from tuner.states import TrialState
from tuner.trial import FailureKind


@pytest.fixture(scope="module")
def space() -> Space:
    return build_space(spec(space={"frequency_mhz": [810, 1110, 1410], "microbatch": [1, 2]}))


def answered(configuration: Configuration, number: int) -> KnownTrial:
    """A deterministic world: some layouts run out of memory, the others have a time and an energy."""
    layout, clock = configuration.layout, configuration.frequency_mhz or 1410
    known = KnownTrial(number, configuration)
    if layout.tp == 4 and layout.microbatch == 2:
        known.state, known.failure_kind = TrialState.infeasible, FailureKind.out_of_memory
    else:
        time_s = (1 + layout.tp * 0.3 + layout.pp * 0.2) * (0.3 + 0.7 * 1410 / clock)
        known.measurement = measurement(time_s, 3000 * time_s * (0.3 + 0.7 * (clock / 1410) ** 2))
    return known


def searched(space: Space, seed: int, count: int) -> list[KnownTrial]:
    """The first trials of a search."""
    search, trials = FrontierSearch(space, seed=seed), list[KnownTrial]()
    while len(trials) < count:
        configuration = search.suggest(trials)
        if configuration is None:
            break
        trials.append(answered(configuration, len(trials)))
    return trials


def test_what_is_proposed_is_in_the_space_and_never_twice(space: Space) -> None:
    proposed = [trial.configuration for trial in searched(space, 0, 10)]
    assert len(proposed) > 1
    assert set(proposed) <= set(space.configurations)
    assert len(set(proposed)) == len(proposed)


def test_an_answer_follows_from_the_trials_alone_so_that_a_restart_changes_nothing(space: Space) -> None:
    trials = searched(space, 1, 5)
    for known in range(len(trials)):
        assert FrontierSearch(space, seed=1).suggest(trials[:known]) == trials[known].configuration


def test_what_runs_is_not_proposed_again(space: Space) -> None:
    search, trials = FrontierSearch(space), list[KnownTrial]()
    for number in range(6):
        configuration = search.suggest(trials)
        assert configuration is not None
        trials.append(KnownTrial(number, configuration, state=TrialState.running))
    assert len({trial.configuration for trial in trials}) == 6


def test_only_what_is_allowed_is_proposed(space: Space) -> None:
    allowed = {space.configurations[5]}
    assert FrontierSearch(space).suggest([], allowed=allowed) == space.configurations[5]
    assert FrontierSearch(space).suggest([], allowed=()) is None


def test_nothing_is_proposed_when_everything_was(space: Space) -> None:
    trials = [answered(configuration, number) for number, configuration in enumerate(space.configurations)]
    assert FrontierSearch(space).suggest(trials) is None


def test_a_layout_that_ran_out_of_memory_is_not_proposed_at_another_clock(space: Space) -> None:
    layout = space.configurations[0].layout
    failed = KnownTrial(0, space.configurations[0], state=TrialState.infeasible, failure_kind=FailureKind.out_of_memory)
    others = {c for c in space.configurations if c.layout == layout}
    assert FrontierSearch(space).suggest([failed], allowed=others) is None


def test_predicted_configurations_stand_only_for_layouts_that_were_launched(space: Space) -> None:
    trials = searched(space, 0, 4)
    believed = FrontierSearch(space).believed(trials)
    measured = {trial.configuration for trial in trials if trial.measurement}
    assert set(believed.measured) <= measured
    assert not set(believed.predicted) & measured
    assert {c.layout for c in believed.predicted} <= {c.layout for c in measured}


def test_without_energy_the_fastest_is_believed(space: Space) -> None:
    rows = "4,1,1,1,1410,60,1.0,,10,ok\n2,2,1,1,1410,60,2.0,,10,ok\n"
    timed = build_space(spec(runner={"kind": "replay", "csv": table(rows)}, space={}))
    search, trials = FrontierSearch(timed), list[KnownTrial]()
    for number, (configuration, time_s) in enumerate(zip(timed.configurations, (1.0, 2.0), strict=True)):
        trials.append(KnownTrial(number, configuration, measurement=measurement(time_s, None)))
    assert search.believed(trials).measured == (timed.configurations[0],)
