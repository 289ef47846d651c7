"""The study file: one schema for the command line and for ``POST /v1/studies``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tuner.document import parse_as
from tuner.hardware import Cluster, GpuSpec, find_gpu
from tuner.job import ModelShape, PipelineSchedule, Precision, Recompute, TrainingJob, model_from_huggingface
from tuner.layout import LayoutAxes, LayoutRules

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Degree = Annotated[int, Field(ge=1, le=1_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e15)]
# Bounds that no hardware comes near, so that arithmetic on the numbers stays finite.
Fact = Annotated[float, Field(ge=1e-3, le=1e9)]
Axis = Literal["auto"] | Annotated[list[Degree], Field(min_length=1, max_length=64)]
# What every study meant before these could be written; left out of the digest, they leave older digests as they are.
_LATER_JOB_FIELDS: dict[str, Any] = {"pipeline_schedule": "1f1b", "sequence_parallel": True}


class DocumentSection(BaseModel):
    """Part of a document: no unknown field, no value of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelSection(DocumentSection):
    """Shape of the model; a Hugging Face ``config.json`` is turned into one when the file is read."""

    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    ffn: Count
    vocab: Count
    gated_mlp: bool = True
    tied_embeddings: bool = False
    head_dim: Annotated[int, Field(ge=0)] = 0
    positions: Annotated[int, Field(ge=0)] = 0


