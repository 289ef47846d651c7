"""What the service answers, and the command line prints with ``--json``: one schema for both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tuner.layout import Configuration, Layout, Refusal
from tuner.policy import Candidate, Recommendation
from tuner.result import Result, Role
from tuner.states import StudyState, TrialState
from tuner.store.records import EventRecord, StudyRecord, TrialRecord
from tuner.trial import EnergySource, FailureKind, Measurement, Source


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConfigurationAnswer(_Answer):
    """A layout and the clock it runs at; ``frequency_mhz`` is null for the GPU's default."""

    dp: int
    tp: int
    pp: int
    microbatch: int
    frequency_mhz: int | None

    @classmethod
    def of(cls, configuration: Configuration) -> ConfigurationAnswer:
        """Built from the configuration."""
        layout = configuration.layout
        return cls(
            dp=layout.dp,
            tp=layout.tp,
            pp=layout.pp,
            microbatch=layout.microbatch,
            frequency_mhz=configuration.frequency_mhz,
        )


class MeasurementAnswer(_Answer):
    """What a trial yielded. ``source`` says whether it was measured, simulated or replayed."""

    source: Source
    step_time_s: float
    step_time_sem_s: float
    energy_j: float | None
    energy_sem_j: float | None
    energy_source: EnergySource | None
    energy_per_token_j: float | None
    tokens_per_s: float
    peak_memory_gib: float | None
    average_power_w: float | None
    steps: int
    window_s: float
    duration_s: float
    requested_mhz: int | None
    achieved_mhz: int | None
    temperature_c: float | None
    power_cap_share: float | None
    thermal_share: float | None
    flags: list[str]

    @classmethod
    def of(cls, measurement: Measurement) -> MeasurementAnswer:
        """Built from the measurement."""
        names = [name for name in cls.model_fields if name not in ("flags", "energy_per_token_j")]
        values = {name: getattr(measurement, name) for name in names}
        tokens = measurement.tokens_per_s * measurement.step_time_s
        per_token = None if measurement.energy_j is None else measurement.energy_j / tokens
        return cls(**values, flags=list(measurement.flags), energy_per_token_j=per_token)


class PointAnswer(_Answer):
    """A measured configuration, and where it stands against the baseline."""

    trial: int
    configuration: ConfigurationAnswer
    measurement: MeasurementAnswer
    role: Role
    slowdown: float | None = Field(description="Step time over the baseline's, minus 1; negative is faster.")
    energy_saving: float | None = Field(description="1 minus energy over the baseline's; negative costs more.")

    @classmethod
    def of(cls, candidate: Candidate, role: Role, baseline: Candidate | None) -> PointAnswer:
        """Built from the candidate."""
        own, base = candidate.measurement, baseline.measurement if baseline else None
        saving = None
        if base is not None and base.energy_j is not None and own.energy_j is not None:
            saving = 1 - own.energy_j / base.energy_j
        return cls(
            trial=candidate.trial_number,
            configuration=ConfigurationAnswer.of(candidate.configuration),
            measurement=MeasurementAnswer.of(own),
            role=role,
            slowdown=None if base is None else own.step_time_s / base.step_time_s - 1,
            energy_saving=saving,
        )


class StudyAnswer(_Answer):
    """A study."""

    id: str
    project: str
    name: str
    state: StudyState
    state_reason: str | None
    revision: int
    runner: str
    simulated: bool = Field(description="Whether every number of the study is simulated rather than measured.")
    replayed: bool = Field(description="Whether every number of the study is replayed from a table.")
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    budget_trials: int
    reference_step_time_s: float | None
    reference_energy_j: float | None

    @classmethod
    def of(cls, record: StudyRecord) -> StudyAnswer:
        """Built from the record."""
        kind = record.spec["runner"]["kind"]
        own = ("runner", "simulated", "replayed", "budget_trials")
        values = {name: getattr(record, name) for name in cls.model_fields if name not in own}
        return cls(
            **values,
            runner=kind,
            simulated=kind == "simulated",
            replayed=kind == "replay",
            budget_trials=record.spec["budget"]["trials"],
        )


class CountsAnswer(_Answer):
    """How many trials are in each state, and what they cost."""

    queued: int = 0
    running: int = 0
    complete: int = 0
    infeasible: int = 0
    failed: int = 0
    stopped: int = 0
    lost: int = 0
    gpu_hours: float

    @classmethod
    def of(cls, trials: Sequence[TrialRecord]) -> CountsAnswer:
        """Counted over the trials."""
        counts = {state.value: sum(t.state is state for t in trials) for state in TrialState}
        return cls(**counts, gpu_hours=sum(t.gpu_seconds for t in trials) / 3600)


class StudyDetailAnswer(StudyAnswer):
    """A study with its spec and its counts."""

    spec: dict[str, Any]
    counts: CountsAnswer
    configurations: int = Field(description="Size of the space.")


class TrialAnswer(_Answer):
    """A trial."""

    number: int
    configuration: ConfigurationAnswer
    repeat: int
    state: TrialState
    failure_kind: FailureKind | None
    message: str | None
    origin: str
    attempts: int
    gpu_seconds: float
    measurement: MeasurementAnswer | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, record: TrialRecord) -> TrialAnswer:
        """Built from the record."""
        plain = [name for name in cls.model_fields if name not in ("configuration", "measurement")]
        return cls(
            **{name: getattr(record, name) for name in plain},
            configuration=ConfigurationAnswer.of(record.configuration),
            measurement=None if record.measurement is None else MeasurementAnswer.of(record.measurement),
        )


