"""How layers are placed on pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tuner.job import ModelShape
from tuner.physics.configurations import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages that can bind a pipeline: first, second, longest inner, last. Arrays have shape ``(4, n)``.

    Of the inner stages, no other can be slower than the longest. None can be fuller than both the second stage, which
    holds most microbatches, and the first of the longest: inner stages have one of two numbers of layers, until the
    layers run out towards the end.

    Args:
        layers: Layers on the stage.
        index: Position in the pipeline.
        embedding: 1 where the token embedding lives, else 0.
        head: 1 where the output projection and the loss live, else 0.
        exists: Whether the pipeline has it: one stage is the first, two have no inner one.
        inner_layers: Layers on all inner stages together, shape ``(n,)``.
    """

    layers: Floats
    index: Floats
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
    first, second, longest, last, index, inner_layers = summaries[:, degree]
    single, inner = (pp == 1).astype(float), (pp > 2).astype(float)
    zero = np.zeros_like(pp)
    return Stages(
        layers=np.stack([first, second, longest, last]),
        index=np.stack([zero, inner, index, pp - 1]),
        embedding=np.stack([zero + 1, zero, zero, zero]),
        head=np.stack([single, zero, zero, 1 - single]),
        exists=np.stack([zero + 1, inner, inner, 1 - single]),
        inner_layers=inner_layers,
    )


def _summary(layers: tuple[int, ...]) -> tuple[float, ...]:
    """Layers on the first, second, longest inner and last stage; place of the longest; layers on all inner ones."""
    inner = layers[1:-1]
    if not inner:
        return layers[0], 0, 0, layers[-1], 0, 0
    return layers[0], inner[0], max(inner), layers[-1], 1 + inner.index(max(inner)), sum(inner)
