"""Small studies and trials for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuner.layout import Configuration, Layout
from tuner.spec import StudySpec
from tuner.states import TrialState
from tuner.trial import EnergySource, FailureKind, Measurement, Source

SHAPE = {"layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 8, "ffn": 4096, "vocab": 32000}


def document(**changes: Any) -> dict[str, Any]:
    """A small simulated study on one node of four GPUs."""
    base: dict[str, Any] = {
        "name": "small",
        "job": {"model": dict(SHAPE), "sequence_length": 1024, "global_batch_size": 16},
        "cluster": {"gpu": "A100-SXM4-80GB", "nodes": 1, "gpus_per_node": 4},
        "space": {"frequency_mhz": [1110, 1260]},
        "runner": {"kind": "simulated", "seed": 1},
        "budget": {"trials": 6},
    }
    return base | changes


def spec(**changes: Any) -> StudySpec:
    """The same, checked."""
    return StudySpec.parse(document(**changes))


def table(rows: str) -> str:
    """A measured table with the contract's header."""
    header = "dp,tp,pp,microbatch,frequency_mhz,launch_s,step_time_s,energy_j,peak_memory_gib,status\n"
    return header + rows


def measurement(step_time_s: float = 1.0, energy_j: float | None = 1000.0, **changes: Any) -> Measurement:
    """A measurement with these objectives."""
    values: dict[str, Any] = {
        "source": Source.simulated,
        "step_time_s": step_time_s,
        "step_time_sem_s": 0.0,
        "energy_j": energy_j,
        "energy_sem_j": None if energy_j is None else 0.0,
        "energy_source": None if energy_j is None else EnergySource.simulated,
        "tokens_per_s": 16384 / step_time_s,
        "peak_memory_gib": 10.0,
        "average_power_w": None if energy_j is None else energy_j / step_time_s,
        "steps": 10,
        "window_s": 10 * step_time_s,
        "duration_s": 13 * step_time_s,
        "requested_mhz": None,
    }
    return Measurement(**values | changes)


def configuration(
    tp: int = 1, pp: int = 1, microbatch: int = 1, mhz: int | None = None, gpus: int = 4
) -> Configuration:
    """A configuration of the small study."""
    return Configuration(Layout(gpus // (tp * pp), tp, pp, microbatch), mhz)


@dataclass
class KnownTrial:
    """A trial as the search sees it."""

    number: int
    configuration: Configuration
    state: TrialState = TrialState.complete
    failure_kind: FailureKind | None = None
    measurement: Measurement | None = None
    gpu_seconds: float = 0.0
    sampler_attrs: dict[str, Any] = field(default_factory=dict)
