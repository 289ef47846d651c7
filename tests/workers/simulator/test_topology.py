from __future__ import annotations

import numpy as np
import pytest

from tuner.hardware import Cluster
from tuner.layout import Layout
from workers.simulator.topology import place


@pytest.mark.parametrize(
    ("layout", "tp_nodes", "dp_nodes", "crossings"),
    [
        (Layout(16, 1, 1, 1), 1, 2, ()),
        (Layout(2, 8, 1, 1), 1, 2, ()),
        (Layout(1, 16, 1, 1), 2, 1, ()),
        (Layout(4, 2, 2, 1), 1, 1, (True,)),
        (Layout(1, 4, 4, 1), 1, 1, (False, True, False)),
    ],
)
def test_tensor_ranks_are_neighbours_and_stages_are_outermost(
    cluster: Cluster, layout: Layout, tp_nodes: int, dp_nodes: int, crossings: tuple[bool, ...]
) -> None:
    topology = place(layout, cluster)
    assert (topology.tp_nodes, topology.dp_nodes, topology.crossings) == (tp_nodes, dp_nodes, crossings)


def test_rows_hold_every_board_once_on_its_own_node(cluster: Cluster) -> None:
    topology = place(Layout(16, 1, 1, 1), cluster)
    assert sorted(np.concatenate(topology.boards)) == list(range(16))
    assert [set(boards // 8) for boards in topology.boards] == [{0}, {1}]
