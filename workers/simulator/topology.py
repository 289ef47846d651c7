"""Which boards and wires a layout lands on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Topology:
    """Ranks of a layout on the nodes: tensor ranks are neighbours, then data-parallel ones, pipeline stages outermost.

    That is the default order of Megatron-LM ("tp-cp-ep-dp-pp") and of torchtitan's device mesh. Boards of one stage on
    one node behave alike and form one *row*.

    Args:
        stage: Pipeline stage of each row, shape ``(rows,)``.
        node: Node of each row, shape ``(rows,)``.
        boards: Ranks of each row.
        tp_nodes: Nodes that a tensor-parallel group spans.
        dp_nodes: Nodes that a data-parallel group spans.
        crossings: Whether the boundary behind each stage but the last leaves the node.
    """

    stage: NDArray[np.int64]
    node: NDArray[np.int64]
    boards: tuple[NDArray[np.int64], ...]
    tp_nodes: int
    dp_nodes: int
    crossings: tuple[bool, ...]


@lru_cache(maxsize=1024)
def place(layout: Layout, cluster: Cluster) -> Topology:
    """Lay the ranks out over the cluster's nodes, in order."""
    ranks = np.arange(layout.world_size).reshape(layout.pp, layout.dp, layout.tp)
    nodes = ranks // cluster.gpus_per_node
    pairs = sorted({(int(s), int(n)) for s, row in enumerate(nodes) for n in np.unique(row)})
    return Topology(
        stage=np.array([s for s, _ in pairs]),
        node=np.array([n for _, n in pairs]),
        boards=tuple(ranks[s][nodes[s] == n] for s, n in pairs),
        tp_nodes=_span(nodes, axis=2),
        dp_nodes=_span(nodes, axis=1),
        crossings=tuple(bool(np.any(nodes[s] != nodes[s + 1])) for s in range(layout.pp - 1)),
    )


def _span(nodes: NDArray[np.int64], *, axis: int) -> int:
    groups = np.moveaxis(nodes, axis, -1).reshape(-1, nodes.shape[axis])
    return max(len(np.unique(group)) for group in groups)
