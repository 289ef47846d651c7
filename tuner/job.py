"""What is trained: the model's shape and the training job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner.errors import FieldProblem, InvalidInput


class Precision(StrEnum):
    """Number format of weights and activations in the forward and backward pass."""

    bf16 = "bf16"
    fp16 = "fp16"
    fp32 = "fp32"


class Recompute(StrEnum):
    """How much of the forward pass is computed again in the backward pass to save activation memory."""

    none = "none"
    selective = "selective"
    full = "full"


class PipelineSchedule(StrEnum):
    """Order of forward and backward passes on a pipeline's stages."""

    one_f_one_b = "1f1b"
    gpipe = "gpipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Shape of a dense decoder-only transformer.

    Args:
        layers: Number of transformer blocks.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads; fewer than ``heads`` with grouped-query attention.
        ffn: Width of the feed-forward layer.
        vocab: Rows of the token embedding.
        gated_mlp: Whether the MLP has a gate (three matrices, as in Llama) or not (two, as in GPT-2).
        tied_embeddings: Whether the output projection shares the token embedding's weights.
        head_dim: Width of one head; ``hidden / heads`` unless the model says otherwise.
        positions: Rows of a learned position embedding; 0 with rotary embeddings.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    head_dim: int = 0
    positions: int = 0

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
        problems = [
            FieldProblem(f"model.{name}", getattr(self, name), "must be a whole number of at least 1")
            for name in sizes
            if getattr(self, name) < 1
        ]
        problems += [
            FieldProblem(f"model.{name}", getattr(self, name), "must not be negative")
            for name in ("head_dim", "positions")
            if getattr(self, name) < 0
        ]
        if problems:
            raise InvalidInput(*problems)
        if self.head_dim == 0:
            if self.hidden % self.heads:
                raise InvalidInput.of(
                    "model.heads", self.heads, f"must divide hidden = {self.hidden}, or head_dim must be given"
                )
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        if self.heads % self.kv_heads:
            raise InvalidInput.of("model.kv_heads", self.kv_heads, f"must divide heads = {self.heads}")

    @property
    def layer_parameters(self) -> int:
        """Weights of one transformer block (matrices and norms; biases, under 0.1 %, are left out)."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        mlp = (3 if self.gated_mlp else 2) * self.hidden * self.ffn
        return attention + mlp + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token and position embeddings."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def parameters(self) -> int:
        """All weights of the model."""
        output = 0 if self.tied_embeddings else self.vocab * self.hidden
        return self.layers * self.layer_parameters + self.embedding_parameters + output + self.hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training job. The global batch never changes between trials: it is what makes them comparable.

    Args:
        model: Shape of the model.
        sequence_length: Tokens per sequence.
        global_batch_size: Sequences per optimizer step, over all data-parallel replicas.
        precision: Number format of the forward and backward pass.
        zero_stage: ZeRO stage: 0 none, 1 optimizer state, 2 and gradients, 3 and weights sharded over dp.
        recompute: Activation recomputation.
        pipeline_schedule: Order of the passes on a pipeline's stages.
        sequence_parallel: Whether tensor parallelism also splits norms and residuals, along the sequence.
    """

    model: ModelShape
    sequence_length: int
    global_batch_size: int
    precision: Precision = Precision.bf16
    zero_stage: int = 1
    recompute: Recompute = Recompute.none
    pipeline_schedule: PipelineSchedule = PipelineSchedule.one_f_one_b
    sequence_parallel: bool = True

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step trains on."""
        return self.sequence_length * self.global_batch_size


# What the classes fill in where a file leaves a field out; the same in transformers 4.57 and 5.24. A field that is not
# named here, or is null, follows from the others: as many kv heads as heads, and head_dim = hidden / heads.
_LLAMA_LIKE: dict[str, dict[str, int]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
}


def model_from_huggingface(config: dict[str, Any]) -> ModelShape:
    """Read the shape out of a Hugging Face ``config.json``.

    Field names follow ``transformers``' configuration classes LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config,
    GPT2Config and GPTNeoXConfig, with those classes' defaults for the fields that a config may leave out. The sizes of
    the model must be there: a default would silently describe another model.

    Args:
        config: The parsed file.

    Raises:
        InvalidInput: An architecture that is not a dense decoder of a known kind, or a missing field.
    """
    kind = config.get("model_type")
    if kind == "gpt2":
        return _gpt2(config)
    if kind == "gpt_neox":
        return _gpt_neox(config)
    if isinstance(kind, str) and kind in _LLAMA_LIKE:
        return _llama_like({**_LLAMA_LIKE[kind], **config})
    known = ", ".join(sorted({*_LLAMA_LIKE, "gpt2", "gpt_neox"}))
    raise InvalidInput.of("model.model_type", kind, f"must be one of {known}")


def _llama_like(config: dict[str, Any]) -> ModelShape:
    heads = _size(config, "num_attention_heads")
    return ModelShape(
        layers=_size(config, "num_hidden_layers"),
        hidden=_size(config, "hidden_size"),
        heads=heads,
        kv_heads=heads if config.get("num_key_value_heads") is None else _size(config, "num_key_value_heads"),
        ffn=_size(config, "intermediate_size"),
        vocab=_size(config, "vocab_size"),
        tied_embeddings=_flag(config, "tie_word_embeddings", default=False),
        head_dim=0 if config.get("head_dim") is None else _size(config, "head_dim"),
    )


def _gpt_neox(config: dict[str, Any]) -> ModelShape:
    heads = _size(config, "num_attention_heads")
    return ModelShape(
        layers=_size(config, "num_hidden_layers"),
        hidden=_size(config, "hidden_size"),
        heads=heads,
        kv_heads=heads,
        ffn=_size(config, "intermediate_size"),
        vocab=_size(config, "vocab_size"),
        gated_mlp=False,
        tied_embeddings=_flag(config, "tie_word_embeddings", default=False),
    )


def _gpt2(config: dict[str, Any]) -> ModelShape:
    hidden = _size(config, "n_embd")
    heads = _size(config, "n_head")
    return ModelShape(
        layers=_size(config, "n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden if config.get("n_inner") is None else _size(config, "n_inner"),
        vocab=_size(config, "vocab_size"),
        gated_mlp=False,
        tied_embeddings=_flag(config, "tie_word_embeddings", default=True),
        positions=_size(config, "n_positions"),
    )


def _size(config: dict[str, Any], field: str) -> int:
    value = config.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput.of(f"model.{field}", value, "must be a whole number of at least 1")
    return value


def _flag(config: dict[str, Any], field: str, *, default: bool) -> bool:
    value = config.get(field, default)
    if not isinstance(value, bool):
        raise InvalidInput.of(f"model.{field}", value, "must be true or false")
    return value
