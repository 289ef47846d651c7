"""Time of communication over the node's links and the network at the highest clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.hardware import Cluster

_BUS_SHARE = 0.80  # nccl-tests on DGX H100: about 360 of 450 GB/s bus bandwidth for large all-reduces.
_HALF_LINK_BYTES, _HALF_NETWORK_BYTES = 5e6, 8e6  # Message size that reaches half of that.
_LINK_LATENCY_S, _NETWORK_LATENCY_S = 9e-6, 28e-6


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate.

    Args:
        members: Ranks.
        nodes: Nodes that they span.
    """

    members: int
    nodes: int


def reduce_scatter_s(cluster: Cluster, group: Group, payload_bytes: float) -> float:
    """Seconds of a reduce-scatter of ``payload_bytes`` a rank; an all-gather of as much takes as long.

    A ring moves ``(n - 1) / n`` of the payload through each rank (Thakur et al. 2005, and nccl-tests' bus bandwidth).
    Between nodes every member brings its own adapter, so more members a node mean more network.
    """
    if group.members == 1:
        return 0.0
    crosses = group.nodes > 1
    wire = cluster.intra_node_gb_s
    if crosses:
        wire = min(wire, cluster.inter_node_gb_s * group.members / group.nodes)
    half = _HALF_NETWORK_BYTES if crosses else _HALF_LINK_BYTES
    ramp = payload_bytes / (payload_bytes + half)
    latency = _NETWORK_LATENCY_S * math.log2(2 * group.nodes) if crosses else _LINK_LATENCY_S
    latency += 1.2e-6 * group.members
    return latency + (group.members - 1) / group.members * payload_bytes / (wire * 1e9 * _BUS_SHARE * ramp)


def all_reduce_s(cluster: Cluster, group: Group, payload_bytes: float) -> float:
    """Seconds of an all-reduce: a reduce-scatter and an all-gather."""
    return 2 * reduce_scatter_s(cluster, group, payload_bytes)


def send_s(cluster: Cluster, payload_bytes: float, *, crosses: bool) -> float:
    """Seconds of a transfer from one rank to another."""
    wire = min(cluster.inter_node_gb_s, cluster.intra_node_gb_s) if crosses else cluster.intra_node_gb_s
    latency = _NETWORK_LATENCY_S if crosses else _LINK_LATENCY_S
    # One channel pair does not fill NVLink: nccl-tests' sendrecv stays near half of it.
    return latency + payload_bytes / (wire * 1e9 * (0.85 if crosses else 0.5))
