from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from builders import KnownTrial, configuration, measurement, spec, table
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.limits import limit_excess
from tuner.space import build_space
from tuner.spec import LimitsSection
from tuner.states import TrialState
from tuner.study import Proposal, Study
from tuner.trial import FailureKind

SAMPLERS = ["tpe", "nsga2", "gp", "random", "grid"]


def make_study(kind: str, seed: int = 3, pp: list[int] | str = "auto") -> Study:
    space = {"frequency_mhz": [1110], "microbatch": [1, 2], "pp": pp}
    study_spec = spec(sampler={"kind": kind, "seed": seed}, space=space)
    return Study(build_space(study_spec), study_spec.sampler, study_spec.limits)


def answer(proposal: Proposal, number: int) -> KnownTrial:
    """A deterministic world: some layouts run out of memory, one crashes, the others have a time and an energy."""
    layout = proposal.configuration.layout
    clock = proposal.configuration.frequency_mhz or 1410
    known = KnownTrial(number, proposal.configuration, sampler_attrs=proposal.sampler_attrs)
    if layout.tp == 4 and layout.microbatch == 2:
        known.state, known.failure_kind = TrialState.infeasible, FailureKind.out_of_memory
    elif layout.pp == 4:
        known.state, known.failure_kind = TrialState.failed, FailureKind.crashed
    else:
        time_s = (1 + layout.tp * 0.3 + layout.pp * 0.2) * 1410 / clock
        known.measurement = measurement(time_s, 500 * time_s * (clock / 1410) ** 1.7)
    return known


def run(study: Study, trials: int) -> list[KnownTrial]:
    known: list[KnownTrial] = []
    while len(known) < trials and (proposal := study.ask(known)) is not None:
        known.append(answer(proposal, len(known)))
    return known


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_sampler_goes_through_the_whole_space_never_twice_and_then_says_that_nothing_is_left(kind: str) -> None:
    # A Gaussian process takes a second a suggestion once hundreds of points lie close together.
    study = make_study(kind, pp=[1] if kind == "gp" else "auto")
    known = run(study, 1000)
    proposed = [trial.configuration for trial in known]
    assert len(proposed) == len(set(proposed))
    assert set(proposed) <= set(study.space.configurations)
    # Only what the out-of-memory layouts rule out may be missing: their other clocks.
    missing = set(study.space.configurations) - set(proposed)
    assert missing == {c for c in missing if c.layout.tp == 4 and c.layout.microbatch == 2}
    assert missing
    assert study.ask(known) is None


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_study_taken_up_by_another_process_goes_on_as_the_first_one_would_have(kind: str) -> None:
    undisturbed = [trial.configuration for trial in run(make_study(kind), 14)]
    known: list[KnownTrial] = []
    for number in range(14):
        proposal = make_study(kind).ask(known)
        assert proposal is not None
        known.append(answer(proposal, number))
    assert [trial.configuration for trial in known] == undisturbed


@pytest.mark.parametrize("kind", ["tpe", "nsga2", "gp", "random"])
def test_another_seed_gives_another_order(kind: str) -> None:
    first, second = run(make_study(kind, 1), 12), run(make_study(kind, 2), 12)
    assert [t.configuration for t in first] != [t.configuration for t in second]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_running_trials_are_not_proposed_again(kind: str) -> None:
    study = make_study(kind)
    known: list[KnownTrial] = []
    for number in range(8):
        proposal = study.ask(known)
        assert proposal is not None
        state = TrialState.queued if number % 2 else TrialState.running
        known.append(KnownTrial(number, proposal.configuration, state, sampler_attrs=proposal.sampler_attrs))
    assert len({trial.configuration for trial in known}) == 8


def test_the_first_proposal_is_the_baseline() -> None:
    study = make_study("tpe")
    assert study.ask([]) == Proposal(study.space.baseline, "baseline", {})


def test_grid_opens_each_launch_once() -> None:
    layouts = [trial.configuration.layout for trial in run(make_study("grid"), 1000)][1:]
    changes = sum(a != b for a, b in pairwise(layouts))
    assert changes == len(set(layouts)) - 1


