"""The study file: one schema for the command line and for ``POST /v1/studies``."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tuner.errors import FieldProblem, InvalidInput
from tuner.hardware import Cluster, GpuSpec, find_gpu
from tuner.job import ModelShape, Precision, Recompute, TrainingJob, model_from_huggingface
from tuner.layout import LayoutAxes, LayoutRules

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Degree = Annotated[int, Field(ge=1, le=1_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e15)]
# Nobody reads more, and a hostile document can hold millions.
_SHOWN_PROBLEMS = 50
_DEEPEST = 20
Section = TypeVar("Section", bound=BaseModel)
# Bounds that no hardware comes near, so that arithmetic on the numbers stays finite.
Fact = Annotated[float, Field(ge=1e-3, le=1e9)]
Axis = Literal["auto"] | Annotated[list[Degree], Field(min_length=1, max_length=64)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelSection(_Section):
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


class JobSection(_Section):
    """What is trained."""

    model: ModelSection
    sequence_length: Count
    global_batch_size: Count
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 1
    recompute: Literal["none", "selective", "full"] = "none"

    @field_validator("model", mode="before")
    @classmethod
    def _read_huggingface_config(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("must be the model's shape or its config.json; a path is read by the command line only")
        if isinstance(value, dict) and "model_type" in value:
            return asdict(model_from_huggingface(value))
        return value


class GpuSection(_Section):
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


class ClusterSection(_Section):
    """What it runs on; every launch takes all of these GPUs."""

    gpu: str | GpuSection
    nodes: Degree = 1
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)]
    intra_node_gb_s: Fact | None = None
    inter_node_gb_s: Fact | None = None


class FrequencyRange(_Section):
    """Clocks from ``min`` to ``max``, ``step`` apart."""

    min: Degree
    max: Degree
    step: Degree


class SpaceSection(_Section):
    """Values to consider on each axis, and the rules that not every trainer has."""

    tp: Axis = "auto"
    pp: Axis = "auto"
    microbatch: Axis = "auto"
    frequency_mhz: Literal["auto"] | Annotated[list[Degree], Field(max_length=1000)] | FrequencyRange = "auto"
    tp_within_node: bool = True
    microbatches_fill_pipeline: bool = True
    kv_heads_divisible: bool = True
    pad_vocabulary_to: Count = 128


class BaselineSection(_Section):
    """The layout that the user runs today."""

    dp: Degree
    tp: Degree
    pp: Degree
    microbatch: Degree


class SimulatedRunnerSection(_Section):
    """Trials are simulated."""

    kind: Literal["simulated"]
    seed: Annotated[int, Field(ge=0)] = 0


class ReplayRunnerSection(_Section):
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


class SamplerSection(_Section):
    """How the next configuration is chosen."""

    kind: Literal["tpe", "nsga2", "gp", "random", "grid"] = "tpe"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class BudgetSection(_Section):
    """When to stop; whichever comes first."""

    trials: Annotated[int, Field(ge=1, le=100_000)] = 40
    gpu_hours: Positive | None = None
    wall_time_s: Positive | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    min_growth: Annotated[float, Field(ge=0, lt=1)] = 0.01


class LimitsSection(_Section):
    """What is not worth measuring, and never stands on the frontier."""

    average_power_w: Positive | None = None
    slowdown: Positive | None = 0.5


class JobFile(_Section):
    """A job file: the job and its cluster alone."""

    job: JobSection
    cluster: ClusterSection

    def training_job(self) -> TrainingJob:
        """The job as the pure code knows it."""
        return TrainingJob(
            model=ModelShape(**self.job.model.model_dump()),
            sequence_length=self.job.sequence_length,
            global_batch_size=self.job.global_batch_size,
            precision=Precision(self.job.precision),
            zero_stage=self.job.zero_stage,
            recompute=Recompute(self.job.recompute),
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
    space: SpaceSection = SpaceSection()
    baseline: BaselineSection | None = None
    runner: Annotated[SimulatedRunnerSection | ReplayRunnerSection, Field(discriminator="kind")]
    sampler: SamplerSection = SamplerSection()
    budget: BudgetSection = BudgetSection()
    limits: LimitsSection = LimitsSection()
    parallel_launches: Annotated[int, Field(ge=1, le=64)] = 1

    def axes(self) -> LayoutAxes:
        """Values to consider on the layout axes."""
        values = {
            name: None if (axis := getattr(self.space, name)) == "auto" else tuple(sorted(set(axis)))
            for name in ("tp", "pp", "microbatch")
        }
        return LayoutAxes(**values)

    def rules(self) -> LayoutRules:
        """Rules beyond divisibility."""
        return LayoutRules(
            tp_within_node=self.space.tp_within_node,
            microbatches_fill_pipeline=self.space.microbatches_fill_pipeline,
            kv_heads_divisible=self.space.kv_heads_divisible,
            pad_vocabulary_to=self.space.pad_vocabulary_to,
        )

    def document(self) -> dict[str, Any]:
        """The spec with every default filled in, as stored and shown."""
        return self.model_dump(mode="json")

    @property
    def digest(self) -> str:
        """Hash of everything but the name: two specs with the same digest describe the same study."""
        document = self.document()
        del document["name"]
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


def parse_as(schema: type[Section], data: Any) -> Section:
    """Validate data against a schema, with errors in our one shape."""
    if not isinstance(data, dict):
        raise InvalidInput.of("document", data, f"must be a mapping with the fields {_names(schema)}")
    _check_text(data)
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(*field_problems(error, schema)) from None
    except InvalidInput as error:
        # The pure code names fields as it knows them: a model's fields stand under ``job`` in the document.
        raise InvalidInput(
            *(
                FieldProblem(f"job.{p.field}" if p.field.startswith("model.") else p.field, p.value, p.reason)
                for p in error.problems
            )
        ) from None


def _check_text(value: Any, path: str = "", depth: int = 0) -> None:
    """Refuse text that no encoding can carry, which JSON can spell, and a document that holds itself, as YAML's can."""
    if depth > _DEEPEST:
        raise InvalidInput.of(path[:60], "...", "is nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_text(str(key), f"{path}.(a key)" if path else "(a key)", depth + 1)
            _check_text(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_text(inner, f"{path}.{index}", depth + 1)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput.of(path, value, "must be text that UTF-8 can encode") from None


def field_problems(error: ValidationError, schema: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """Translate pydantic's errors: dotted path, the value given, what is valid."""
    problems: dict[str, tuple[Any, str]] = {}
    for detail in error.errors(include_url=False, include_context=True)[:_SHOWN_PROBLEMS]:
        path = [str(part) for part in detail["loc"] if not _is_tag(part)]
        reason = detail["msg"].removeprefix("Value error, ").replace("Input should", "must").rstrip(".")
        reason = re.sub(r"be a valid dictionary( or .*)?$", "be a mapping", reason)
        value = detail["input"]
        if detail["type"] == "missing":
            value, reason = None, "is required"
        elif detail["type"] == "extra_forbidden":
            reason = f"is not a known field; valid: {_names(_schema_at(schema, path[:-1]))}"
        elif detail["type"] == "string_pattern_mismatch":
            reason = "must be 1 to 100 letters, digits, '.', '_' or '-', starting with a letter or digit"
        elif detail["type"] == "union_tag_invalid":
            reason = f"kind must be one of {detail['ctx']['expected_tags']}"
        elif detail["type"] == "union_tag_not_found":
            value, reason = None, "kind is required"
        field = ".".join(path) or "document"
        known = problems.get(field)
        problems[field] = (value, reason if known is None else f"{known[1]}, or {reason.removeprefix('must ')}")
    # A union reports one error a branch: where the branch that was meant is known, its own fields say more.
    return tuple(
        FieldProblem(field, value, reason)
        for field, (value, reason) in problems.items()
        if not any(other.startswith(f"{field}.") for other in problems)
    )


_TAGS = frozenset({"simulated", "replay", "str", "GpuSection", "FrequencyRange"})


def _is_tag(part: Any) -> bool:
    """Whether a path element is pydantic's name for a branch of a union, which no user wrote."""
    return isinstance(part, str) and (part in _TAGS or part.startswith(("literal[", "constrained-", "list[")))


def _schema_at(schema: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for name in path:
        field = schema.model_fields.get(name)
        annotation = field.annotation if field else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        schema = next((c for c in inner if isinstance(c, type) and issubclass(c, BaseModel)), schema)
    return schema


def _names(schema: type[BaseModel]) -> str:
    return ", ".join(schema.model_fields)
