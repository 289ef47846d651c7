"""A study's pool as a table of layouts by clocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.layout import Configuration, Layout

Indices = NDArray[np.intp]


class Grid:
    """Candidates, each with its layout and clock.

    Args:
        configurations: All configurations of a study, at least one.
        cluster: The cluster, whose highest clock is the default one.

    Attributes:
        layouts: The layouts.
        layout: Index of each candidate's layout, shape ``(n,)``.
        clock: Index of each candidate's clock, shape ``(n,)``.
        log_clock: Logarithm of each clock as a share of the highest, shape ``(clocks,)``.
        rows: The candidate of a layout at a clock, -1 where the pool has none, shape ``(layouts, clocks)``.
    """

    def __init__(self, configurations: Sequence[Configuration], cluster: Cluster) -> None:
        highest = cluster.gpu.max_clock_mhz
        self.configurations = tuple(configurations)
        self.layouts: tuple[Layout, ...] = tuple(dict.fromkeys(c.layout for c in self.configurations))
        # The default clock is kept apart from the same clock by number: a pool may hold both.
        clocks = sorted({(c.frequency_mhz or highest, c.frequency_mhz is None) for c in self.configurations})
        place = {clock: index for index, clock in enumerate(clocks)}
        of_layout = {layout: index for index, layout in enumerate(self.layouts)}
        self.layout: Indices = np.array([of_layout[c.layout] for c in self.configurations], np.intp)
        self.clock: Indices = np.array(
            [place[c.frequency_mhz or highest, c.frequency_mhz is None] for c in self.configurations], np.intp
        )
        self.log_clock = np.log(np.array([clock for clock, _ in clocks], float) / highest)
        self.rows: Indices = np.full((len(self.layouts), len(clocks)), -1, np.intp)
        self.rows[self.layout, self.clock] = np.arange(len(self.configurations))
        self._index = {configuration: row for row, configuration in enumerate(self.configurations)}
        self._layout_index = of_layout

    def __len__(self) -> int:
        return len(self.configurations)

    def row(self, configuration: Configuration) -> int | None:
        """Where a configuration stands; ``None`` outside the pool."""
        return self._index.get(configuration)

    def layout_index(self, layout: Layout) -> int | None:
        """Which layout it is; ``None`` outside the pool."""
        return self._layout_index.get(layout)