def test_a_layout_that_ran_out_of_memory_rules_out_its_clocks_and_larger_microbatches() -> None:
    study_spec = spec()
    study = Study(build_space(study_spec), study_spec.sampler, study_spec.limits)
    lost = KnownTrial(0, configuration(microbatch=2), TrialState.infeasible, FailureKind.out_of_memory)
    left = {c.layout for c in study.remaining([lost])}
    of_same_degrees = {layout.microbatch for layout in left if (layout.tp, layout.pp) == (1, 1)}
    assert of_same_degrees == {1}
    assert {layout.microbatch for layout in left if (layout.tp, layout.pp) == (2, 1)} >= {2, 4}


def test_a_layout_that_the_trainer_refuses_rules_out_only_itself() -> None:
    study_spec = spec()
    study = Study(build_space(study_spec), study_spec.sampler, study_spec.limits)
    refused = KnownTrial(0, configuration(microbatch=2), TrialState.infeasible, FailureKind.invalid_layout)
    left = {c.layout.microbatch for c in study.remaining([refused]) if (c.layout.tp, c.layout.pp) == (1, 1)}
    assert left == {1, 4}


def test_a_space_of_one_configuration_is_exhausted_after_the_baseline() -> None:
    study_spec = spec(runner={"kind": "replay", "csv": table("4,1,1,1,,,1,10,,ok\n")}, space={})
    study = Study(build_space(study_spec), study_spec.sampler, study_spec.limits)
    first = study.ask([])
    assert first is not None
    assert study.ask([KnownTrial(0, first.configuration, measurement=measurement())]) is None


@pytest.mark.parametrize("kind", SAMPLERS)
def test_tables_without_energy_are_searched_too(kind: str) -> None:
    rows = "".join(f"{4 // tp},{tp},1,{mb},,,{tp + mb / 10},,,ok\n" for tp in (1, 2, 4) for mb in (1, 2, 4))
    study_spec = spec(runner={"kind": "replay", "csv": table(rows)}, space={}, sampler={"kind": kind})
    study = Study(build_space(study_spec), study_spec.sampler, study_spec.limits)
    known: list[KnownTrial] = []
    while (proposal := study.ask(known)) is not None:
        known.append(KnownTrial(len(known), proposal.configuration, measurement=measurement(1.0, None)))
    assert len(known) == 9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["tpe", "nsga2", "random", "grid"]), st.integers(0, 24))
def test_whatever_the_trials_were_the_next_proposal_is_new_and_valid(seed: int, kind: str, done: int) -> None:
    study, rng = make_study(kind), random.Random(seed)
    configurations = rng.sample(study.space.configurations, k=min(done, len(study.space.configurations) - 1))
    known = [random_trial(number, c, rng) for number, c in enumerate(configurations)]
    proposal = study.ask(known)
    allowed: Sequence[object] = study.remaining(known)
    assert (proposal is None) == (not allowed)
    assert proposal is None or proposal.configuration in allowed


def random_trial(number: int, chosen: object, rng: random.Random) -> KnownTrial:
    state = rng.choice(list(TrialState))
    trial = KnownTrial(number, chosen, state)  # type: ignore[arg-type]
    if state is TrialState.complete:
        trial.measurement = measurement(rng.uniform(0.1, 9), rng.choice([None, rng.uniform(1, 1e6)]))
    elif state is TrialState.infeasible:
        trial.failure_kind = rng.choice([FailureKind.out_of_memory, FailureKind.invalid_layout])
    return trial


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"slowdown": 0.5}, 0.0),
        ({"slowdown": 0.25}, 0.2),
        ({"slowdown": None}, 0.0),
        ({"slowdown": None, "average_power_w": 500.0}, 1.0),
    ],
)
def test_the_excess_over_the_limits_is_the_share_beyond_the_worst_of_them(
    limits: dict[str, float | None], expected: float
) -> None:
    slow = measurement(1.5, 1500.0)
    assert limit_excess(slow, LimitsSection(**limits), measurement(1.0)) == pytest.approx(expected)


def test_without_a_measured_baseline_the_slowdown_does_not_limit() -> None:
    assert limit_excess(measurement(99.0), LimitsSection(slowdown=0.1), None) == 0
