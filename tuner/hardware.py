"""What a job runs on: the GPU catalogue and the cluster."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from tuner.errors import FieldProblem, InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """Facts about one GPU model. ``gpus.toml`` gives the source of each number.

    Args:
        name: Catalogue name.
        memory_gib: Usable device memory.
        memory_bandwidth_gb_s: Peak device memory bandwidth, 10^9 bytes per second.
        peak_bf16_tflops: Dense matrix peak in bf16 (fp16 where the GPU has no bf16), without sparsity.
        peak_fp32_tflops: Dense matrix peak in fp32, TF32 where the GPU has it.
        power_limit_w: Default board power limit.
        idle_power_w: Typical power with no process on it.
        min_clock_mhz: Lowest SM clock that can be locked.
        max_clock_mhz: Highest (boost) SM clock.
        clock_step_mhz: Distance between neighbouring supported clocks.
        link: Name of the link between the GPUs of a node, such as ``NVLink 4`` or ``PCIe 4.0 x16``.
        link_gb_s: Bandwidth of that link per GPU and direction, 10^9 bytes per second.
        network_gb_s: Bandwidth between nodes per GPU and direction in the usual server of this GPU.
        energy_counter: Whether the board counts its own energy.
    """

    name: str
    memory_gib: float
    memory_bandwidth_gb_s: float
    peak_bf16_tflops: float
    peak_fp32_tflops: float
    power_limit_w: float
    idle_power_w: float
    min_clock_mhz: int
    max_clock_mhz: int
    clock_step_mhz: int
    link: str
    link_gb_s: float
    network_gb_s: float
    energy_counter: bool

    def __post_init__(self) -> None:
        positive = [f.name for f in fields(self) if f.name not in ("name", "link", "energy_counter")]
        problems = [
            FieldProblem(f"cluster.gpu.{name}", getattr(self, name), "must be above 0")
            for name in positive
            if not getattr(self, name) > 0
        ]
        if problems:
            raise InvalidInput(*problems)
        if self.min_clock_mhz > self.max_clock_mhz:
            raise InvalidInput.of(
                "cluster.gpu.min_clock_mhz", self.min_clock_mhz, f"must not exceed max_clock_mhz = {self.max_clock_mhz}"
            )

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """Every clock that can be locked, descending from the highest."""
        return tuple(range(self.max_clock_mhz, self.min_clock_mhz - 1, -self.clock_step_mhz))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The GPUs that a study may use; every launch takes all of them.

    Args:
        gpu: The GPU model.
        nodes: Number of nodes.
        gpus_per_node: GPUs on each node.
        intra_node_gb_s: Link bandwidth inside a node per GPU and direction, 10^9 bytes per second.
        inter_node_gb_s: Network bandwidth between nodes per GPU and direction, 10^9 bytes per second.
    """

    gpu: GpuSpec
    nodes: int
    gpus_per_node: int
    intra_node_gb_s: float
    inter_node_gb_s: float

    @property
    def world_size(self) -> int:
        """Number of GPUs."""
        return self.nodes * self.gpus_per_node


@cache
def gpu_catalogue() -> Mapping[str, GpuSpec]:
    """All GPU models that are known by name, in the catalogue's order."""
    return {name: GpuSpec(name=name, **_facts(row)) for name, row in _rows().items()}


def find_gpu(name: str) -> GpuSpec:
    """Look a GPU up by its catalogue name.

    Raises:
        InvalidInput: An unknown name; the message lists the known ones and says which are close to it.
    """
    catalogue = gpu_catalogue()
    if name not in catalogue:
        near = _near_misses(name, tuple(catalogue))
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise InvalidInput.of("cluster.gpu", name, f"must be one of {', '.join(catalogue)}, or an inline entry{hint}")
    return catalogue[name]


def gpu_sources(name: str) -> Mapping[str, str]:
    """Where each fact of a catalogue entry comes from, by field; ``estimate:`` opens one without a public source.

    Raises:
        InvalidInput: An unknown name, as in :func:`find_gpu`.
    """
    find_gpu(name)
    sources: dict[str, str] = _rows()[name]["sources"]
    return sources


def _near_misses(name: str, known: tuple[str, ...]) -> list[str]:
    by_folded = {each.casefold(): each for each in known}
    # The cutoff is low enough for a bare model name such as "h100" to reach its variants, which are much longer.
    return [by_folded[each] for each in difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.4)]


def _rows() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("tuner").joinpath("gpus.toml").read_text("utf-8"))


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "sources"}
