from __future__ import annotations

import numpy as np
import pytest

from benchmarks.groups import DATA, Group
from benchmarks.tables import STAGE_MICROBATCHES, read_tables
from tuner.job import Recompute
from tuner.physics.configurations import RECOMPUTE, Configurations

TABLES = read_tables()


def only(table: str, name: str) -> Group:
    (group,) = [group for group in TABLES[table] if group.name == name]
    return group


def row_of(x: Configurations, **values: float) -> int:
    (row,) = np.flatnonzero(np.all([getattr(x, name) == value for name, value in values.items()], axis=0))
    return int(row)


@pytest.mark.parametrize(
    ("table", "groups", "rows", "failed"),
    [("nanotron", 30, 903, 937), ("vtrain", 96, 1015, 0), ("llm_foundry", 177, 182, 0), ("perseus", 12, 588, 0)],
)
def test_every_usable_row_of_a_table_is_in_one_group(table: str, groups: int, rows: int, failed: int) -> None:
    assert len(TABLES[table]) == groups == len({group.name for group in TABLES[table]})
    assert sum(map(len, TABLES[table])) == rows
    assert sum(len(group.failed) for group in TABLES[table] if group.failed is not None) == failed


@pytest.mark.parametrize("table", TABLES)
def test_every_configuration_takes_all_gpus_and_divides_the_batch(table: str) -> None:
    for group in TABLES[table]:
        for x in (group.measured.configurations, group.failed):
            if x is not None:
                assert np.all(x.dp * x.tp * x.pp == group.cluster.world_size)
                assert np.all(group.job.global_batch_size % (x.dp * x.microbatch) == 0)
                assert np.all(x.pp <= group.job.model.layers)


@pytest.mark.parametrize("table", TABLES)
def test_measured_times_are_positive_and_no_configuration_occurs_twice(table: str) -> None:
    for group in TABLES[table]:
        x = group.measured.configurations
        rows = np.stack(
            [getattr(x, name) for name in ("dp", "tp", "pp", "microbatch", "frequency_mhz", "zero_stage", "recompute")]
        )
        assert np.all(group.measured.step_time_s > 0)
        assert len(np.unique(rows, axis=1).T) == len(group)


def test_a_nanotron_row_is_read_with_its_memory() -> None:
    group = only("nanotron", "1B, 8 GPUs, batch 256")
    assert group.job.model.tied_embeddings
    assert group.job.model.kv_heads == 32
    assert group.cluster.gpu.name == "H100-SXM5-80GB"
    row = row_of(group.measured.configurations, dp=8, tp=1, pp=1, microbatch=2, zero_stage=0)
    assert group.measured.step_time_s[row] == 3.2645579
    assert group.measured.peak_memory_gib[row] == 50.2


def test_a_configuration_that_ran_once_is_not_counted_as_failed() -> None:
    for group in TABLES["nanotron"]:
        assert group.failed is not None
        ran, failed = (
            {tuple(row) for row in np.stack([x.dp, x.tp, x.pp, x.microbatch, x.zero_stage], axis=1)}
            for x in (group.measured.configurations, group.failed)
        )
        assert not ran & failed


def test_a_vtrain_row_is_read_with_full_recomputation() -> None:
    group = only("vtrain", "single node, 8 GPUs, 20 layers of 2048, batch 8")
    assert not group.job.sequence_parallel
    assert group.job.model.positions == 1024
    row = row_of(group.measured.configurations, dp=1, tp=4, pp=2, microbatch=2)
    assert group.measured.step_time_s[row] == 0.1606027
    assert group.measured.configurations.recompute[row] == RECOMPUTE.index(Recompute.full)
    assert group.measured.configurations.zero_stage[row] == 0


def test_an_mpt_row_is_read_as_sharded_weights() -> None:
    group = only("llm_foundry", "MPT 7b, 8 A100-80GB, sequence 65536, batch 16")
    row = row_of(group.measured.configurations, dp=8, microbatch=1, recompute=RECOMPUTE.index(Recompute.full))
    # Two versions of the software: 129.3 and 142.6 s.
    assert group.measured.step_time_s[row] == 129.326098
    assert group.measured.configurations.zero_stage[row] == 3
    assert group.cluster.gpu.name == "A100-SXM4-80GB"


def test_a_stage_is_read_at_each_clock_with_the_energy_of_its_eight_gpus() -> None:
    group = only("perseus", "gpt3-175b on A100-SXM4-80GB, stage 7, forward and backward")
    assert group.job.model.layers == 12
    assert group.job.model.vocab == 50_257
    row = row_of(group.measured.configurations, frequency_mhz=1200)
    assert group.measured.step_time_s[row] == pytest.approx(STAGE_MICROBATCHES * (0.0605222966 + 0.109710571))
    assert group.measured.energy_j[row] == pytest.approx(STAGE_MICROBATCHES * 8 * (20.0898367 + 37.355588))


def test_groups_are_fitted_on_or_judged_as_wholes_and_every_table_has_some_to_judge() -> None:
    for groups in TABLES.values():
        assert any(not group.fitted for group in groups)
    assert any(group.fitted for group in TABLES["nanotron"])


def test_every_table_is_named_with_its_source_and_its_licence_is_there() -> None:
    text = (DATA / "README.md").read_text()
    for path in DATA.glob("*.csv"):
        assert f"| `{path.name}` |" in text
    for path in DATA.glob("LICENSE-*"):
        assert f"`{path.name}`" in text
