from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from physics_cases import MODEL

from tuner.physics.stages import layers_by_stage, place_layers


@given(st.integers(1, 64), st.integers(0, 64), st.sampled_from((0.0, 0.5, 1.0)))
def test_no_layer_is_dropped_and_no_stage_holds_more_than_its_share(pp: int, more: int, head_share: float) -> None:
    model = replace(MODEL, layers=pp + more)
    layers = layers_by_stage(model, pp, head_share)
    assert len(layers) == pp
    assert sum(layers) == model.layers
    assert min(layers) >= 0
    head = head_share * model.vocab * model.hidden / model.layer_parameters
    assert max(layers[:-1], default=0) <= (model.layers + head) / pp + 2


def test_the_output_projection_takes_the_place_of_the_layers_it_costs() -> None:
    # 128,256 words against layers of 218 million parameters: the projection costs 2.4 of them.
    assert layers_by_stage(MODEL, 4) == (8, 9, 8, 7)
    assert layers_by_stage(MODEL, 4, head_share=0.0) == (8, 8, 8, 8)


@pytest.mark.parametrize("pp", [1, 2, 3, 4, 8, 16, 32])
def test_a_pipeline_is_its_first_second_longest_and_last_stage(pp: int) -> None:
    layers = layers_by_stage(MODEL, pp)
    stages = place_layers(MODEL, np.array([float(pp)]), 1.0)
    inner = layers[1:-1]
    assert stages.exists[:, 0].tolist() == [1, pp > 2, pp > 2, pp > 1]
    assert stages.inner_layers[0] == sum(inner)
    assert stages.layers[0, 0] == layers[0]
    assert stages.head[:, 0].tolist() == [pp == 1, 0, 0, pp > 1]
    if pp > 1:
        assert stages.layers[3, 0] == layers[-1]
        assert stages.index[3, 0] == pp - 1
    if pp > 2:
        assert stages.layers[1:3, 0].tolist() == [inner[0], max(inner)]
        assert stages.index[1:3, 0].tolist() == [1, layers.index(max(inner), 1)]


@given(st.integers(3, 64), st.integers(0, 64), st.integers(1, 400_000))
def test_no_inner_stage_is_both_later_and_longer_than_those_that_can_bind(pp: int, more: int, vocab: int) -> None:
    model = replace(MODEL, layers=pp + more, vocab=vocab)
    inner = layers_by_stage(model, pp)[1:-1]
    longest = inner.index(max(inner))
    assert all(layers <= inner[0] for layers in inner[:longest])
