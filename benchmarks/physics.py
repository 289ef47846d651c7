"""Predicted against measured: how good the analytic prior is on public tables, and how fast.

    python benchmarks/physics.py [--quick]

Prints the figures beside what they are to reach, and writes ``docs/accuracy.md``. With ``--quick`` the trials to
calibrate on are drawn once instead of five times, and nothing is written.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy import document, target_lines
from benchmarks.groups import Group
from benchmarks.memory import count_memory
from benchmarks.results import Results
from benchmarks.scores import score, score_clocks, select
from benchmarks.tables import read_tables
from tuner.hardware import Cluster, find_gpu
from tuner.job import ModelShape, TrainingJob
from tuner.layout import LayoutAxes, LayoutRules, enumerate_layouts
from tuner.physics.calibrate import calibrate
from tuner.physics.configurations import RECOMPUTE, Configurations
from tuner.physics.predict import predict

DOCUMENT = Path(__file__).parent.parent / "docs/accuracy.md"
DRAWS, QUICK_DRAWS = 5, 1
CONFIGURATIONS, RUNS = 1_000_000, 3


def main() -> None:
    """Measure, print, and write the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one draw of calibration trials, and no document")
    quick = parser.parse_args().quick
    results = measure(QUICK_DRAWS if quick else DRAWS)
    print("\n".join(target_lines(results)))
    if not quick:
        DOCUMENT.write_text(document(results), encoding="utf-8")


def measure(draws: int) -> Results:
    """Every score of every table.

    Args:
        draws: How often the trials to calibrate on are drawn anew.
    """
    tables = read_tables()
    perseus = tables.pop("perseus")
    return Results(
        draws=draws,
        scores={table: [score(group, draws) for group in groups if len(group)] for table, groups in tables.items()},
        clocks=[score_clocks(group) for group in perseus],
        memory={table: [(group, count_memory(group)) for group in tables[table]] for table in ("nanotron", "vtrain")},
        speed_s=measure_speed_s(),
        calibration_s=measure_calibration_s(tables["nanotron"]),
    )


def measure_calibration_s(groups: Sequence[Group]) -> float:
    """Time to calibrate on 5 trials of the largest group, the shortest of 3."""
    largest = max(groups, key=len)
    trials = select(largest.measured, np.linspace(0, len(largest) - 1, 5).astype(np.intp))
    return shortest_s(lambda: calibrate(largest.job, largest.cluster, trials))


def shortest_s(act: Callable[[], object]) -> float:
    """Wall-clock time of the fastest of 3 runs."""
    taken_s = []
    for _ in range(RUNS):
        started_s = time.perf_counter()
        act()
        taken_s.append(time.perf_counter() - started_s)
    return min(taken_s)


def measure_speed_s() -> float:
    """Time to predict a million random valid configurations of Llama 2 7B on 512 H100, the shortest of 3."""
    gpu = find_gpu("H100-SXM5-80GB")
    cluster = Cluster(
        gpu=gpu, nodes=64, gpus_per_node=8, intra_node_gb_s=gpu.link_gb_s, inter_node_gb_s=gpu.network_gb_s
    )
    model = ModelShape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11_008, vocab=32_000)
    job = TrainingJob(model=model, sequence_length=4096, global_batch_size=1024)
    layouts, _ = enumerate_layouts(job, cluster, LayoutAxes(), LayoutRules())
    rng = np.random.default_rng(7)
    n = CONFIGURATIONS
    rows = rng.integers(len(layouts), size=n)
    dp, tp, pp, microbatch = np.array([(each.dp, each.tp, each.pp, each.microbatch) for each in layouts], float)[rows].T
    configurations = Configurations(
        dp=dp,
        tp=tp,
        pp=pp,
        microbatch=microbatch,
        frequency_mhz=rng.choice(np.array(gpu.clocks_mhz, float), size=n),
        zero_stage=rng.integers(4, size=n).astype(float),
        recompute=rng.integers(len(RECOMPUTE), size=n).astype(float),
    )
    return shortest_s(lambda: predict(job, cluster, configurations))


if __name__ == "__main__":
    main()
