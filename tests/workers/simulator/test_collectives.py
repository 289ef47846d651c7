from __future__ import annotations

import pytest

from tuner.hardware import Cluster
from workers.simulator.collectives import Group, all_reduce_s, reduce_scatter_s, send_s


def test_a_rank_alone_pays_nothing(cluster: Cluster) -> None:
    assert all_reduce_s(cluster, Group(1, 1), 1e9) == 0


def test_a_large_all_reduce_in_a_node_reaches_the_bus_bandwidth_that_nccl_tests_report(cluster: Cluster) -> None:
    payload = 4e9
    bus_gb_s = 2 * 7 / 8 * payload / all_reduce_s(cluster, Group(8, 1), payload) / 1e9
    assert 330 < bus_gb_s < 400


def test_small_messages_are_bound_by_latency(cluster: Cluster) -> None:
    assert reduce_scatter_s(cluster, Group(8, 1), 2e3) > 0.5 * reduce_scatter_s(cluster, Group(8, 1), 2e5)


def test_every_member_on_a_node_brings_its_own_adapter(cluster: Cluster) -> None:
    one, eight = (reduce_scatter_s(cluster, Group(2 * k, 2), 4e9) for k in (1, 8))
    one_share, eight_share = 1 / 2, 15 / 16
    assert (one / one_share) / (eight / eight_share) == pytest.approx(8, rel=0.05)


def test_crossing_nodes_is_slower(cluster: Cluster) -> None:
    assert reduce_scatter_s(cluster, Group(8, 2), 1e8) > reduce_scatter_s(cluster, Group(8, 1), 1e8)
    assert send_s(cluster, 1e8, crosses=True) > 3 * send_s(cluster, 1e8, crosses=False)
