"""Reading a study and judging it: what the routes and the command line share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from api.schemas import (
    ConfigurationAnswer,
    CountsAnswer,
    FrontierAnswer,
    LayoutAnswer,
    LayoutsAnswer,
    RecommendationAnswer,
    RefusalAnswer,
    StudyAnswer,
    StudyDetailAnswer,
)
from tuner.policy import Policy, Recommendation, recommend
from tuner.result import Reference, Result, evaluate
from tuner.space import Space, build_space
from tuner.spec import StudySpec
from tuner.store.records import StudyRecord, TrialRecord
from tuner.store.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A study as it stands at one moment.

    Args:
        record: The study.
        trials: All of its trials, by number.
        space: What it may measure.
        result: What it has found.
    """

    record: StudyRecord
    trials: list[TrialRecord]
    space: Space
    result: Result

    def frontier(self) -> FrontierAnswer:
        """The frontier and everything it was chosen from."""
        return FrontierAnswer.of(self.record, self.trials, self.result, has_energy=self.space.has_energy)

    def recommendation(self, policy: Policy) -> RecommendationAnswer:
        """The configuration to run under a policy.

        Raises:
            NoRecommendation: No measured configuration satisfies it.
        """
        return RecommendationAnswer.of(self.record, self.result, self._recommend(policy))

    def _recommend(self, policy: Policy) -> Recommendation:
        return recommend(self.result.feasible, policy, self.result.baseline)


def read_study(repository: Repository, key: str) -> Reading:
    """Read a study by its id or name.

    Raises:
        NotFound: There is no such study.
    """
    record = repository.study(key)
    trials = repository.trials(record.id)
    space = space_of(record)
    reference = (
        None
        if record.reference_step_time_s is None
        else Reference(record.reference_step_time_s, record.reference_energy_j)
    )
    limits = StudySpec.parse(record.spec).limits
    result = evaluate(trials, limits, has_energy=space.has_energy, reference=reference)
    return Reading(record=record, trials=trials, space=space, result=result)


def study_detail(repository: Repository, key: str) -> StudyDetailAnswer:
    """A study with its spec and counts.

    Raises:
        NotFound: There is no such study.
    """
    record = repository.study(key)
    return StudyDetailAnswer(
        **StudyAnswer.of(record).model_dump(),
        spec=record.spec,
        counts=CountsAnswer.of(repository.trials(record.id)),
        configurations=len(space_of(record).configurations),
    )


def layouts_answer(spec: StudySpec) -> LayoutsAnswer:
    """The space of a study document.

    Raises:
        InvalidInput: The study cannot be run as written.
    """
    space = build_space(spec)
    return LayoutsAnswer(
        layouts=[LayoutAnswer.of(layout, space.job.global_batch_size) for layout in space.layouts],
        frequencies_mhz=list(dict.fromkeys(c.frequency_mhz for c in space.configurations)),
        configurations=len(space.configurations),
        baseline=ConfigurationAnswer.of(space.baseline),
        refused=[RefusalAnswer.of(refusal) for refusal in space.refusals],
    )


def space_of(record: StudyRecord) -> Space:
    """The space of a stored study; kept, since it never changes and a table takes time to parse."""
    return _space(json.dumps(record.spec))


@lru_cache(maxsize=64)
def _space(document: str) -> Space:
    return build_space(StudySpec.parse(json.loads(document)))
