"""A training step of other physics than ours: a plain roofline with drawn constants, for tables to search.

It shares no code with ``tuner.physics`` nor with the simulator, so that a search that does well on it has not learnt
one model by heart. Its values are modelled, never measured.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from tuner.hardware import Cluster
from tuner.job import Recompute, TrainingJob
from tuner.layout import Layout


class Roofline:
    """One cluster of drawn constants.

    Args:
        job: The training job.
        cluster: The cluster.
        seed: Of the constants, and of what every layout has of its own.
    """

    def __init__(self, job: TrainingJob, cluster: Cluster, seed: int) -> None:
        draw = np.random.default_rng(seed).uniform
        self._job, self._cluster, self._seed = job, cluster, seed
        self._efficiency, self._half_rows = draw(0.5, 0.8), draw(200, 900)
        self._memory_share, self._layer_s = draw(0.08, 0.3), draw(5e-5, 4e-4)
        self._link, self._network, self._latency_s = draw(0.5, 0.9), draw(0.4, 0.9), draw(8e-6, 4e-5)
        self._hidden, self._fixed_s = draw(0.3, 0.9), draw(0.005, 0.04)
        self._idle, self._wait, self._busy = draw(0.12, 0.25), draw(0.1, 0.25), draw(0.6, 1.0)
        self._knee, self._steep = draw(0.55, 0.8), draw(0.5, 1.2)
        self._fragments = draw(1.0, 1.25)
        self._own = draw(0.01, 0.05)

    def step(self, layout: Layout, frequency_mhz: int) -> tuple[float, float]:
        """Step time in seconds and energy of all GPUs in joules, at the clock or at what the power limit leaves."""
        highest = self._cluster.gpu.max_clock_mhz
        low, high = 0.2, frequency_mhz / highest
        time_s, watts = self._at(layout, high)
        if watts > 1:
            for _ in range(30):
                middle = (low + high) / 2
                low, high = (middle, high) if self._at(layout, middle)[1] <= 1 else (low, middle)
            time_s, watts = self._at(layout, low)
        gpu = self._cluster.gpu
        return time_s, watts * time_s * gpu.power_limit_w * self._cluster.world_size * self._factor(layout, "power")

    def peak_memory_gib(self, layout: Layout) -> float:
        """Peak memory of the first stage, in GiB."""
        job, model = self._job, self._job.model
        sharded = layout.dp if job.zero_stage else 1
        weights = model.parameters / (layout.tp * layout.pp) * (4 + 12 / sharded)
        held = {Recompute.none: 40.0, Recompute.selective: 34.0, Recompute.full: 2.0}[job.recompute]
        tokens = layout.microbatch * job.sequence_length
        layers = model.layers / layout.pp * min(layout.pp, job.global_batch_size / (layout.dp * layout.microbatch))
        logits = tokens * model.vocab * 6 / layout.tp if layout.pp == 1 else 0.0
        activations = tokens * model.hidden * held / layout.tp * layers * self._fragments
        return float((weights + activations + logits) / 2**30 + 2.0)

    def _at(self, layout: Layout, clock: float) -> tuple[float, float]:
        """Step time, and power as a share of the limit, at a relative clock."""
        job, model, cluster = self._job, self._job.model, self._cluster
        tokens = layout.microbatch * job.sequence_length
        microbatches = job.global_batch_size / (layout.dp * layout.microbatch)
        flops = 6 * model.parameters * tokens + 12 * model.layers * model.hidden * job.sequence_length * tokens
        narrow = tokens * model.hidden / layout.tp / 4096
        rate = cluster.gpu.peak_bf16_tflops * 1e12 * self._efficiency * narrow / (narrow + self._half_rows)
        compute = flops / (layout.tp * layout.pp) / rate
        layers = model.layers / layout.pp
        busy = compute * (1 / clock + self._memory_share)
        collectives = self._collectives(layout, tokens * model.hidden * 2, layers)
        micro = (max(busy, layers * self._layer_s) + collectives) * self._factor(layout, "time")
        stages = (micro + 2 * tokens * model.hidden * 2 / layout.tp / self._bandwidth(layout)) * (layout.pp - 1)
        bubble = stages if layout.pp > 1 else 0.0
        gradients = 4 * model.parameters / (layout.tp * layout.pp)
        reduction = 2 * gradients * (layout.dp - 1) / layout.dp / self._bandwidth(layout)
        exposed = max(reduction - self._hidden * compute / clock, 0.1 * reduction)
        time_s = microbatches * micro + bubble + exposed + self._fixed_s
        share = microbatches * compute / clock / time_s
        return time_s, self._watts(clock, share)

    def _watts(self, clock: float, share: float) -> float:
        volts = (1 + self._steep * max(clock - self._knee, 0)) / (1 + self._steep * (1 - self._knee))
        return self._idle + clock * volts**2 * (self._busy * share + self._wait * (1 - share)) + 0.1 * share

    def _collectives(self, layout: Layout, nbytes: float, layers: float) -> float:
        if layout.tp == 1:
            return 0.0
        cluster = self._cluster
        inside = layout.tp <= cluster.gpus_per_node
        rate = cluster.intra_node_gb_s * self._link if inside else cluster.inter_node_gb_s * self._network
        share = (layout.tp - 1) / layout.tp
        return layers * 8 * (nbytes * share / (rate * 1e9) + self._latency_s * math.log2(layout.tp))

    def _bandwidth(self, layout: Layout) -> float:
        """Bytes per second of what leaves the tensor-parallel group."""
        cluster = self._cluster
        if cluster.nodes == 1:
            return cluster.intra_node_gb_s * self._link * 1e9
        return cluster.inter_node_gb_s * self._network * 1e9

    def _factor(self, layout: Layout, effect: str) -> float:
        """What a layout has of its own."""
        digest = hashlib.sha256(f"{self._seed}:{layout}:{effect}".encode()).digest()
        own = np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal()
        return float(np.exp(self._own * own))