class FrontierAnswer(_Answer):
    """The time-energy Pareto frontier of a study, and everything it was chosen from."""

    study: StudyAnswer
    objectives: list[str]
    hypervolume: float = Field(description="Share of the box below the reference point that is beaten, 0 to 1.")
    hypervolume_history: list[float] = Field(description="Hypervolume after each finished trial, by number.")
    baseline: PointAnswer | None
    frontier: list[PointAnswer] = Field(description="Fastest first.")
    others: list[PointAnswer] = Field(description="Measured points off the frontier, with their role.")
    infeasible: list[TrialAnswer]
    counts: CountsAnswer

    @classmethod
    def of(
        cls, record: StudyRecord, trials: Sequence[TrialRecord], result: Result, *, has_energy: bool
    ) -> FrontierAnswer:
        """Built from the study's result."""
        points = {
            candidate.trial_number: PointAnswer.of(candidate, role, result.baseline)
            for candidate, role in zip(result.candidates, result.roles, strict=True)
        }
        return cls(
            study=StudyAnswer.of(record),
            objectives=["step_time_s", "energy_j"] if has_energy else ["step_time_s"],
            hypervolume=result.hypervolume,
            hypervolume_history=list(result.hypervolumes),
            baseline=points[result.baseline.trial_number] if result.baseline else None,
            frontier=[points[c.trial_number] for c in result.frontier],
            others=[point for point in points.values() if point.role is not Role.frontier],
            infeasible=[TrialAnswer.of(t) for t in trials if t.state is TrialState.infeasible],
            counts=CountsAnswer.of(trials),
        )


class RecommendationAnswer(_Answer):
    """The configuration to run, and why."""

    study: StudyAnswer
    policy: str
    description: str
    point: PointAnswer
    runner_up: PointAnswer | None
    ties: list[PointAnswer] = Field(description="Points that cannot be told apart from the chosen one.")
    binding_limit: str | None = Field(description="The limit without which another point would have been chosen.")

    @classmethod
    def of(cls, record: StudyRecord, result: Result, recommendation: Recommendation) -> RecommendationAnswer:
        """Built from the recommendation."""
        roles = dict(zip((c.trial_number for c in result.candidates), result.roles, strict=True))

        def point(candidate: Candidate) -> PointAnswer:
            return PointAnswer.of(candidate, roles[candidate.trial_number], result.baseline)

        return cls(
            study=StudyAnswer.of(record),
            policy=recommendation.policy.kind,
            description=str(recommendation.policy),
            point=point(recommendation.candidate),
            runner_up=None if recommendation.runner_up is None else point(recommendation.runner_up),
            ties=[point(candidate) for candidate in recommendation.ties],
            binding_limit=recommendation.binding_limit,
        )


class RefusalAnswer(_Answer):
    """A layout that was left out."""

    dp: int | None
    tp: int
    pp: int
    microbatch: int | None
    reason: str

    @classmethod
    def of(cls, refusal: Refusal) -> RefusalAnswer:
        """Built from the refusal."""
        return cls(dp=refusal.dp, tp=refusal.tp, pp=refusal.pp, microbatch=refusal.microbatch, reason=refusal.reason)


class LayoutAnswer(_Answer):
    """A valid layout."""

    dp: int
    tp: int
    pp: int
    microbatch: int
    microbatches: int = Field(description="Forward passes of one replica in an optimizer step.")

    @classmethod
    def of(cls, layout: Layout, global_batch_size: int) -> LayoutAnswer:
        """Built from the layout."""
        return cls(
            dp=layout.dp,
            tp=layout.tp,
            pp=layout.pp,
            microbatch=layout.microbatch,
            microbatches=layout.microbatches(global_batch_size),
        )


class LayoutsAnswer(_Answer):
    """The space of a study: its layouts, clocks and refusals."""

    layouts: list[LayoutAnswer]
    frequencies_mhz: list[int | None]
    configurations: int
    baseline: ConfigurationAnswer
    refused: list[RefusalAnswer]


class EventAnswer(_Answer):
    """Something that happened."""

    id: int
    study_id: str
    study_name: str
    revision: int
    kind: str
    at: datetime
    payload: dict[str, Any]

    @classmethod
    def of(cls, record: EventRecord) -> EventAnswer:
        """Built from the record."""
        return cls(**{name: getattr(record, name) for name in cls.model_fields})


class StudiesAnswer(_Answer):
    """A page of studies, newest first; ``next`` continues it."""

    studies: list[StudyAnswer]
    next: str | None


class TrialsAnswer(_Answer):
    """A page of trials, by number; ``next`` continues it."""

    trials: list[TrialAnswer]
    next: str | None


class ProblemAnswer(BaseModel):
    """Any error, as RFC 9457 describes it."""

    type: str = Field(description="Stable name of the kind of error, as a URN; docs/api.md lists them.")
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, Any]] = Field(default=[], description="Each field at fault: field, value, reason.")
