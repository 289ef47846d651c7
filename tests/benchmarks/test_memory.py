from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.groups import Trial as Row
from benchmarks.groups import configurations_of
from benchmarks.memory import MemoryCounts, count_memory, needed_memory


def failed(*layouts: tuple[int, ...], clock_mhz: float = 1410) -> object:
    return configurations_of([Row(*layout, clock_mhz, 1, 0) for layout in layouts])


def test_needed_memory_lies_on_the_line_through_the_microbatches_that_ran(make_group) -> None:
    group = make_group(((8, 1, 2, 1), (8, 1, 2, 2), (4, 4, 1, 2)))
    memory_gib = np.where(group.measured.configurations.dp == 8, 10.0 * group.measured.configurations.microbatch, 30.0)
    group = replace(
        group,
        measured=replace(group.measured, peak_memory_gib=memory_gib),
        # The second has too few microbatches to fill two stages, the third only one layout to go by.
        failed=failed((8, 1, 2, 8), (8, 1, 2, 16), (4, 4, 1, 16)),
    )
    np.testing.assert_allclose(needed_memory(group), [80, np.nan, np.nan])


def test_a_group_without_failed_rows_counts_those_that_ran(make_group) -> None:
    counts = count_memory(make_group())
    assert counts == MemoryCounts(ran=8, ran_predicted_to_fit=8)
    assert np.isnan(counts.recall)


def test_what_the_table_shows_to_be_out_is_counted_against_the_prediction(make_group) -> None:
    group = make_group(((2, 1, 8, 1), (2, 1, 8, 2)))
    group = replace(
        group,
        measured=replace(group.measured, peak_memory_gib=np.array([30.0, 60.0])),
        failed=failed((2, 1, 8, 4)),
    )
    counts = count_memory(group)
    assert (counts.failed, counts.out, counts.room) == (1, 1, 0)
    # The prediction knows nothing of the memory made up above, and a model this small fits.
    assert counts.out_predicted_out == 0


def test_recall_and_precision_are_over_what_the_table_tells_apart() -> None:
    counts = MemoryCounts(
        ran=100, ran_predicted_to_fit=98, failed=50, failed_predicted_out=40, out=20, out_predicted_out=18, room=5
    ) + MemoryCounts(room=5, room_predicted_out=4)
    assert counts.recall == 18 / 20
    assert counts.precision == pytest.approx(18 / (18 + 2 + 4))
