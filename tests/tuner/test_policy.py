from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidInput, NoRecommendation
from tuner.layout import Configuration, Layout
from tuner.policy import DEFAULT_POLICIES, Candidate, Policy, PolicyKind, Recommendation, recommend
from tuner.trial import EnergySource, Measurement, Source

FASTEST = Policy(kind=PolicyKind.fastest)
LEAST_ENERGY = Policy(kind=PolicyKind.least_energy)
KNEE = Policy(kind=PolicyKind.knee)


def candidate(
    number: int,
    step_time_s: float,
    energy_j: float | None,
    *,
    time_sem: float = 0.0,
    energy_sem: float | None = 0.0,
    tp: int = 1,
    pp: int = 1,
    mhz: int | None = -1,
    power_w: float | None = None,
) -> Candidate:
    """A candidate whose clock is its own unless given, so that configurations differ."""
    measurement = Measurement(
        source=Source.simulated,
        step_time_s=step_time_s,
        step_time_sem_s=time_sem,
        energy_j=energy_j,
        energy_sem_j=energy_sem,
        energy_source=None if energy_j is None else EnergySource.simulated,
        tokens_per_s=4096.0 / step_time_s,
        peak_memory_gib=None,
        average_power_w=power_w,
        steps=10,
        window_s=10.0 * step_time_s,
        duration_s=12.0 * step_time_s,
        requested_mhz=None,
    )
    frequency_mhz = 1000 + number if mhz == -1 else mhz
    return Candidate(number, Configuration(Layout(16 // (tp * pp), tp, pp, 1), frequency_mhz), measurement)


def test_the_fastest_and_the_least_energy_are_the_ends_of_the_frontier_and_the_knee_lies_between() -> None:
    points = [candidate(0, 1.0, 100.0), candidate(1, 1.1, 60.0), candidate(2, 2.0, 50.0), candidate(3, 1.5, 90.0)]
    assert recommend(points, FASTEST, None).candidate is points[0]
    assert recommend(points, LEAST_ENERGY, None).candidate is points[2]
    assert recommend(points, KNEE, None).candidate is points[1]


def test_slowdown_and_saving_refer_to_the_baseline() -> None:
    base = candidate(0, 1.0, 100.0)
    found = recommend([base, candidate(1, 1.04, 70.0)], LEAST_ENERGY, base)
    assert found.slowdown == pytest.approx(0.04)
    assert found.energy_saving == pytest.approx(0.3)


def test_without_a_baseline_or_its_energy_there_is_no_slowdown_or_saving() -> None:
    points = [candidate(1, 1.04, 70.0)]
    assert (recommend(points, FASTEST, None).slowdown, recommend(points, FASTEST, None).energy_saving) == (None, None)
    assert recommend(points, FASTEST, candidate(0, 1.0, None)).energy_saving is None


def test_a_limit_is_judged_with_the_uncertainty_on_the_safe_side() -> None:
    base = candidate(0, 1.0, 100.0)
    policy = Policy(kind=PolicyKind.least_energy, max_slowdown=0.05)
    surely = candidate(1, 1.03, 80.0, time_sem=0.01)
    perhaps = candidate(2, 1.03, 60.0, time_sem=0.011)
    assert recommend([base, surely], policy, base).candidate is surely
    assert recommend([base, surely, perhaps], policy, base).candidate is surely


def test_the_uncertainty_of_the_baseline_counts_against_a_slowdown_too() -> None:
    other = candidate(1, 1.04, 50.0)
    policy = Policy(kind=PolicyKind.least_energy, max_slowdown=0.05)
    sure, unsure = candidate(0, 1.0, 100.0), candidate(0, 1.0, 100.0, time_sem=0.02)
    assert recommend([sure, other], policy, sure).candidate is other
    assert recommend([unsure, other], policy, unsure).candidate is unsure


def test_the_baseline_satisfies_a_slowdown_limit_of_zero_however_uncertain_it_is() -> None:
    base = candidate(0, 1.0, 100.0, time_sem=0.2)
    found = recommend([candidate(1, 1.5, 10.0), base], Policy(kind=PolicyKind.least_energy, max_slowdown=0.0), base)
    assert found.candidate is base
    assert (found.slowdown, found.energy_saving) == (0.0, 0.0)


def test_a_repeat_of_the_baseline_is_no_slower_than_the_baseline() -> None:
    base, repeat = candidate(0, 1.0, 100.0, mhz=None), candidate(7, 1.02, 90.0, mhz=None)
    found = recommend([base, repeat], Policy(kind=PolicyKind.least_energy, max_slowdown=0.0), base)
    assert found.candidate is repeat
    assert (found.slowdown, found.energy_saving) == (0.0, 0.0)


@pytest.mark.parametrize(("baseline_s", "limit"), [(1.0, 0.05), (3.0, 0.1), (0.7, 0.07)])
def test_a_value_exactly_at_its_limit_satisfies_it(baseline_s: float, limit: float) -> None:
    base, other = candidate(0, baseline_s, 100.0), candidate(1, baseline_s * (1 + limit), 50.0)
    policy = Policy(kind=PolicyKind.least_energy, max_slowdown=limit)
    assert recommend([base, other], policy, base).candidate is other


def test_average_power_is_limited_with_the_uncertainty_that_energy_and_time_give_it() -> None:
    cool = candidate(0, 1.25, 100.0, power_w=80.0)
    hot = candidate(1, 1.0, 99.0, power_w=99.0, energy_sem=1.0)
    assert recommend([cool, hot], Policy(kind=PolicyKind.fastest, max_average_power_w=101.0), None).candidate is hot
    tight = recommend([cool, hot], Policy(kind=PolicyKind.fastest, max_average_power_w=100.0), None)
    assert tight.candidate is cool
    assert tight.binding_limit == "max_average_power_w"


def test_unknown_power_does_not_satisfy_a_power_limit() -> None:
    policy = Policy(kind=PolicyKind.fastest, max_average_power_w=500.0)
    known, unknown = candidate(0, 2.0, 100.0, power_w=50.0), candidate(1, 1.0, 100.0)
    assert recommend([known, unknown], policy, None).candidate is known
    with pytest.raises(NoRecommendation, match="max_average_power_w cannot be judged"):
        recommend([unknown], policy, None)


def test_a_slowdown_limit_without_a_baseline_says_so() -> None:
    with pytest.raises(NoRecommendation, match="max_slowdown needs a measured baseline"):
        recommend([candidate(0, 1.0, 1.0)], DEFAULT_POLICIES[1], None)


def test_nothing_measured_says_so() -> None:
    with pytest.raises(NoRecommendation, match="no configuration has been measured"):
        recommend([], FASTEST, None)


@pytest.mark.parametrize("policy", [LEAST_ENERGY, KNEE])
def test_a_policy_about_energy_without_any_energy_says_so(policy: Policy) -> None:
    with pytest.raises(NoRecommendation, match=f"no measured configuration has a known energy, which {policy} needs"):
        recommend([candidate(0, 1.0, None), candidate(1, 2.0, None)], policy, None)


@pytest.mark.parametrize("policy", [LEAST_ENERGY, KNEE])
def test_candidates_without_energy_are_passed_over_by_policies_about_energy(policy: Policy) -> None:
    points = [candidate(0, 1.0, None), candidate(1, 2.0, 5.0)]
    assert recommend(points, policy, None).candidate is points[1]
    assert recommend(points, policy, None).runner_up is None


def test_the_fastest_needs_no_energy() -> None:
    points = [candidate(0, 2.0, None), candidate(1, 1.0, None)]
    assert recommend(points, FASTEST, None).candidate is points[1]


def test_when_nothing_satisfies_the_nearest_is_named_with_what_it_misses() -> None:
    base = candidate(0, 1.0, 100.0)
    points = [candidate(1, 1.3, 50.0), candidate(2, 1.08, 80.0, tp=2, mhz=1200)]
    with pytest.raises(NoRecommendation) as caught:
        recommend(points, Policy(kind=PolicyKind.least_energy, max_slowdown=0.05), base)
    assert str(caught.value) == (
        "no configuration satisfies least energy, at most 5 % slower than the baseline: the nearest, "
        "dp8-tp2-pp1-mb1@1200MHz, may be 8 % slower than the baseline, 3 % beyond max_slowdown"
    )


def test_the_nearest_is_the_one_whose_worst_miss_is_smallest_and_every_missed_limit_is_named() -> None:
    base = candidate(0, 1.0, 100.0, power_w=100.0)
    policy = Policy(kind=PolicyKind.fastest, max_slowdown=0.1, max_average_power_w=50.0)
    near = candidate(1, 1.11, 60.0, power_w=55.0)
    with pytest.raises(NoRecommendation) as caught:
        recommend([base, near, candidate(2, 1.3, 50.0, power_w=40.0)], policy, base)
    assert f"the nearest, {near.configuration}, may be 11 % slower than the baseline, 1 % beyond max_slowdown" in str(
        caught.value
    )
    assert str(caught.value).endswith("and may be 55 W on average over the launch, 5 W beyond max_average_power_w")


def test_among_points_that_the_objective_cannot_tell_apart_the_other_objective_decides() -> None:
    quick = candidate(0, 1.00, 100.0, time_sem=0.01, energy_sem=1.0)
    frugal = candidate(1, 1.02, 90.0, time_sem=0.01, energy_sem=1.0, tp=8)
    slow = candidate(2, 1.2, 10.0, time_sem=0.01, energy_sem=1.0)
    found = recommend([quick, frugal, slow], FASTEST, None)
    assert found.candidate is frugal
    assert found.ties == (quick,)


def test_points_that_neither_objective_tells_apart_are_decided_by_the_simpler_layout() -> None:
    like = partial(candidate, time_sem=0.01, energy_sem=1.0)
    simplest_first = [
        like(9, 1.020, 101.0, mhz=None),
        like(4, 1.018, 100.0, mhz=1100),
        like(3, 1.019, 100.0, mhz=1200),
        like(2, 1.010, 100.5, pp=2),
        like(1, 1.000, 100.0, tp=2),
        like(5, 1.000, 99.5, pp=4),
        like(0, 1.000, 99.5, tp=2, pp=2, mhz=None),
    ]
    for policy in (FASTEST, LEAST_ENERGY, KNEE):
        for start in range(len(simplest_first)):
            found = recommend(simplest_first[start:][::-1], policy, None)
            assert (found.candidate, *found.ties) == tuple(simplest_first[start:])


def test_among_equally_fast_points_a_known_energy_goes_before_an_unknown_one() -> None:
    points = [candidate(0, 1.0, None), candidate(1, 1.0, 500.0, tp=8)]
    assert recommend(points, FASTEST, None).candidate is points[1]


def test_an_unknown_standard_error_of_energy_counts_as_none() -> None:
    points = [candidate(0, 1.0, 100.0, energy_sem=None, tp=2), candidate(1, 9.0, 100.1, energy_sem=None)]
    assert recommend(points, LEAST_ENERGY, None).candidate is points[0]


def test_the_runner_up_is_another_configuration_and_not_another_measurement_of_the_same() -> None:
    points = [candidate(0, 1.0, 10.0, mhz=900), candidate(1, 1.1, 9.0, mhz=900), candidate(2, 1.2, 8.0)]
    assert recommend(points, FASTEST, None).runner_up is points[2]
    assert recommend(points[:2], FASTEST, None).runner_up is None


def test_a_limit_binds_when_another_point_would_be_chosen_without_it() -> None:
    base = candidate(0, 1.0, 100.0)
    points = [base, candidate(1, 1.04, 90.0), candidate(2, 1.5, 40.0)]
    tight = recommend(points, Policy(kind=PolicyKind.least_energy, max_slowdown=0.05), base)
    loose = recommend(points, Policy(kind=PolicyKind.least_energy, max_slowdown=0.6), base)
    assert (tight.candidate, tight.binding_limit) == (points[1], "max_slowdown")
    assert (loose.candidate, loose.binding_limit) == (points[2], None)
    assert recommend(points, LEAST_ENERGY, base).binding_limit is None


def test_of_two_limits_only_the_one_that_changes_the_choice_binds() -> None:
    base = candidate(0, 1.0, 100.0, power_w=100.0)
    points = [base, candidate(1, 1.04, 90.0, power_w=86.0), candidate(2, 1.5, 40.0, power_w=27.0)]
    policy = Policy(kind=PolicyKind.fastest, max_slowdown=0.05, max_average_power_w=90.0)
    found = recommend(points, policy, base)
    assert (found.candidate, found.binding_limit) == (points[1], "max_average_power_w")


def test_the_knee_is_that_of_the_frontier_within_the_limits() -> None:
    base = candidate(0, 1.0, 100.0)
    points = [base, candidate(1, 1.2, 80.0), candidate(2, 1.5, 70.0), candidate(3, 2.0, 20.0), candidate(4, 9.0, 10.0)]
    assert recommend(points, KNEE, base).candidate is points[3]
    limited = recommend(points, Policy(kind=PolicyKind.knee, max_slowdown=0.5), base)
    assert limited.candidate is points[1]
    assert limited.binding_limit == "max_slowdown"


def test_repeated_recommendation_never_drifts_because_the_baseline_is_fixed() -> None:
    """A tuner whose 5 % referred to the configuration in use would creep 4 % slower with every round."""
    points = [candidate(n, 1.04**n, 100.0 - n) for n in range(20)]
    policy = Policy(kind=PolicyKind.least_energy, max_slowdown=0.05)
    in_use = points[0]
    for _ in range(10):
        in_use = recommend(points, policy, points[0]).candidate
        assert in_use is points[1]
        # The trap is there: with the choice itself as the reference, the next round would go one further.
        assert recommend(points, policy, in_use).candidate is points[2]


@pytest.mark.parametrize("name", [f.name for f in fields(Policy) if f.name != "kind"])
@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, -math.inf])
def test_a_limit_that_is_negative_or_not_finite_is_invalid_input(name: str, value: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        Policy(kind=PolicyKind.fastest, **{name: value})
    assert [problem.field for problem in caught.value.problems] == [f"policy.{name}"]


def test_every_wrong_limit_of_a_policy_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        Policy(kind=PolicyKind.knee, max_slowdown=-1.0, max_average_power_w=math.nan)
    assert [p.field for p in caught.value.problems] == ["policy.max_slowdown", "policy.max_average_power_w"]


def test_policies_say_in_plain_words_what_they_do() -> None:
    assert [str(policy) for policy in DEFAULT_POLICIES] == [
        "fastest",
        "least energy, at most 5 % slower than the baseline",
        "least energy",
    ]
    both = Policy(kind=PolicyKind.knee, max_slowdown=0.125, max_average_power_w=12000.0)
    assert str(both) == (
        "knee of the frontier, at most 12.5 % slower than the baseline, at most 12000 W on average over the launch"
    )


numbers = st.sampled_from([1.0, 1.02, 1.05, 1.1, 1.3, 2.0]) | st.floats(0.5, 3.0)
errors = st.sampled_from([0.0, 0.01, 0.05])


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    return [
        candidate(
            number,
            draw(numbers),
            draw(numbers | st.none()),
            time_sem=draw(errors),
            energy_sem=draw(errors | st.none()),
            tp=draw(st.sampled_from([1, 2, 4])),
            pp=draw(st.sampled_from([1, 2])),
            mhz=draw(st.sampled_from([None, 1000, 1200])),
            power_w=draw(numbers | st.none()),
        )
        for number in range(draw(st.integers(1, 8)))
    ]


policies = st.builds(
    Policy,
    kind=st.sampled_from([PolicyKind.fastest, PolicyKind.least_energy]),
    max_slowdown=st.none() | st.sampled_from([0.0, 0.07, 0.3]),
    max_average_power_w=st.none() | st.sampled_from([1.2, 1.7]),
)


def allowed_by_hand(point: Candidate, policy: Policy, base: Candidate) -> bool:
    m, b = point.measurement, base.measurement
    if policy.kind is PolicyKind.least_energy and m.energy_j is None:
        return False
    if policy.max_slowdown is not None and str(point.configuration) != str(base.configuration):
        ratio = m.step_time_s / b.step_time_s
        variance = ratio**2 * ((m.step_time_sem_s / m.step_time_s) ** 2 + (b.step_time_sem_s / b.step_time_s) ** 2)
        if ratio + 1.96 * variance**0.5 > 1 + policy.max_slowdown + 1e-9:
            return False
    if policy.max_average_power_w is not None:
        if m.average_power_w is None:
            return False
        relative = (m.step_time_sem_s / m.step_time_s) ** 2
        relative = relative + ((m.energy_sem_j or 0) / m.energy_j) ** 2 if m.energy_j is not None else 0.0
        if m.average_power_w * (1 + 1.96 * relative**0.5) > policy.max_average_power_w + 1e-9:
            return False
    return True


def test_of_two_clocks_that_cannot_be_told_apart_the_one_that_beats_the_other_is_picked() -> None:
    like = partial(candidate, time_sem=0.05, energy_sem=500.0)
    worse, better = like(5, 3.098, 33290.0, mhz=1740), like(39, 3.093, 33240.0, mhz=1680)
    assert recommend([worse, better], FASTEST, None).candidate is better


def picked_by_hand(points: Sequence[Candidate], kind: PolicyKind) -> Candidate:
    """Strike out whatever loses to a rival, one rule after the other."""

    def objective(point: Candidate, which: str) -> tuple[float, float]:
        m = point.measurement
        if which == "time":
            return m.step_time_s, m.step_time_sem_s
        return (math.inf if m.energy_j is None else m.energy_j), (m.energy_sem_j or 0.0)

    def simpler(point: Candidate) -> list[float]:
        where = point.configuration.layout
        default_clock = point.configuration.frequency_mhz is None
        m = point.measurement
        energy = math.inf if m.energy_j is None else m.energy_j
        return [where.tp * where.pp, where.tp, 0 if default_clock else 1, m.step_time_s, energy, point.trial_number]

    left = sorted(points, key=simpler)
    for which in ("time", "energy") if kind is PolicyKind.fastest else ("energy", "time"):
        lowest, sem = min((objective(p, which) for p in left), key=lambda pair: pair[0])
        if lowest == math.inf:
            continue
        left = [
            p
            for p in left
            if objective(p, which)[0] - lowest <= 1.96 * (objective(p, which)[1] ** 2 + sem**2) ** 0.5 * (1 + 1e-12)
        ]
    return left[0]


@given(candidate_lists(), policies)
def test_recommendation_agrees_with_a_brute_force(points: list[Candidate], policy: Policy) -> None:
    base = points[0]
    allowed = [p for p in points if allowed_by_hand(p, policy, base)]
    if not allowed:
        with pytest.raises(NoRecommendation):
            recommend(points, policy, base)
        return
    found = recommend(points, policy, base)
    assert found.candidate is picked_by_hand(allowed, policy.kind)
    others = [p for p in allowed if str(p.configuration) != str(found.candidate.configuration)]
    assert found.runner_up is (picked_by_hand(others, policy.kind) if others else None)
    binding = []
    for name in ("max_slowdown", "max_average_power_w"):
        kept = {n: getattr(policy, n) for n in ("max_slowdown", "max_average_power_w") if n != name}
        freed = Policy(kind=policy.kind, **kept)
        if picked_by_hand([p for p in points if allowed_by_hand(p, freed, base)], policy.kind) is not found.candidate:
            binding.append(name)
    assert found.binding_limit == (binding[0] if binding else None)


any_policy = policies | st.sampled_from([KNEE, Policy(kind=PolicyKind.knee, max_slowdown=0.3)])


@given(candidate_lists(), any_policy, st.randoms(use_true_random=False))
def test_recommendation_does_not_depend_on_the_order_of_candidates(
    points: list[Candidate], policy: Policy, random: Random
) -> None:
    def outcome(order: list[Candidate]) -> Recommendation | str:
        try:
            return recommend(order, policy, points[0])
        except NoRecommendation as error:
            return str(error)

    shuffled = points.copy()
    random.shuffle(shuffled)
    assert outcome(shuffled) == outcome(points)


@given(candidate_lists())
def test_knee_recommended_without_uncertainty_is_beaten_by_no_candidate(points: list[Candidate]) -> None:
    exact = [
        candidate(n, p.measurement.step_time_s, e, tp=p.configuration.layout.tp)
        for n, p in enumerate(points)
        if (e := p.measurement.energy_j) is not None
    ]
    if not exact:
        return
    chosen = recommend(exact, KNEE, None).candidate.measurement
    for rival in (p.measurement for p in exact):
        assert rival.energy_j is not None
        assert chosen.energy_j is not None
        worse = rival.step_time_s > chosen.step_time_s or rival.energy_j > chosen.energy_j
        assert worse or (rival.step_time_s, rival.energy_j) == (chosen.step_time_s, chosen.energy_j)
