"""The state tables of study, trial and attempt: the only place that says which event leads where."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from tuner.errors import Conflict


class StudyState(StrEnum):
    """Where a study is in its life."""

    queued = "queued"
    running = "running"
    paused = "paused"
    stopping = "stopping"
    cancelling = "cancelling"
    completed = "completed"
    stopped = "stopped"
    cancelled = "cancelled"
    failed = "failed"

    @property
    def is_final(self) -> bool:
        """Whether nothing can happen any more."""
        return self in (StudyState.completed, StudyState.stopped, StudyState.cancelled, StudyState.failed)


class StudyEvent(StrEnum):
    """What can happen to a study."""

    start = "start"
    pause = "pause"
    resume = "resume"
    stop = "stop"
    cancel = "cancel"
    complete = "complete"
    settle = "settle"
    fail = "fail"


class TrialState(StrEnum):
    """Where a trial is in its life."""

    queued = "queued"
    running = "running"
    complete = "complete"
    infeasible = "infeasible"
    failed = "failed"
    stopped = "stopped"
    lost = "lost"

    @property
    def is_final(self) -> bool:
        """Whether the trial will not run again."""
        return self not in (TrialState.queued, TrialState.running)


class TrialEvent(StrEnum):
    """What can happen to a trial."""

    start = "start"
    complete = "complete"
    refute = "refute"
    fail = "fail"
    retry = "retry"
    give_up = "give_up"
    stop = "stop"


class AttemptState(StrEnum):
    """How one try at a trial ended; ``running`` while it has not."""

    running = "running"
    complete = "complete"
    infeasible = "infeasible"
    failed = "failed"
    stopped = "stopped"
    lost = "lost"


_S, _E = StudyState, StudyEvent
STUDY_TRANSITIONS: Mapping[tuple[StudyState, StudyEvent], StudyState] = {
    (_S.queued, _E.start): _S.running,
    (_S.queued, _E.pause): _S.paused,
    # Nothing of a queued study runs yet, so there is nothing to wait for.
    (_S.queued, _E.stop): _S.stopped,
    (_S.queued, _E.cancel): _S.cancelled,
    (_S.queued, _E.fail): _S.failed,
    (_S.running, _E.pause): _S.paused,
    (_S.running, _E.stop): _S.stopping,
    (_S.running, _E.cancel): _S.cancelling,
    (_S.running, _E.complete): _S.completed,
    (_S.running, _E.fail): _S.failed,
    # Not back to queued, from where stopping is final: a trial may still be running since before the pause.
    (_S.paused, _E.resume): _S.running,
    (_S.paused, _E.stop): _S.stopping,
    (_S.paused, _E.cancel): _S.cancelling,
    (_S.paused, _E.fail): _S.failed,
    (_S.stopping, _E.cancel): _S.cancelling,
    (_S.stopping, _E.fail): _S.failed,
    (_S.cancelling, _E.fail): _S.failed,
    (_S.stopping, _E.settle): _S.stopped,
    (_S.cancelling, _E.settle): _S.cancelled,
}

_T, _V = TrialState, TrialEvent
TRIAL_TRANSITIONS: Mapping[tuple[TrialState, TrialEvent], TrialState] = {
    (_T.queued, _V.start): _T.running,
    (_T.queued, _V.stop): _T.stopped,
    (_T.running, _V.complete): _T.complete,
    (_T.running, _V.refute): _T.infeasible,
    (_T.running, _V.fail): _T.failed,
    (_T.running, _V.retry): _T.queued,
    (_T.running, _V.give_up): _T.lost,
    (_T.running, _V.stop): _T.stopped,
}

# What a dispatcher does, and nobody can ask for.
_OURS = frozenset({StudyEvent.start, StudyEvent.complete, StudyEvent.settle, StudyEvent.fail})
State = TypeVar("State", StudyState, TrialState)
Event = TypeVar("Event", StudyEvent, TrialEvent)


def next_study_state(state: StudyState, event: StudyEvent) -> StudyState:
    """Where the event leads.

    Raises:
        Conflict: The state does not allow the event; the message says which events it allows.
    """
    return _next(STUDY_TRANSITIONS, state, event, "study")


def next_trial_state(state: TrialState, event: TrialEvent) -> TrialState:
    """Where the event leads.

    Raises:
        Conflict: The state does not allow the event; the message says which events it allows.
    """
    return _next(TRIAL_TRANSITIONS, state, event, "trial")


def _next(table: Mapping[tuple[State, Event], State], state: State, event: Event, noun: str) -> State:
    if (state, event) in table:
        return table[state, event]
    allowed = sorted(known.value for origin, known in table if origin is state and known not in _OURS)
    raise Conflict(f"a {state} {noun} cannot {event}; it can {', '.join(allowed) or 'do nothing more'}")
