"""One loop: claim studies, ask, launch, tell, store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any, TypeVar

from tuner.campaign import Campaign, MakeLauncher, OnTrial
from tuner.errors import DatabaseUnavailable, LeaseLost, ParetuneError
from tuner.states import StudyEvent, StudyState
from tuner.store.ownership import Ownership
from tuner.store.records import Lease

LEASE_S = 30.0
# How soon a pause, a cancellation or a new study is noticed; outcomes wake the loop at once.
_TURN_S = 0.25
_MAX_LAUNCHES = 64
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 3.0
Outcome = TypeVar("Outcome")
_log = logging.getLogger(__name__)


class Dispatcher:
    """Works on every study it can claim, sharing the cluster's GPUs between them.

    New launches go to the study that has waited longest; one that needs more GPUs than are free holds back those behind
    it, so that large jobs are not starved by small ones.

    Args:
        store: What a dispatcher may do to studies.
        owner: Name of this dispatcher, unique among those alive.
        gpus: Tells how many GPUs the cluster has, busy or not.
        make_launcher: Builds a study's launcher.
        on_trial: Called after each finished attempt.
        only: Id of the one study to work on; all studies where ``None``.
    """

    def __init__(
        self,
        store: Ownership,
        owner: str,
        gpus: Callable[[], int],
        make_launcher: MakeLauncher,
        on_trial: OnTrial | None = None,
        only: str | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._gpus = gpus
        self._make_launcher = make_launcher
        self._on_trial = on_trial
        self._only = only
        self._campaigns: list[Campaign] = []
        self._executor = ThreadPoolExecutor(_MAX_LAUNCHES, thread_name_prefix="launch")
        self._renewed_s = time.monotonic()

    @property
    def holds(self) -> tuple[str, ...]:
        """Names of the studies it works on."""
        return tuple(campaign.record.name for campaign in self._campaigns)

    def run(self, until: Callable[[], bool]) -> None:
        """Work until told to end, then hand the studies back.

        Args:
            until: Asked between turns; ``True`` ends the loop.
        """
        pause_s = 0.0
        try:
            while not until():
                try:
                    progress = self.turn()
                except DatabaseUnavailable as error:
                    if not pause_s:
                        _log.warning("%s; trying again until it answers", error)
                    pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                    time.sleep(pause_s)
                    continue
                pause_s = 0.0
                if not progress:
                    self._wait()
        finally:
            self.close()

    def turn(self) -> bool:
        """Do everything that can be done now, without waiting. Returns whether anything was done."""
        self._renew()
        claimed = self._claim()
        arrived = [self._guarded(campaign, campaign.collect) for campaign in list(self._campaigns)]
        self._advance()
        self._let_go()
        return claimed or any(arrived)

    def close(self) -> None:
        """End what runs and release every claim, so that another dispatcher can go on at once."""
        for campaign in list(self._campaigns):
            try:
                campaign.suspend()
                self._store.release(campaign.lease)
            except ParetuneError as error:
                _log.warning("study %s: %s", campaign.record.name, error)
                campaign.abandon()
        self._campaigns.clear()
        self._executor.shutdown()

    def _wait(self) -> None:
        outcomes = [outcome for campaign in self._campaigns for outcome in campaign.outcomes]
        if outcomes:
            wait(outcomes, timeout=_TURN_S, return_when=FIRST_COMPLETED)
        else:
            time.sleep(_TURN_S)

    def _claim(self) -> bool:
        known = [campaign.record.id for campaign in self._campaigns]
        lease = self._store.claim(self._owner, timedelta(seconds=LEASE_S), exclude=known, only=self._only)
        if lease is None:
            return False
        record = self._store.study(lease)
        try:
            campaign = Campaign(self._store, lease, record, self._make_launcher, self._executor, self._on_trial)
        except DatabaseUnavailable:
            self._store.release(lease)
            raise
        except LeaseLost:
            return False
        except ParetuneError as error:
            self._fail(lease, str(error))
            return True
        except Exception as error:
            _log.exception("study %s", record.name)
            self._fail(lease, f"a fault of Paretune: {error!r}")
            return True
        _log.info("study %s: claimed", record.name)
        self._campaigns.append(campaign)
        return True

    def _fail(self, lease: Lease, reason: str) -> None:
        """End a study that cannot be worked on as it is written."""
        try:
            self._store.apply(lease, StudyEvent.fail, reason)
        except ParetuneError as error:
            _log.warning("study %s: %s", lease.study_id, error)
        self._store.release(lease)

    def _renew(self) -> None:
        due = time.monotonic() - self._renewed_s >= LEASE_S / 3
        for campaign in list(self._campaigns):
            self._guarded(campaign, self._refresh, campaign, due)
        if due:
            self._renewed_s = time.monotonic()

    def _refresh(self, campaign: Campaign, due: bool) -> None:
        lease = campaign.lease
        if due:
            campaign.account()
            lease = self._store.renew(lease, timedelta(seconds=LEASE_S))
        campaign.keep(self._store.study(lease), lease)

    def _advance(self) -> None:
        total = self._gpus()
        may_open = True
        # Longest without a new launch first: whoever opens one goes to the end of the line.
        for campaign in list(self._campaigns):
            if self._waits_for_a_larger_cluster(campaign, total):
                continue
            opened = campaign.launches_opened
            free = total - sum(known.gpus_in_use for known in self._campaigns)
            others_wait = any(known.waits_for_gpus for known in self._campaigns if known is not campaign)
            self._guarded(campaign, campaign.advance, free, may_open, others_wait)
            may_open = may_open and not campaign.waits_for_gpus
            if campaign in self._campaigns and campaign.launches_opened > opened:
                self._campaigns.remove(campaign)
                self._campaigns.append(campaign)

    def _waits_for_a_larger_cluster(self, campaign: Campaign, total: int) -> bool:
        """Whether the study cannot run here at all; it is said in the study, and taken back when it can."""
        if campaign.record.state is not StudyState.running:
            return False
        needs, reason = campaign.space.cluster.world_size, None
        if needs > total:
            reason = f"waits for a larger cluster: it needs {needs} GPUs and the Ray cluster has {total}"
        if campaign.record.state_reason != reason:
            self._guarded(campaign, self._store.set_waiting, campaign.lease, reason)
        return reason is not None

    def _let_go(self) -> None:
        """Release studies that ended, and paused ones once nothing of them runs."""
        for campaign in list(self._campaigns):
            state = campaign.record.state
            if state.is_final or (state is StudyState.paused and not campaign.gpus_in_use):
                self._campaigns.remove(campaign)
                self._guarded(campaign, self._store.release, campaign.lease)

    def _guarded(self, campaign: Campaign, act: Callable[..., Outcome], *args: Any) -> Outcome | None:
        """Act for one campaign; where its lease is lost, let go of it, and where it fails by a fault of ours, end it.

        One study's fault must not stop the others, nor come back with every restart.
        """
        try:
            return act(*args)
        except DatabaseUnavailable:
            raise
        except LeaseLost:
            _log.warning("study %s: another dispatcher took it over", campaign.record.name)
            self._drop(campaign)
        except Exception as error:
            _log.exception("study %s", campaign.record.name)
            self._drop(campaign)
            self._fail(campaign.lease, f"a fault of Paretune: {error!r}")
        return None

    def _drop(self, campaign: Campaign) -> None:
        campaign.abandon()
        if campaign in self._campaigns:
            self._campaigns.remove(campaign)
