"""How layers are placed on pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tuner.job import ModelShape
from tuner.physics.configurations import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The kinds of stage that can bind a pipeline: first, inner, last. Arrays have shape ``(3, n)``.

    Args:
        layers: Layers on the stage; on the inner kind, those of the longest one.
        index: Position in the pipeline; on the inner kind, that of the stage that holds most activations.
        held_layers: Layers on the stage at ``index``.
        embedding: 1 where the token embedding lives, else 0.
        head: 1 where the output projection and the loss live, else 0.
        exists: Whether the pipeline has this kind: one stage is the first, two have no inner.
        inner_layers: Layers on all inner stages together, shape ``(n,)``.
    """

    layers: Floats
    index: Floats
    held_layers: Floats
    embedding: Floats
    head: Floats
    exists: Floats
    inner_layers: Floats


@lru_cache(maxsize=4096)
def layers_by_stage(model: ModelShape, pp: int, head_share: float = 1.0) -> tuple[int, ...]:
    """Layers on each of ``pp`` stages, balanced by the products that a stage computes.

    The output projection counts as the layers whose matrix work it equals, so that the last stage gets fewer of them;
    a layer goes to the stage in whose share of the work it ends. This is how nanotron places its blocks
    (``get_block_compute_costs``); Megatron-LM's account-for-loss options and torchtitan's weights for the first and
    last stage do the same by hand.

    Args:
        model: The model.
        pp: Number of stages, at most the number of layers.
        head_share: How much of the output projection's work counts: all of it balances the stages, none of it gives
            them equally many layers.
    """
    head = head_share * model.vocab * model.hidden / (model.layer_parameters - 2 * model.hidden)
    share = (model.layers + head) / pp
    counts = [0] * pp
    stage = 0
    for layer in range(1, model.layers + 1):
        if layer > share * (stage + 1) + 1e-9 and stage < pp - 1:
            stage += 1
        counts[stage] += 1
    return tuple(counts)


def place_layers(model: ModelShape, pp: Floats, head_share: float) -> Stages:
    """Place the layers for every configuration.

    Args:
        model: The model.
        pp: Stages, shape ``(n,)``.
        head_share: As in :func:`layers_by_stage`.
    """
    degree = pp.astype(np.intp)
    summaries = np.zeros((6, degree.max(initial=1) + 1))
    for each in np.flatnonzero(np.bincount(degree)):
        summaries[:, each] = _summary(layers_by_stage(model, int(each), head_share))
    first, inner, last, index, held, inner_layers = summaries[:, degree]
    single = pp == 1
    several = (~single).astype(float)
    zero = np.zeros_like(pp)
    return Stages(
        layers=np.stack([first, inner, last]),
        index=np.stack([zero, index, pp - 1]),
        held_layers=np.stack([first, held, last]),
        embedding=np.stack([zero + 1, zero, zero]),
        head=np.stack([single.astype(float), zero, several]),
        exists=np.stack([zero + 1, (pp > 2).astype(float), several]),
        inner_layers=inner_layers,
    )


def _summary(layers: tuple[int, ...]) -> tuple[float, ...]:
    """First, longest inner and last stage; position and layers of the inner stage that holds most; all inner layers."""
    inner = layers[1:-1]
    if not inner:
        return layers[0], 0, layers[-1], 0, 0, 0
    held = [count * (len(layers) - 1 - position) for position, count in enumerate(inner)]
    index = held.index(max(held))
    return layers[0], max(inner), layers[-1], index + 1, inner[index], sum(inner)
