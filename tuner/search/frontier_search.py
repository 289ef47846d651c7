"""The search for the frontier: which configuration teaches most about it per second of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tuner.frontier import pareto_mask
from tuner.layout import Configuration, Layout
from tuner.physics.calibration import DEFAULT, Calibration
from tuner.physics.coefficients import KNOWN
from tuner.physics.configurations import Configurations, Floats
from tuner.search.acquisition import Staircases, added, corners, draw_curves
from tuner.search.believed import Believed
from tuner.search.evidence import Trials, read_trials
from tuner.search.grid import Grid, Indices
from tuner.search.learning import Learnt, learn, prefix
from tuner.search.prior import MEMORY, POWER, TIME, Linear, PhysicsPrior, features
from tuner.search.surrogate import Observations, Posterior, Residuals, Scales
from tuner.space import Space
from tuner.trial import KnownTrial

_SAMPLES = 48
# What is gained by measuring what is predicted to stand on the frontier, against learning what does.
_CONFIRMATION = 0.1
# Expected gain, as a share of the box around the frontier, below which nothing is worth a trial.
_LEAST_GAIN = 0.0005
_CONFIRMED = 0.003
_CONTEXT_GIB, _USABLE = 1.5, 0.96
# Peak memory does not follow the clock.
_MEMORY_SCALES = Scales(clock=1e-3)
_PENDING_NOISE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class _Belief:
    """What is believed of the pool after some trials."""

    trials: Trials
    speed: Posterior
    fits: Floats


class FrontierSearch:
    """Proposes configurations of a space; every answer follows from the trials alone.

    Args:
        space: What may be measured.
        prior: What is known of the cluster beforehand.
        seed: Of the draws that expectations are taken over.
    """

    def __init__(self, space: Space, prior: Calibration = DEFAULT, seed: int = 0) -> None:
        self._space, self._grid = space, Grid(space.configurations, space.cluster)
        x = Configurations.of(space.configurations, space.job, space.cluster.gpu)
        known = [prior] if prior.trials else [Calibration(coefficients=each) for each in KNOWN]
        self._priors = [PhysicsPrior(space.job, space.cluster, x, each) for each in known]
        first = self._grid.rows.max(axis=1)
        shape = (x.dp[first], x.tp[first], x.pp[first], x.microbatch[first])
        self._residuals = Residuals(self._grid, features(shape, self._priors[0].shares(first)))
        self._quantities = (TIME, POWER) if space.has_energy else (TIME,)
        self._learnt: dict[bytes, tuple[Learnt, Linear]] = {}
        curve = len(self._quantities) * self._grid.rows.shape[1]
        half = np.random.default_rng(seed).standard_normal((_SAMPLES // 2, len(self._grid.layouts), curve))
        # Each draw with its mirror image: means come out exact.
        self._normals = np.concatenate([half, -half])

    def suggest(
        self,
        trials: Sequence[KnownTrial],
        open_layouts: Collection[Layout] = (),
        allowed: Collection[Configuration] | None = None,
    ) -> Configuration | None:
        """The next configuration to measure; ``None`` when none is worth its time.

        Args:
            trials: All trials of the study, running ones too, by number.
            open_layouts: Layouts whose launches are open and idle.
            allowed: What may be proposed; everything that was not proposed yet, where it is not given.
        """
        grid = self._grid
        belief = self._believe(trials)
        seen = {trial.configuration for trial in trials}
        free = np.array([c not in seen and (allowed is None or c in allowed) for c in grid.configurations])
        free &= ~np.isin(grid.layout, belief.trials.out_of_memory)
        if not free.any():
            return None
        opened = [index for layout in open_layouts if (index := grid.layout_index(layout)) is not None]
        is_open = np.isin(np.arange(len(grid.layouts)), opened)
        gain, worth = self._gains(belief, free)
        cost = belief.trials.steps * np.exp(belief.speed.mean[TIME]) * belief.fits[grid.layout]
        cost += np.where(is_open[grid.layout], 0.0, belief.trials.launch_s)
        score = np.where(free, worth / cost, -1.0)
        best = int(np.argmax(score))
        if len(belief.trials.complete) and gain[best] < _LEAST_GAIN:
            return None
        return grid.configurations[best]

    def believed(self, trials: Sequence[KnownTrial]) -> Believed:
        """What stands on the frontier: of everything measured, and of every clock of the layouts launched."""
        belief = self._believe(trials)
        measured = np.unique(belief.trials.complete)
        values = _objectives(belief.speed.mean)
        on_measured = _best(values, measured)
        launched = np.flatnonzero(np.isin(self._grid.layout, self._grid.layout[measured]))
        predicted = np.setdiff1d(_best(values, launched), measured)
        names = self._grid.configurations
        return Believed(tuple(names[i] for i in on_measured), tuple(names[i] for i in predicted))

    def _believe(self, sequence: Sequence[KnownTrial]) -> _Belief:
        trials = read_trials(sequence, self._grid, self._space.cluster)
        learnt, linear = self._learn(prefix(trials.speed, trials.number))
        speed = Posterior(self._grid, self._residuals, linear, learnt.scales, trials.speed, self._quantities)
        if len(trials.pending):
            seen = trials.speed.joined(self._expected(speed, trials.pending))
            speed = Posterior(self._grid, self._residuals, linear, learnt.scales, seen, self._quantities)
        memory = Posterior(self._grid, self._residuals, linear, _MEMORY_SCALES, trials.memory, (MEMORY,))
        return _Belief(trials=trials, speed=speed, fits=self._fits(memory, trials))

    def _expected(self, speed: Posterior, pending: Indices) -> Observations:
        """What runs, taken to come out as expected."""
        count = len(self._quantities)
        return Observations(
            np.repeat(self._quantities, len(pending)),
            np.tile(pending, count),
            speed.mean[:, pending].reshape(-1),
            np.full(count * len(pending), _PENDING_NOISE),
        )

    def _learn(self, seen: Observations) -> tuple[Learnt, Linear]:
        key = seen.rows.tobytes() + seen.values.tobytes()
        if key not in self._learnt:
            learnt = Learnt(0, np.zeros(self._priors[0].coefficients), Scales())
            if len(seen):
                learnt = learn(self._priors, self._residuals, seen)
            linear = self._priors[learnt.framework].linear(learnt.z, np.arange(len(self._grid)))
            # Trials only grow: what fewer of them taught is not asked for again.
            self._learnt = {key: (learnt, linear)}
        return self._learnt[key]

    def _fits(self, memory: Posterior, trials: Trials) -> Floats:
        """Probability that each layout fits."""
        grid = self._grid
        first = grid.rows.max(axis=1)
        held = np.exp(trials.memory.values[np.isin(trials.memory.rows, trials.complete)])
        board = self._space.cluster.gpu.memory_gib
        usable = max(_USABLE * board - _CONTEXT_GIB, held.max(initial=0.0))
        variance = np.max(np.diagonal(memory.blocks(), axis1=1, axis2=2), axis=1)
        fits: Floats = ndtr((np.log(usable) - memory.mean[0, first]) / np.sqrt(np.maximum(variance, 1e-6)))
        fits[grid.layout[trials.complete]] = 1.0
        fits[trials.out_of_memory] = 0.0
        return fits

    def _gains(self, belief: _Belief, free: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Of measuring each candidate: what knowing its layout adds, and that with the worth of confirming."""
        grid = self._grid
        there = grid.rows >= 0
        rows = np.maximum(grid.rows, 0)
        blocks = belief.speed.blocks()
        means = belief.speed.mean[:, rows].transpose(1, 0, 2).reshape(len(grid.layouts), -1)
        curves = draw_curves(means, blocks, self._normals)
        clocks = grid.rows.shape[1]
        time = np.where(there, np.exp(curves[:, :, :clocks]), np.inf)
        values = _objectives(belief.speed.mean)
        launched = np.unique(grid.layout[np.concatenate([belief.trials.complete, belief.trials.pending])])
        launched_rows = np.flatnonzero(np.isin(grid.layout, launched))
        stands = _best(values, launched_rows)
        if not self._space.has_energy:
            best = values[stands].min(initial=np.inf)
            likely = values[belief.fits[grid.layout] > 0.5].min(initial=np.inf)
            best = best if np.isfinite(best) else 2 * likely
            fastest = time.min(axis=2)
            of_layout = np.maximum(best - fastest, 0).mean(axis=0) / best
            of_layout[launched] = 0.0
            weights = (time == fastest[:, :, None]).mean(axis=0)
            gain = (belief.fits * of_layout)[grid.layout] * _learnt(weights, blocks, grid)
            return gain, gain
        energy = np.where(there, time * np.exp(curves[:, :, clocks:]), np.inf)
        likely = (belief.fits[grid.layout] > 0.5) | np.isin(grid.layout, launched)
        low, reference = corners(values[likely] if likely.any() else values)
        stairs = Staircases(low, reference)
        of_layout, weights = _curve_gains(stairs, time, energy, values, stands, grid)
        gain = (belief.fits * of_layout)[grid.layout] * _learnt(weights, blocks, grid)
        unconfirmed = np.zeros(len(grid))
        candidates = stands[free[stands]]
        if len(candidates):
            measured = _best(values, np.unique(belief.trials.complete))
            unconfirmed[candidates] = added(values[candidates], values[measured], low, reference)
        confirms = np.where(unconfirmed > _CONFIRMED, unconfirmed, 0.0)
        return np.maximum(gain, confirms), gain + _CONFIRMATION * confirms


