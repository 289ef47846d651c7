"""The work on one claimed study: its open launches, its trials, and what it stores."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from tuner.budget import reason_to_stop
from tuner.errors import Conflict
from tuner.layout import Layout
from tuner.result import Reference, Result, evaluate, reference_of
from tuner.space import build_space
from tuner.spec import StudySpec
from tuner.states import StudyEvent, StudyState, TrialEvent, TrialState
from tuner.store.ownership import Ownership
from tuner.store.records import Completed, Lease, StudyRecord, TrialRecord
from tuner.study import Study
from tuner.trial import FailureKind, Launch, Launcher, MeasurementPlan, Placement, TrialFailure

MAX_ATTEMPTS = 3
_PLAN = MeasurementPlan()
_log = logging.getLogger(__name__)

OnTrial = Callable[[StudyRecord, TrialRecord], None]
MakeLauncher = Callable[[StudySpec], Launcher]


@dataclass(slots=True, eq=False)
class _Slot:
    """One open launch, and the trial that runs in it."""

    layout: Layout
    placement: Placement
    launch: Launch | None = None
    trial: TrialRecord | None = None
    attempt_id: int = 0
    new_launch: bool = False
    started_s: float = 0.0
    outcome: Future[Completed | TrialFailure] | None = None


class Campaign:
    """Carries a claimed study forward until it ends, pauses, or its lease is lost.

    Every method is called from the dispatcher's thread; only opening and measuring happen in threads of their own.

    Args:
        store: What a dispatcher may do to a study under a lease.
        lease: The claim.
        record: The study as claimed.
        make_launcher: Builds the study's launcher.
        executor: Where launches open and measure.
        on_trial: Called after each finished attempt.
    """

    def __init__(
        self,
        store: Ownership,
        lease: Lease,
        record: StudyRecord,
        make_launcher: MakeLauncher,
        executor: Executor,
        on_trial: OnTrial | None = None,
    ) -> None:
        self.lease = lease
        self.record = record
        self.waits_for_gpus = 0
        self.launches_opened = 0
        self._store = store
        self._executor = executor
        self._on_trial = on_trial
        self._slots: list[_Slot] = []
        self._active_since_s = time.monotonic()
        self.spec = StudySpec.parse(record.spec)
        self.space = build_space(self.spec)
        self._study = Study(self.space, self.spec.sampler, self.spec.limits)
        self._launcher = make_launcher(self.spec)
        store.requeue_orphans(lease)
        if record.state is StudyState.queued:
            self.record = store.apply(lease, StudyEvent.start)

    @property
    def gpus_in_use(self) -> int:
        """GPUs that its open launches hold."""
        return len(self._slots) * self.space.cluster.world_size

    @property
    def outcomes(self) -> list[Future[Completed | TrialFailure]]:
        """What its running trials will answer."""
        return [slot.outcome for slot in self._slots if slot.outcome is not None]

    @property
    def is_busy(self) -> bool:
        """Whether a trial runs."""
        return any(slot.trial is not None for slot in self._slots)

    def keep(self, record: StudyRecord, lease: Lease) -> None:
        """Take note of the study's present state and of the renewed lease; kill what was cancelled."""
        self.record, self.lease = record, lease
        if record.state is StudyState.cancelling:
            for slot in self._slots:
                self._kill(slot)

    def account(self) -> None:
        """Store the wall time spent since the last call."""
        now_s = time.monotonic()
        self._store.add_active_time(self.lease, now_s - self._active_since_s)
        self._active_since_s = now_s

    def collect(self) -> bool:
        """Store every outcome that has arrived. Returns whether there was one."""
        arrived = [slot for slot in self._slots if slot.outcome is not None and slot.outcome.done()]
        for slot in arrived:
            self._store_outcome(slot)
        return bool(arrived)

    def advance(self, free_gpus: int, may_open: bool, others_wait: bool) -> None:
        """Start as many trials as the study, its budget and the free GPUs allow; end the study where nothing is left.

        Args:
            free_gpus: GPUs that no campaign holds.
            may_open: Whether nobody ahead in the line waits for GPUs.
            others_wait: Whether any other study waits for GPUs: then no idle launch is kept.
        """
        self.waits_for_gpus = 0
        if self.record.state is not StudyState.running:
            self._wind_down()
            return
        while len([slot for slot in self._slots if slot.trial is not None]) < self.spec.parallel_launches:
            trials = self._store.trials(self.lease)
            trial, reason = self._next_trial(trials)
            if trial is None:
                if not self.is_busy:
                    self._finish(StudyEvent.complete, reason)
                return
            slot = self._slot_for(trial.configuration.layout, free_gpus, may_open, others_wait)
            if slot is None:
                return
            free_gpus -= self.space.cluster.world_size if slot.new_launch else 0
            self._start(slot, trial)

    def abandon(self) -> None:
        """Let go of everything without a word to the store, which another owner writes now."""
        for slot in list(self._slots):
            self._kill(slot)
            self._drop(slot)

    def suspend(self) -> None:
        """End what runs, so that another dispatcher can take the study up: its trials go back to the queue."""
        for slot in list(self._slots):
            self._kill(slot)
            if slot.outcome is not None:
                slot.outcome.result()
                self._store_outcome(slot, suspended=True)
            self._drop(slot)
        self.account()

    def _next_trial(self, trials: list[TrialRecord]) -> tuple[TrialRecord | None, str]:
        """The trial to start, new or queued; or the reason why there is none."""
        queued = next((trial for trial in trials if trial.state is TrialState.queued), None)
        if queued is not None:
            return queued, ""
        result = self.evaluate(trials)
        gpu_seconds = sum(trial.gpu_seconds for trial in trials)
        active_s = self.record.active_s + time.monotonic() - self._active_since_s
        reason = reason_to_stop(self.spec.budget, len(trials), gpu_seconds, active_s, result.hypervolumes)
        if reason is not None:
            return None, reason
        proposal = self._study.ask(trials)
        if proposal is None:
            return None, "exhausted: every configuration of the space is measured or ruled out"
        record = self._store.add_trial(
            self.lease, proposal.configuration, origin=proposal.origin, sampler_attrs=proposal.sampler_attrs
        )
        return record, ""

    def evaluate(self, trials: list[TrialRecord]) -> Result:
        """The study's result so far."""
        record = self.record
        reference = (
            None
            if record.reference_step_time_s is None
            else Reference(record.reference_step_time_s, record.reference_energy_j)
        )
        return evaluate(trials, self.spec.limits, has_energy=self.space.has_energy, reference=reference)

    def _slot_for(self, layout: Layout, free_gpus: int, may_open: bool, others_wait: bool) -> _Slot | None:
        idle = [slot for slot in self._slots if slot.trial is None]
        for slot in idle:
            if slot.layout == layout:
                slot.new_launch = False
                return slot
        is_full = len(self._slots) >= self.spec.parallel_launches or free_gpus < self.space.cluster.world_size
        if idle and (others_wait or is_full):
            self._drop(idle[0])
            free_gpus += self.space.cluster.world_size
        if not may_open or free_gpus < self.space.cluster.world_size:
            self.waits_for_gpus = self.space.cluster.world_size
            return None
        cluster = self.space.cluster
        name = f"paretune-{self.record.id}-{self.lease.token}-{time.monotonic_ns()}"
        placement = Placement(name=name, nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node)
        slot = _Slot(layout=layout, placement=placement, new_launch=True)
        self._slots.append(slot)
        self.launches_opened += 1
        return slot

    def _start(self, slot: _Slot, trial: TrialRecord) -> None:
        attempt = self._store.start_attempt(
            self.lease, trial.number, launch_name=slot.placement.name, new_launch=slot.new_launch
        )
        slot.trial, slot.attempt_id, slot.started_s = trial, attempt.id, time.monotonic()
        slot.outcome = self._executor.submit(self._carry_out, slot, trial)

    def _carry_out(self, slot: _Slot, trial: TrialRecord) -> Completed | TrialFailure:
        """Runs in a thread: open where needed, measure, answer."""
        try:
            if slot.launch is None:
                slot.launch = self._launcher.open(self.space.job, slot.layout, slot.placement)
            measurement = slot.launch.measure(trial.configuration.frequency_mhz, _PLAN)
            return Completed(measurement, slot.launch.launch_s if slot.new_launch else None)
        except TrialFailure as failure:
            return failure
        except Exception as error:  # a fault of the runner must cost one trial, not the dispatcher
            _log.exception("trial %s of study %s", trial.number, self.record.name)
            tail = "".join(traceback.format_exception(error)[-10:])
            return TrialFailure(FailureKind.crashed, f"the runner failed: {error!r}", tail)

    def _store_outcome(self, slot: _Slot, *, suspended: bool = False) -> None:
        assert slot.outcome is not None
        assert slot.trial is not None
        outcome = slot.outcome.result()
        event = TrialEvent.retry if suspended and isinstance(outcome, TrialFailure) else self._event(slot, outcome)
        reference = None
        if isinstance(outcome, Completed) and self.record.reference_step_time_s is None:
            corner = reference_of(outcome.measurement, self.spec.limits)
            reference = (corner.step_time_s, corner.energy_j)
        trial = self._store.finish_attempt(
            self.lease, slot.attempt_id, outcome, self._gpu_seconds(slot, outcome), event, reference
        )
        # Only now: a database that refuses the write must find the outcome still here at the next try.
        slot.trial, slot.outcome = None, None
        if isinstance(outcome, TrialFailure):
            self._drop(slot)
        if reference is not None:
            self.record = self._store.study(self.lease)
        if self._on_trial is not None:
            self._on_trial(self.record, trial)

    def _event(self, slot: _Slot, outcome: Completed | TrialFailure) -> TrialEvent:
        if isinstance(outcome, Completed):
            return TrialEvent.complete
        if outcome.kind.is_infeasible:
            return TrialEvent.refute
        if outcome.kind is FailureKind.cancelled:
            return TrialEvent.stop
        assert slot.trial is not None
        if not outcome.kind.is_transient:
            return TrialEvent.fail
        if slot.trial.attempts + 1 < MAX_ATTEMPTS:
            return TrialEvent.retry
        return TrialEvent.give_up if outcome.kind is FailureKind.node_lost else TrialEvent.fail

    def _gpu_seconds(self, slot: _Slot, outcome: Completed | TrialFailure) -> float:
        if isinstance(outcome, Completed):
            seconds = outcome.measurement.duration_s + (outcome.launch_s or 0.0)
        elif outcome.elapsed_s is not None:
            seconds = outcome.elapsed_s
        else:
            seconds = time.monotonic() - slot.started_s
        return seconds * slot.placement.gpus

    def _wind_down(self) -> None:
        """Free the GPUs of a study that starts nothing more, and settle it once nothing runs."""
        for slot in [slot for slot in self._slots if slot.trial is None]:
            self._drop(slot)
        if not self._slots and self.record.state in (StudyState.stopping, StudyState.cancelling):
            self._store.stop_trials(self.lease)
            self._finish(StudyEvent.settle, "on request")

    def _finish(self, event: StudyEvent, reason: str) -> None:
        for slot in list(self._slots):
            self._drop(slot)
        self.account()
        try:
            self.record = self._store.apply(self.lease, event, reason)
        except Conflict:
            # The user paused or cancelled it in this very moment; the next turn sees that.
            _log.info("study %s changed while it was being finished", self.record.name)

    def _kill(self, slot: _Slot) -> None:
        if slot.launch is not None:
            slot.launch.close()
        else:
            self._launcher.abandon(slot.placement)

    def _drop(self, slot: _Slot) -> None:
        if slot.launch is not None:
            slot.launch.close()
        if slot in self._slots:
            self._slots.remove(slot)
