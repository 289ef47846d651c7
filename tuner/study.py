"""Ask and tell: which configuration a study measures next, given every trial so far."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, create_trial

from tuner.layout import Configuration, Layout
from tuner.limits import limit_excess
from tuner.search.pool import Pool
from tuner.search.samplers import make_sampler
from tuner.space import Space
from tuner.spec import LimitsSection, SamplerSection
from tuner.states import TrialState
from tuner.trial import FailureKind, KnownTrial, Measurement

# The view is rebuilt for every suggestion; what Optuna logs about it concerns no user.
optuna.logging.set_verbosity(optuna.logging.WARNING)

# A proposal outside the pool is drawn again this often before it is moved to the nearest configuration. A Gaussian
# process takes a second to fit for each draw, and would only propose the same again.
_DRAWS = 16
_DRAWS_OF_GP = 1
_OPTUNA_STATES = {
    TrialState.queued: optuna.trial.TrialState.RUNNING,
    TrialState.running: optuna.trial.TrialState.RUNNING,
    TrialState.complete: optuna.trial.TrialState.COMPLETE,
    TrialState.infeasible: optuna.trial.TrialState.COMPLETE,
    TrialState.failed: optuna.trial.TrialState.FAIL,
    TrialState.stopped: optuna.trial.TrialState.FAIL,
    TrialState.lost: optuna.trial.TrialState.FAIL,
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """The next trial.

    Args:
        configuration: What to measure.
        origin: ``baseline`` or ``sampler``.
        sampler_attrs: The sampler's notes, to be kept with the trial and handed back with it.
    """

    configuration: Configuration
    origin: str
    sampler_attrs: dict[str, Any]


class Study:
    """Proposes configurations. It holds no truth: every answer follows from the trials it is given and the seed.

    So a study taken up by another process goes on exactly where the first one stopped.

    Args:
        space: What may be measured.
        sampler: How to choose.
        limits: What is not worth measuring.
    """

    def __init__(self, space: Space, sampler: SamplerSection, limits: LimitsSection) -> None:
        self.space = space
        self.sampler = sampler
        self.limits = limits
        self.pool = Pool(space.configurations)

    def remaining(self, trials: Sequence[KnownTrial]) -> list[Configuration]:
        """Configurations still worth asking for, in the pool's order.

        One that was proposed is never proposed again. A layout that ran out of memory does so at every clock, and so
        does any larger microbatch of the same degrees; a layout that the trainer refused is out with all its clocks.
        """
        seen = {trial.configuration for trial in trials}
        infeasible = [t for t in trials if t.state is TrialState.infeasible]
        refused = {t.configuration.layout for t in infeasible}
        too_large = {t.configuration.layout for t in infeasible if t.failure_kind is FailureKind.out_of_memory}
        return [
            c
            for c in self.space.configurations
            if c not in seen and c.layout not in refused and not _needs_more_memory(c.layout, too_large)
        ]

    def ask(self, trials: Sequence[KnownTrial]) -> Proposal | None:
        """Propose the next trial.

        Args:
            trials: Every trial of the study so far, running ones too, by number.

        Returns:
            ``None`` when nothing is left to measure.
        """
        remaining = self.remaining(trials)
        if not remaining:
            return None
        if not trials:
            return Proposal(self.space.baseline, "baseline", {})
        seed = suggestion_seed(self.sampler.seed, len(trials))
        if self.sampler.kind == "random":
            return self._draw_from(remaining, seed)
        view = self._view(trials, make_sampler(self.sampler.kind, seed, self.pool, remaining))
        allowed = frozenset(remaining)
        first: optuna.Trial | None = None
        for _ in range(_DRAWS_OF_GP if self.sampler.kind == "gp" else _DRAWS):
            trial = view.ask(dict(self.pool.distributions))
            first = first or trial
            configuration = self.pool.decode(trial.params)
            if configuration in allowed:
                return Proposal(configuration, "sampler", _notes(view, trial))
            view.tell(trial, state=optuna.trial.TrialState.FAIL)
        assert first is not None
        return Proposal(self.pool.nearest(first.params, remaining), "sampler", _notes(view, first))

    def _draw_from(self, remaining: Sequence[Configuration], seed: int) -> Proposal:
        """One of the remaining configurations, each as likely as the others."""
        view = self._view((), make_sampler("random", seed, self.pool, remaining))
        index = view.ask().suggest_int("index", 0, len(remaining) - 1)
        return Proposal(remaining[index], "sampler", {})

    def _view(self, trials: Sequence[KnownTrial], sampler: optuna.samplers.BaseSampler) -> optuna.Study:
        """The trials as an in-memory Optuna study."""
        objectives = 2 if self.space.has_energy else 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            view = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
            view.add_trials(self._frozen(trials))
        return view

    def _frozen(self, trials: Sequence[KnownTrial]) -> list[FrozenTrial]:
        values = {t.number: self._values(t.measurement) for t in trials if t.state is TrialState.complete}
        observed = [v for v in values.values() if v is not None]
        # Optuna's samplers take the violation from the constraint; a huge objective would only spoil their scales.
        worst = [max(axis) for axis in zip(*observed, strict=True)] or [1.0] * (2 if self.space.has_energy else 1)
        baseline = next((t.measurement for t in trials if t.number == 0), None)
        frozen = []
        for trial in trials:
            state = _OPTUNA_STATES[trial.state]
            told = worst if trial.state is TrialState.infeasible else values.get(trial.number)
            if state is optuna.trial.TrialState.COMPLETE and told is None:
                state = optuna.trial.TrialState.FAIL
            complete = state is optuna.trial.TrialState.COMPLETE
            frozen.append(
                create_trial(
                    state=state,
                    values=told if complete else None,
                    params=self.pool.encode(trial.configuration),
                    distributions=dict(self.pool.distributions),
                    system_attrs=dict(trial.sampler_attrs),
                    constraints={"infeasible": self._violation(trial, baseline)} if complete else None,
                )
            )
        return frozen

    def _values(self, measurement: Measurement | None) -> list[float] | None:
        if measurement is None:
            return None
        if not self.space.has_energy:
            return [measurement.step_time_s]
        return None if measurement.energy_j is None else [measurement.step_time_s, measurement.energy_j]

    def _violation(self, trial: KnownTrial, baseline: Measurement | None) -> float:
        """Above 0 for what did not run or lies beyond the limits: by the share it is beyond them."""
        if trial.measurement is None:
            return 1.0
        excess = limit_excess(trial.measurement, self.limits, baseline)
        return excess if excess > 0 else -1.0


def suggestion_seed(seed: int, number: int) -> int:
    """The seed of one suggestion: it depends on the trial's number alone, so that a restart changes nothing."""
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _needs_more_memory(layout: Layout, too_large: Collection[Layout]) -> bool:
    return any(
        (layout.dp, layout.tp, layout.pp) == (known.dp, known.tp, known.pp) and layout.microbatch > known.microbatch
        for known in too_large
    )


def _notes(view: optuna.Study, trial: optuna.Trial) -> dict[str, Any]:
    """What the sampler wrote on the trial, less what it needs only until the parameters are drawn."""
    attrs = view.trials[trial.number].system_attrs
    return {key: value for key, value in attrs.items() if "relative_params" not in key and key != "constraints"}