def _curve_gains(
    stairs: Staircases, time: Floats, energy: Floats, values: Floats, stands: Indices, grid: Grid
) -> tuple[Floats, Floats]:
    """Expected area that each layout's true curve adds to the believed frontier; chance of each clock to stand there.

    Shapes ``(layouts,)`` and ``(layouts, clocks)``.
    """
    base = stairs.of(values[stands, 0], values[stands, 1])
    curves = stairs.of(time, energy)
    before = stairs.area(base)
    gains = stairs.area(np.minimum(base, curves)).mean(axis=0) - before
    for layout in np.unique(grid.layout[stands]):
        others = stands[grid.layout[stands] != layout]
        own = grid.clock[stands[grid.layout[stands] == layout]]
        without = stairs.of(values[others, 0], values[others, 1])
        believed = np.minimum(without, stairs.of(time[:, layout, own], energy[:, layout, own]))
        whole = np.minimum(without, curves[:, layout])
        gains[layout] = (stairs.area(np.minimum(whole, believed)) - stairs.area(believed)).mean()
    # A clock counts where it is on its own curve's frontier and inside the box.
    best_later = np.minimum.accumulate(np.where(np.isfinite(energy), energy, np.inf)[:, :, ::-1], axis=2)[:, :, ::-1]
    standing = (energy <= best_later) & (energy < stairs.reference[1]) & (time < stairs.reference[0])
    return np.maximum(gains, 0.0), standing.mean(axis=0)


def _learnt(weights: Floats, blocks: Floats, grid: Grid) -> Floats:
    """Share of the uncertainty about a layout's curve that measuring each candidate takes away, shape ``(n,)``."""
    weights = weights + 1e-3
    clocks = weights.shape[1]
    shares = []
    for start in range(0, blocks.shape[1], clocks):
        covariance = blocks[:, start : start + clocks, start : start + clocks]
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        explained = np.einsum("lc,lci->li", weights, covariance**2) / (variance + 1e-4)
        shares.append(explained / np.maximum(np.sum(weights * variance, axis=1, keepdims=True), 1e-12))
    share: Floats = np.mean(shares, axis=0)[grid.layout, grid.clock]
    return share


def _objectives(logarithms: Floats) -> Floats:
    """Step time and, where there is power, energy: from logarithms of shape ``(q, n)`` to ``(n, q)``."""
    time: Floats = np.exp(logarithms[TIME])
    if len(logarithms) == 1:
        return time[:, None]
    both: Floats = np.stack([time, time * np.exp(logarithms[POWER])], axis=1)
    return both


def _best(values: Floats, rows: Indices) -> Indices:
    return rows[pareto_mask(values[rows])] if len(rows) else rows
