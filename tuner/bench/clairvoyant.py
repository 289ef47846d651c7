"""The bound: what a sampler would pay that knows the table and opens only the layouts it needs."""

from __future__ import annotations

import numpy as np

from tuner.bench.truth import Truth, is_reached
from tuner.layout import Configuration, Layout

CLOCKS = 4
"""Clocks it measures in every layout: enough for its curve."""


def clairvoyant_s(truth: Truth, target: float) -> float:
    """Cluster-seconds to a score, opening one layout after the other, each time the one that gains most per second.

    A layout, once opened, counts with all its clocks, as its curve is known then.

    Args:
        truth: The table.
        target: Score to reach, 0 to 1.
    """
    known: set[Configuration] = set()
    left: set[Layout] = {layout for layout in truth.layouts if truth.clocks(layout)}
    seconds, share = 0.0, 0.0
    while left and not is_reached(share, target):
        # Beyond the target nothing is gained, so that a cheap layout that suffices is taken before a better dear one.
        gains = {
            layout: (min(truth.share(known.union(truth.clocks(layout))), target) - share) / _cost_s(truth, layout)
            for layout in left
        }
        best = max(left, key=lambda layout: (gains[layout], layout))
        if gains[best] <= 0:
            break
        left.remove(best)
        known |= set(truth.clocks(best))
        seconds += _cost_s(truth, best)
        share = truth.share(known)
    return seconds


def _cost_s(truth: Truth, layout: Layout) -> float:
    """Opening a layout and measuring a few clocks spread over its range; one where there is nothing but time."""
    clocks = truth.clocks(layout)
    count = CLOCKS if truth.has_energy else 1
    chosen = {clocks[i] for i in np.linspace(0, len(clocks) - 1, min(count, len(clocks))).round().astype(int)}
    return truth.launch_s(clocks[0]) + sum(truth.trial_s(c) for c in chosen)
