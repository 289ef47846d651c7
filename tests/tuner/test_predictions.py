from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest
from builders import spec

from tuner.candidates import space_candidates
from tuner.frontier import pareto_mask
from tuner.physics.configurations import Configurations
from tuner.physics.predict import Prediction, predict
from tuner.policy import PolicyKind
from tuner.predictions import binding_parts, pick_points, predicted_frontier, write_predictions
from tuner.spec import SpaceSection

JOB = spec().training_job()


def small_space(memory_gib: float = 80.0) -> tuple[Configurations, Prediction]:
    gpu = spec().hardware().gpu
    facts = {name: getattr(gpu, name) for name in gpu.__slots__} | {"memory_gib": memory_gib}
    cluster = spec(cluster={"gpu": facts, "nodes": 1, "gpus_per_node": 4}).hardware()
    x = space_candidates(SpaceSection(frequency_mhz=[900, 1110, 1260]), JOB, cluster, 10_000)
    return x, predict(JOB, cluster, x)


def test_the_frontier_holds_only_what_fits_fastest_first_and_nothing_that_is_beaten() -> None:
    _, unlimited = small_space()
    middle = float(np.median(unlimited.peak_memory_gib)) + 2.0
    _, prediction = small_space(memory_gib=middle)
    assert 0 < prediction.fits.sum() < len(prediction.fits)
    frontier = predicted_frontier(prediction)
    assert prediction.fits[frontier].all()
    time_s, energy_j = prediction.step_time_s[frontier], prediction.energy_j[frontier]
    assert np.all(np.diff(time_s) > 0)
    assert np.all(np.diff(energy_j) < 0)
    # Nothing that fits is both faster and thriftier by more than what counts as alike.
    for time, energy in zip(time_s, energy_j, strict=True):
        better = (prediction.step_time_s < 0.998 * time) & (prediction.energy_j < 0.998 * energy) & prediction.fits
        assert not better.any()


def test_copies_on_the_frontier_stand_there_once() -> None:
    x, _ = small_space()
    rows = np.arange(len(x)).repeat(2)
    prediction = predict(JOB, spec().hardware(), x[rows])
    frontier = predicted_frontier(prediction)
    values = np.column_stack([prediction.step_time_s, prediction.energy_j])[frontier]
    assert len(np.unique(values, axis=0)) == len(frontier)
    assert pareto_mask(values).all()


def test_where_nothing_fits_there_is_neither_a_frontier_nor_a_pick() -> None:
    _, prediction = small_space(memory_gib=0.001)
    assert not prediction.fits.any()
    frontier = predicted_frontier(prediction)
    assert len(frontier) == 0
    assert pick_points(prediction, frontier) == {}


def test_the_picks_are_the_ends_of_the_frontier_and_a_point_between() -> None:
    _, prediction = small_space()
    frontier = predicted_frontier(prediction)
    picks = pick_points(prediction, frontier)
    assert picks[PolicyKind.fastest] == 0
    assert picks[PolicyKind.least_energy] == len(frontier) - 1
    assert 0 <= picks[PolicyKind.knee] < len(frontier)


def test_what_binds_is_the_largest_part() -> None:
    _, prediction = small_space()
    for row, name in enumerate(binding_parts(prediction)):
        assert prediction.breakdown[name][row] == max(values[row] for values in prediction.breakdown.values())


@pytest.mark.parametrize("chunk", [7, 100_000])
def test_the_csv_holds_every_prediction_in_order_with_finite_numbers_that_add_up(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.predictions._CHUNK", chunk)
    x, prediction = small_space()
    out = io.StringIO()
    fitting = write_predictions(out, JOB, spec().hardware(), x)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(rows) == len(x)
    assert fitting == sum(row["fits"] == "true" for row in rows) == prediction.fits.sum()
    parts = list(prediction.breakdown)
    for index, row in enumerate(rows):
        assert [float(row[name]) for name in ("dp", "tp", "pp", "microbatch", "frequency_mhz", "zero_stage")] == [
            getattr(x, name)[index] for name in ("dp", "tp", "pp", "microbatch", "frequency_mhz", "zero_stage")
        ]
        assert row["recompute"] == "none"
        numbers = {name: float(value) for name, value in row.items() if name not in ("recompute", "fits", "binds")}
        assert all(math.isfinite(value) and value >= 0 for value in numbers.values())
        for name, unit in (("step_time", "s"), ("energy", "j"), ("peak_memory", "gib")):
            assert numbers[f"{name}_low_{unit}"] <= numbers[f"{name}_{unit}"] <= numbers[f"{name}_high_{unit}"]
        assert sum(numbers[part] for part in parts) == pytest.approx(numbers["step_time_s"], rel=1e-6)
        assert row["binds"] == max(parts, key=lambda part: numbers[part])