class JobSection(DocumentSection):
    """What is trained."""

    model: ModelSection
    sequence_length: Count
    global_batch_size: Count
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 1
    recompute: Literal["none", "selective", "full"] = "none"
    pipeline_schedule: Literal["1f1b", "gpipe"] = "1f1b"
    sequence_parallel: bool = True

    @field_validator("model", mode="before")
    @classmethod
    def _read_huggingface_config(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("must be the model's shape or its config.json; a path is read by the command line only")
        if isinstance(value, dict) and "model_type" in value:
            return asdict(model_from_huggingface(value))
        return value


class GpuSection(DocumentSection):
    """A GPU that the catalogue does not hold; the fields are those of a catalogue entry."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    memory_gib: Fact
    memory_bandwidth_gb_s: Fact
    peak_bf16_tflops: Fact
    peak_fp32_tflops: Fact
    power_limit_w: Fact
    idle_power_w: Fact
    min_clock_mhz: Degree
    max_clock_mhz: Annotated[int, Field(ge=1, le=10_000)]
    clock_step_mhz: Degree
    link: str = "inline"
    link_gb_s: Fact
    network_gb_s: Fact
    energy_counter: bool = True


class ClusterSection(DocumentSection):
    """What it runs on; every launch takes all of these GPUs."""

    gpu: str | GpuSection
    nodes: Degree = 1
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)]
    intra_node_gb_s: Fact | None = None
    inter_node_gb_s: Fact | None = None


class FrequencyRange(DocumentSection):
    """Clocks from ``min`` to ``max``, ``step`` apart."""

    min: Degree
    max: Degree
    step: Degree


class SpaceSection(DocumentSection):
    """Values to consider on each axis, and the rules that not every trainer has."""

    tp: Axis = "auto"
    pp: Axis = "auto"
    microbatch: Axis = "auto"
    frequency_mhz: Literal["auto"] | Annotated[list[Degree], Field(max_length=1000)] | FrequencyRange = "auto"
    tp_within_node: bool = True
    microbatches_fill_pipeline: bool = True
    kv_heads_divisible: bool = True
    pad_vocabulary_to: Count = 128

    def axes(self) -> LayoutAxes:
        """Values to consider on the layout axes."""
        values = {
            name: None if (axis := getattr(self, name)) == "auto" else tuple(sorted(set(axis)))
            for name in ("tp", "pp", "microbatch")
        }
        return LayoutAxes(**values)

    def rules(self) -> LayoutRules:
        """Rules beyond divisibility."""
        return LayoutRules(
            tp_within_node=self.tp_within_node,
            microbatches_fill_pipeline=self.microbatches_fill_pipeline,
            kv_heads_divisible=self.kv_heads_divisible,
            pad_vocabulary_to=self.pad_vocabulary_to,
        )


class BaselineSection(DocumentSection):
    """The layout that the user runs today."""

    dp: Degree
    tp: Degree
    pp: Degree
    microbatch: Degree


class SimulatedRunnerSection(DocumentSection):
    """Trials are simulated."""

    kind: Literal["simulated"]
    seed: Annotated[int, Field(ge=0)] = 0


class ReplayRunnerSection(DocumentSection):
    """Trials are answered from a measured table, whose rows are the space.

    In a study file ``table`` is a path beside the file; the command line reads it into ``csv``.
    """

    kind: Literal["replay"]
    csv: Annotated[str, Field(min_length=1, max_length=20_000_000)]

    @model_validator(mode="before")
    @classmethod
    def _refuse_a_path(cls, value: Any) -> Any:
        if isinstance(value, dict) and "table" in value:
            raise ValueError("table is a path, which only the command line reads; send the table's text as csv")
        return value


class SamplerSection(DocumentSection):
    """How the next configuration is chosen."""

    kind: Literal["tpe", "nsga2", "gp", "random", "grid"] = "tpe"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class BudgetSection(DocumentSection):
    """When to stop; whichever comes first."""

    trials: Annotated[int, Field(ge=1, le=100_000)] = 40
    gpu_hours: Positive | None = None
    wall_time_s: Positive | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    min_growth: Annotated[float, Field(ge=0, lt=1)] = 0.01


class LimitsSection(DocumentSection):
    """What is not worth measuring, and never stands on the frontier."""

    average_power_w: Positive | None = None
    slowdown: Positive | None = 0.5


class JobFile(DocumentSection):
    """A job file: the job, its cluster, and the space where not all of it is of interest."""

    job: JobSection
    cluster: ClusterSection
    space: SpaceSection = SpaceSection()

    def training_job(self) -> TrainingJob:
        """The job as the pure code knows it."""
        return TrainingJob(
            model=ModelShape(**self.job.model.model_dump()),
            sequence_length=self.job.sequence_length,
            global_batch_size=self.job.global_batch_size,
            precision=Precision(self.job.precision),
            zero_stage=self.job.zero_stage,
            recompute=Recompute(self.job.recompute),
            pipeline_schedule=PipelineSchedule(self.job.pipeline_schedule),
            sequence_parallel=self.job.sequence_parallel,
        )

    def hardware(self) -> Cluster:
        """The cluster as the pure code knows it, links filled in from the catalogue."""
        section = self.cluster
        gpu = find_gpu(section.gpu) if isinstance(section.gpu, str) else GpuSpec(**section.gpu.model_dump())
        return Cluster(
            gpu=gpu,
            nodes=section.nodes,
            gpus_per_node=section.gpus_per_node,
            intra_node_gb_s=section.intra_node_gb_s or gpu.link_gb_s,
            inter_node_gb_s=section.inter_node_gb_s or gpu.network_gb_s,
        )


class StudySpec(JobFile):
    """A study: the job, the cluster, what to try, how to run it, and when to stop."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    baseline: BaselineSection | None = None
    runner: Annotated[SimulatedRunnerSection | ReplayRunnerSection, Field(discriminator="kind")]
    sampler: SamplerSection = SamplerSection()
    budget: BudgetSection = BudgetSection()
    limits: LimitsSection = LimitsSection()
    parallel_launches: Annotated[int, Field(ge=1, le=64)] = 1

    def document(self) -> dict[str, Any]:
        """The spec with every default filled in, as stored and shown."""
        return self.model_dump(mode="json")

    @property
    def digest(self) -> str:
        """Hash of everything but the name: two specs with the same digest describe the same study."""
        document = self.document()
        del document["name"]
        for name, before in _LATER_JOB_FIELDS.items():
            if document["job"][name] == before:
                del document["job"][name]
        return fingerprint(document)

    @classmethod
    def parse(cls, data: Any) -> Self:
        """Check the shape of a study document. :func:`tuner.space.build_space` checks that it can be run.

        Raises:
            InvalidInput: Each problem with its field, the value given and what is valid.
        """
        return parse_as(cls, data)


def fingerprint(document: Any) -> str:
    """A short stable hash of JSON data."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]
