from __future__ import annotations

import pytest
from builders import KnownTrial, configuration, measurement
from hypothesis import given
from hypothesis import strategies as st

from tuner.layout import Configuration
from tuner.result import Reference, Role, evaluate, reference_of
from tuner.spec import LimitsSection
from tuner.states import TrialState

NO_LIMITS = LimitsSection(slowdown=None)
FEW = st.sampled_from([0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0])


def known(number: int, time_s: float, energy_j: float | None, power_w: float | None = None) -> KnownTrial:
    changes = {} if power_w is None else {"average_power_w": power_w}
    return KnownTrial(number, spot(number), measurement=measurement(time_s, energy_j, **changes))


def spot(number: int) -> Configuration:
    return configuration(microbatch=number + 1)


def brute_force(trials: list[KnownTrial], limits: LimitsSection) -> set[int]:
    """The frontier by its definition, written without a line of what is tested."""
    complete = [t for t in trials if t.state is TrialState.complete and t.measurement is not None]
    baseline = next((t.measurement for t in complete if t.number == 0), None)

    def feasible(trial: KnownTrial) -> bool:
        m = trial.measurement
        assert m is not None
        if m.energy_j is None:
            return False
        if limits.average_power_w and m.average_power_w and m.average_power_w / limits.average_power_w - 1 > 0:
            return False
        if limits.slowdown is None or baseline is None:
            return True
        return not m.step_time_s / (baseline.step_time_s * (1 + limits.slowdown)) - 1 > 0

    def beats(a: KnownTrial, b: KnownTrial) -> bool:
        assert a.measurement is not None
        assert b.measurement is not None
        assert a.measurement.energy_j is not None
        assert b.measurement.energy_j is not None
        no_worse = (
            a.measurement.step_time_s <= b.measurement.step_time_s and a.measurement.energy_j <= b.measurement.energy_j
        )
        better = (
            a.measurement.step_time_s < b.measurement.step_time_s or a.measurement.energy_j < b.measurement.energy_j
        )
        return no_worse and better

    pool = [t for t in complete if feasible(t)]
    return {t.number for t in pool if not any(beats(other, t) for other in pool)}


TRIALS = st.lists(
    st.tuples(FEW | st.floats(0.1, 10), st.none() | FEW | st.floats(1, 1e6), st.sampled_from(list(TrialState))),
    max_size=25,
)
LIMITS = st.builds(
    LimitsSection,
    slowdown=st.none() | st.sampled_from([0.2, 0.5, 1.0]),
    average_power_w=st.none() | st.sampled_from([1.0, 500.0, 1e5]),
)


@given(TRIALS, LIMITS)
def test_the_frontier_is_what_brute_force_finds(
    rows: list[tuple[float, float | None, TrialState]], limits: LimitsSection
) -> None:
    trials = []
    for number, (time_s, energy_j, state) in enumerate(rows):
        trial = known(number, time_s, energy_j)
        trial.state = state
        if state is not TrialState.complete:
            trial.measurement = None
        trials.append(trial)
    result = evaluate(trials, limits, has_energy=True, reference=Reference(2.0, 1e5))
    assert {c.trial_number for c in result.frontier} == brute_force(trials, limits)
    times = [c.measurement.step_time_s for c in result.frontier]
    assert times == sorted(times)
    assert list(result.hypervolumes) == sorted(result.hypervolumes)
    assert all(0 <= volume <= 1 for volume in result.hypervolumes)
    assert len(result.hypervolumes) == sum(t.state.is_final for t in trials)


def test_points_beyond_the_limits_never_stand_on_the_frontier_and_are_told_apart() -> None:
    trials = [known(0, 1.0, 100.0), known(1, 1.6, 50.0), known(2, 1.4, 60.0), known(3, 1.3, 90.0, power_w=9e9)]
    result = evaluate(trials, LimitsSection(slowdown=0.5, average_power_w=1e6), has_energy=True, reference=None)
    assert [c.trial_number for c in result.frontier] == [0, 2]
    assert {c.trial_number for c in result.with_role(Role.beyond_limits)} == {1, 3}
    assert {c.trial_number for c in result.feasible} == {0, 2}


def test_a_point_within_the_noise_of_the_frontier_is_tied_not_dominated() -> None:
    near = KnownTrial(1, spot(1), measurement=measurement(1.01, 101.0, step_time_sem_s=0.02, energy_sem_j=2.0))
    far = KnownTrial(2, spot(2), measurement=measurement(1.5, 150.0, step_time_sem_s=0.02, energy_sem_j=2.0))
    result = evaluate([known(0, 1.0, 100.0), near, far], NO_LIMITS, has_energy=True, reference=None)
    assert result.roles == (Role.frontier, Role.tied, Role.dominated)


def test_without_energy_the_frontier_is_the_fastest_configuration() -> None:
    trials = [known(0, 2.0, None), known(1, 1.0, None), known(2, 3.0, None)]
    result = evaluate(trials, NO_LIMITS, has_energy=False, reference=Reference(4.0, None))
    assert [c.trial_number for c in result.frontier] == [1]
    assert result.hypervolumes == pytest.approx((0.5, 0.75, 0.75))


def test_a_missing_energy_in_a_study_that_has_energy_is_shown_as_such_and_never_as_zero() -> None:
    result = evaluate([known(0, 1.0, 100.0), known(1, 0.5, None)], NO_LIMITS, has_energy=True, reference=None)
    assert result.roles == (Role.frontier, Role.no_energy)


def test_a_study_in_which_nothing_ran_has_an_empty_frontier_and_no_hypervolume() -> None:
    lost = KnownTrial(0, spot(0), TrialState.infeasible)
    result = evaluate([lost], NO_LIMITS, has_energy=True, reference=None)
    assert result.frontier == ()
    assert result.baseline is None
    assert result.hypervolumes == (0.0,)


def test_the_reference_point_lies_beyond_the_first_measurement_by_the_slowdown_allowed() -> None:
    assert reference_of(measurement(2.0, 100.0), LimitsSection(slowdown=0.25)) == Reference(2.5, 125.0)
    assert reference_of(measurement(2.0, None), NO_LIMITS) == Reference(3.0, None)
