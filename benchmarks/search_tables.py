"""Write tables for the search benchmark: jobs of our own, on the simulator and on a small model of other physics.

Their step times and energies are simulated or modelled, not measured; the real tables hold no energy. ``python -m
benchmarks.search_tables FOLDER`` writes ``NAME.csv`` and ``NAME.yaml`` of each.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.roofline import Roofline
from tuner.layout import Layout
from tuner.space import Space, build_space
from tuner.spec import StudySpec
from tuner.table import COLUMNS
from workers.runners.simulated import SimulatedRunner


class Point(NamedTuple):
    """What a configuration truly takes; ``None`` values where it does not fit."""

    step_time_s: float
    energy_j: float
    peak_memory_gib: float


Answer = Callable[[Layout, int | None], Point | None]

SHAPES = {
    "1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256},
    "3b": {"layers": 28, "hidden": 3072, "heads": 24, "kv_heads": 8, "ffn": 8192, "vocab": 128256},
    "7b": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 32000},
    "13b": {"layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "ffn": 13824, "vocab": 32000},
    "30b": {"layers": 60, "hidden": 6656, "heads": 52, "kv_heads": 52, "ffn": 17920, "vocab": 32000},
    "70b": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 32000},
}
JOBS: tuple[tuple[str, str, int, int, int, int], ...] = (
    # Shape, GPU, nodes, GPUs a node, sequence length, global batch.
    ("1b", "A100-SXM4-80GB", 1, 8, 2048, 128),
    ("3b", "H100-SXM5-80GB", 1, 8, 4096, 128),
    ("7b", "H100-SXM5-80GB", 2, 8, 4096, 256),
    ("7b", "A100-SXM4-80GB", 4, 8, 2048, 512),
    ("13b", "H100-SXM5-80GB", 4, 8, 4096, 256),
    ("30b", "A100-SXM4-80GB", 8, 8, 2048, 512),
    ("70b", "H100-SXM5-80GB", 8, 8, 4096, 512),
    ("13b", "A100-SXM4-80GB", 2, 8, 4096, 256),
)
SEEDS = (1, 2)
DEFAULT_LAUNCH_S = 60.0


def study(shape: str, gpu: str, nodes: int, per_node: int, sequence_length: int, batch: int) -> dict[str, Any]:
    """The study document of a job."""
    return {
        "name": f"{shape}-{nodes * per_node}x{gpu.split('-')[0].lower()}",
        "job": {
            "model": SHAPES[shape],
            "sequence_length": sequence_length,
            "global_batch_size": batch,
            "recompute": "selective",
        },
        "cluster": {"gpu": gpu, "nodes": nodes, "gpus_per_node": per_node},
        "space": {"frequency_mhz": "auto"},
        "runner": {"kind": "simulated", "seed": 1},
    }


def tables() -> Iterator[tuple[str, dict[str, Any], Space, Answer]]:
    """Every table's name, study document, space and truth."""
    for job in JOBS:
        document = study(*job)
        space = build_space(StudySpec.parse(document))
        for seed in SEEDS:
            yield f"simulated-{document['name']}-{seed}", document, space, _simulated(space, seed)
            yield f"roofline-{document['name']}-{seed}", document, space, _roofline(space, seed)


def _simulated(space: Space, seed: int) -> Answer:
    runner = SimulatedRunner(space.cluster, seed)

    def answer(layout: Layout, frequency_mhz: int | None) -> Point | None:
        truth = runner.truth(space.job, layout, frequency_mhz)
        return None if truth is None else Point(*truth)

    return answer


def _roofline(space: Space, seed: int) -> Answer:
    model = Roofline(space.job, space.cluster, seed)

    def answer(layout: Layout, frequency_mhz: int | None) -> Point | None:
        needed = model.peak_memory_gib(layout)
        if needed > space.cluster.gpu.memory_gib:
            return None
        return Point(*model.step(layout, frequency_mhz or space.cluster.gpu.max_clock_mhz), needed)

    return answer


def write(path: Path, space: Space, answer: Answer) -> None:
    """Write one table."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for configuration in space.configurations:
            layout, clock = configuration.layout, configuration.frequency_mhz
            point = answer(layout, clock)
            row = {
                "dp": layout.dp,
                "tp": layout.tp,
                "pp": layout.pp,
                "microbatch": layout.microbatch,
                "frequency_mhz": clock or space.cluster.gpu.max_clock_mhz,
                "launch_s": DEFAULT_LAUNCH_S,
                "status": "oom" if point is None else "ok",
            }
            writer.writerow(row if point is None else row | point._asdict())


def main(folder: Path) -> None:
    """Write all tables and their jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, document, space, answer in tables():
        write(folder / f"{name}.csv", space, answer)
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
