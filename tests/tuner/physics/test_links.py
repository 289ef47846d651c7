from __future__ import annotations

import numpy as np
import pytest
from physics_cases import cluster_of

from tuner.physics.coefficients import Coefficients
from tuner.physics.links import Group, neighbour_bandwidth, rank_group

CLUSTER, C = cluster_of(), Coefficients()
SIZE = np.array([1e9])


def group(ranks: int, stride: int = 1) -> Group:
    return rank_group(CLUSTER, C, np.array([float(ranks)]), np.array([float(stride)]))


def test_one_rank_exchanges_nothing() -> None:
    assert group(1).gather_s(SIZE) == 0
    assert group(1).reduce_s(SIZE) == 0


def test_a_ring_moves_all_but_its_own_part_over_the_slowest_link() -> None:
    transfer_s = 7 / 8 * 1e9 / (CLUSTER.intra_node_gb_s * 1e9 * C.link_efficiency)
    assert group(8).gather_s(SIZE)[0] == pytest.approx(transfer_s, rel=0.05)
    assert group(8).reduce_s(SIZE)[0] == pytest.approx(2 * transfer_s, rel=0.05)


def test_between_nodes_each_gpu_brings_its_share_of_the_network() -> None:
    whole_nodes, one_of_each = group(16, 1), group(4, 8)
    assert whole_nodes.bandwidth_bytes_s[0] > 7 * one_of_each.bandwidth_bytes_s[0]
    assert one_of_each.bandwidth_bytes_s[0] == pytest.approx(CLUSTER.inter_node_gb_s * 1e9 * C.network_efficiency)
    assert whole_nodes.bandwidth_bytes_s[0] <= CLUSTER.intra_node_gb_s * 1e9 * C.link_efficiency


def test_a_tree_keeps_the_latency_of_a_large_all_reduce_below_that_of_a_ring() -> None:
    tiny = np.array([8.0])
    large, small = group(1024), group(16)
    assert large.reduce_s(tiny)[0] < 4 * small.reduce_s(tiny)[0]
    assert large.gather_s(tiny)[0] > 20 * small.gather_s(tiny)[0]


def test_more_collectives_for_the_same_data_only_cost_their_starts() -> None:
    once, often = group(8).gather_s(SIZE)[0], group(8).gather_s(SIZE, 10.0)[0]
    assert often - once == pytest.approx(9 * (C.collective_s + 7 * 1.5e-6))


def test_neighbours_in_one_node_use_its_links() -> None:
    inside, across = neighbour_bandwidth(CLUSTER, C, np.array([4.0, 8.0]))
    assert inside == pytest.approx(CLUSTER.intra_node_gb_s * 1e9 * C.link_efficiency)
    assert across == pytest.approx(CLUSTER.inter_node_gb_s * 1e9 * C.network_efficiency)
