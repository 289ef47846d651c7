"""Collectives: the time a group of ranks needs to exchange data, inside a node and between nodes.

A ring of n ranks takes n - 1 steps, each as slow as its slowest hop, and moves (n - 1) / n of the data over every link
(Thakur et al. 2005; NCCL does the same). Between nodes NCCL also has a tree for all-reduce, with 2 log2(n) steps. Rank
order is that of Megatron-LM and nanotron: tp innermost, then dp, then pp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.hardware import Cluster
from tuner.physics.coefficients import Coefficients
from tuner.physics.configurations import Floats

# NCCL 2.27 inside an HGX board: a rank adds 0.8 to 2.5 us to a small collective (aiconfigurator's tables, Apache-2.0).
_LINK_HOP_S = 1.5e-6


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that work together; arrays of shape ``(n,)``.

    Args:
        ranks: Number of ranks.
        bandwidth_bytes_s: Bytes per second of the ring's slowest link.
        start_s: Time to start one collective.
        hop_s: Time of one step of the ring or tree beyond the transfer.
    """

    ranks: Floats
    bandwidth_bytes_s: Floats
    start_s: float
    hop_s: Floats

    def gather_s(self, size_bytes: Floats, collectives: Floats | float = 1.0) -> Floats:
        """An all-gather, or a reduce-scatter, of so many bytes altogether, cut into so many collectives."""
        steps = self.ranks - 1
        transfer = steps / self.ranks * size_bytes / self.bandwidth_bytes_s
        return np.where(steps > 0, collectives * (self.start_s + steps * self.hop_s) + transfer, 0.0)

    def reduce_s(self, size_bytes: Floats, collectives: Floats | float = 1.0) -> Floats:
        """An all-reduce of so many bytes altogether, cut into so many collectives."""
        steps = self.ranks - 1
        hops = np.minimum(2 * steps, 4 * np.ceil(np.log2(self.ranks)))
        transfer = 2 * steps / self.ranks * size_bytes / self.bandwidth_bytes_s
        return np.where(steps > 0, collectives * (self.start_s + hops * self.hop_s) + transfer, 0.0)


def rank_group(cluster: Cluster, c: Coefficients, ranks: Floats, stride: Floats) -> Group:
    """The group of so many ranks that lie ``stride`` apart in the order of all ranks.

    Between nodes each GPU brings its own share of the node's network, so that a ring over k GPUs of every node has k of
    them, up to what the links inside the node carry.

    Args:
        cluster: The cluster.
        c: Coefficients.
        ranks: Group sizes, shape ``(n,)``.
        stride: Distance of neighbouring ranks, shape ``(n,)``.
    """
    inside = ranks * stride <= cluster.gpus_per_node
    per_node = np.clip(np.floor(cluster.gpus_per_node / stride), 1, ranks)
    link = cluster.intra_node_gb_s * 1e9 * c.link_efficiency
    network = cluster.inter_node_gb_s * 1e9 * c.network_efficiency
    return Group(
        ranks=ranks,
        bandwidth_bytes_s=np.where(inside, link, np.minimum(link, network * per_node)),
        start_s=c.collective_s,
        hop_s=np.where(inside, _LINK_HOP_S, c.network_hop_s),
    )


def neighbour_bandwidth(cluster: Cluster, c: Coefficients, stride: Floats) -> Floats:
    """Bytes per second between two ranks that lie ``stride`` apart, shape ``(n,)``."""
    link = cluster.intra_node_gb_s * 1e9 * c.link_efficiency
    network = cluster.inter_node_gb_s * 1e9 * c.network_efficiency
    return np.where(stride >= cluster.gpus_per_node, network, link)
