"""What no model of a cluster knows beforehand: effects of one layout, one node, one board."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.layout import Layout
from workers.simulator.memory import peak_memory_gib

_FEATURES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quirks:
    """Deterministic deviations of one layout from the physics, as factors around 1 unless said otherwise.

    Args:
        compute: On the time of all kernels; up to about 6 %.
        stiffness: Share of the core-bound kernel time that a cache binds instead, so that it does not follow the clock;
            0 to a third.
        link: On the time of tensor-parallel collectives; up to about 15 %.
        network: On the time of data-parallel and pipeline traffic; up to about 15 %.
        activity: On the dynamic power of the core, as libraries choose other kernels for other shapes; about 8 %.
        fragmentation: Share of activation memory lost to the allocator, not below 0; never falls with the microbatch.
        node_slowdown: On the compute time of each node, shape ``(nodes,)``; now and then one node straggles.
        node_ambient_k: Warmer or cooler inlet air of each node in kelvin, shape ``(nodes,)``; the cluster's, not the
            layout's.
        board_gain: On the power of each board, shape ``(world_size,)``; the cluster's, not the layout's.
        stall: Share of the kernels' time at the highest clock that the allocator adds when memory is nearly full.
        step_noise: Relative standard deviation of one step, 0.005 to 0.015.
    """

    compute: float
    stiffness: float
    link: float
    network: float
    activity: float
    fragmentation: float
    node_slowdown: NDArray[np.float64]
    node_ambient_k: NDArray[np.float64]
    board_gain: NDArray[np.float64]
    stall: float
    step_noise: float


_LATER = ("pipeline_schedule", "sequence_parallel")


def generator(seed: int, *parts: object) -> np.random.Generator:
    """A random generator that is the same in every process for the same seed and parts.

    Args:
        seed: Seed of the simulated cluster.
        *parts: What the draws belong to; told apart by their ``str``.
    """
    digest = hashlib.sha256("|".join([str(seed), *map(str, parts)]).encode()).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest, "big"))))


@lru_cache(maxsize=64)
def canonical(value: TrainingJob | Cluster) -> str:
    """The value as text that does not depend on the process, nor on the order of the fields.

    A field that came later is left out where it has its default, so that it does not exchange every draw.
    """
    unsaid = {field.name: field.default for field in fields(value) if field.name in _LATER}
    return json.dumps({name: part for name, part in asdict(value).items() if part != unsaid.get(name)}, sort_keys=True)


@lru_cache(maxsize=1024)
def draw_quirks(seed: int, job: TrainingJob, layout: Layout, cluster: Cluster) -> Quirks:
    """Draw the quirks of a layout.

    Each effect of a layout is a smooth random function of the logarithms of its degrees, so that neighbours resemble
    each other, plus a smaller part of its own.
    """
    own = generator(seed, "layout", canonical(job), layout)
    slow = np.ones(cluster.nodes)
    if cluster.nodes > 1 and own.random() < 0.08:
        slow[own.integers(cluster.nodes)] += own.uniform(0.02, 0.06)
    # By name only, so that a corrected fact about the GPU does not exchange the boards.
    hall = generator(seed, "boards", cluster.gpu.name, cluster.nodes, cluster.gpus_per_node)
    fragmentation = _fragmentation(seed, job, layout)
    filled = peak_memory_gib(job, layout, fragmentation) / cluster.gpu.memory_gib
    names = ("compute", "stiffness", "link", "network", "activity")
    effect = {name: _smooth(seed, job, layout, name) for name in names}
    compute = 1 + 0.02 * effect["compute"] + 0.02 * _bounded(own)
    return Quirks(
        compute=compute,
        stiffness=0.17 + 0.02 * effect["stiffness"] + 0.08 * _bounded(own),
        link=1 + 0.07 * effect["link"] + 0.02 * _bounded(own),
        network=1 + 0.07 * effect["network"] + 0.02 * _bounded(own),
        # A kernel that is slower because it stalls also switches less in every second.
        activity=(1 + 0.04 * effect["activity"] + 0.02 * _bounded(own)) / compute,
        fragmentation=fragmentation,
        stall=0.07 * min(1.0, max(0.0, (filled - 0.84) / 0.16)),
        node_slowdown=slow,
        node_ambient_k=2.0 * hall.standard_normal(cluster.nodes).clip(-2, 2),
        board_gain=1 + 0.025 * hall.standard_normal(cluster.world_size).clip(-2.5, 2.5),
        step_noise=float(np.exp(own.uniform(np.log(0.005), np.log(0.015)))),
    )


def _fragmentation(seed: int, job: TrainingJob, layout: Layout) -> float:
    # Drawn without the microbatch and only ever rising with it: twice the activations never need less memory.
    draws = generator(seed, "fragmentation", canonical(job), layout.dp, layout.tp, layout.pp)
    return float(draws.uniform(0.02, 0.09) + draws.uniform(0.0, 0.012) * np.log2(layout.microbatch))


def _bounded(draws: np.random.Generator) -> float:
    return float(np.clip(draws.standard_normal(), -1.6, 1.6))


def _smooth(seed: int, job: TrainingJob, layout: Layout, effect: str) -> float:
    # Random Fourier features (Rahimi and Recht 2007): a draw of a Gaussian process with a squared-exponential kernel
    # whose length scale is three doublings.
    draws = generator(seed, effect, canonical(job))
    waves = draws.standard_normal((_FEATURES, 4)) / 3.0
    phases = draws.uniform(0, 2 * np.pi, _FEATURES)
    place = np.log2([layout.dp, layout.tp, layout.pp, layout.microbatch])
    value = np.sqrt(2 / _FEATURES) * np.cos(waves @ place + phases).sum()
    return float(np.clip(value, -1.6, 1.6))
