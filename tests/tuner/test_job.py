from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidInput
from tuner.job import ModelShape, TrainingJob, model_from_huggingface

MODELS = Path(__file__).parents[2] / "examples" / "models"

# Published parameter counts. "Hub" is the total in the safetensors header that a Hugging Face model page shows.
PUBLISHED = {
    "llama-2-7b": (6_738_415_616, "Hub, meta-llama/Llama-2-7b-hf"),
    "llama-2-13b": (13_015_864_320, "Hub, meta-llama/Llama-2-13b-hf"),
    "llama-2-70b": (68_976_648_192, "Hub, meta-llama/Llama-2-70b-hf"),
    "llama-3.1-8b": (8_030_261_248, "Hub, meta-llama/Llama-3.1-8B"),
    "llama-3.1-70b": (70_553_706_496, "Hub, meta-llama/Llama-3.1-70B"),
    "mistral-7b-v0.1": (7_241_732_096, "Hub, mistralai/Mistral-7B-v0.1"),
    "qwen2.5-7b": (7_615_616_512, "Hub, Qwen/Qwen2.5-7B"),
    "qwen3-8b": (8_190_735_360, "Hub, Qwen/Qwen3-8B"),
    "gpt2-xl": (1_557_611_200, "OpenAI's gpt-2 1558M checkpoint; GPT2LMHeadModel.num_parameters()"),
    "gpt2-small": (124_439_808, "OpenAI's gpt-2 124M checkpoint; GPT2LMHeadModel.num_parameters()"),
    "gpt-neox-20b": (20_554_567_680, "Black et al. 2022, arXiv 2204.06745, table 1"),
}

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}


def example(name: str) -> ModelShape:
    return model_from_huggingface(json.loads((MODELS / f"{name}.json").read_text("utf-8")))


def test_the_table_of_published_counts_covers_every_example() -> None:
    assert {path.stem for path in MODELS.glob("*.json")} == set(PUBLISHED)


@pytest.mark.parametrize(("name", "count"), [(name, count) for name, (count, _) in PUBLISHED.items()])
def test_an_example_has_the_published_number_of_parameters_within_half_a_percent(name: str, count: int) -> None:
    assert example(name).parameters == pytest.approx(count, rel=0.005)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith(("llama", "mistral"))])
def test_a_model_without_biases_is_counted_exactly(name: str) -> None:
    assert example(name).parameters == PUBLISHED[name][0]


def test_grouped_query_attention_counts_its_few_kv_heads() -> None:
    grouped = model_from_huggingface({**LLAMA, "num_key_value_heads": 8})
    full = model_from_huggingface({**LLAMA, "num_key_value_heads": 32})
    assert (grouped.heads, grouped.kv_heads) == (32, 8)
    assert full.parameters - grouped.parameters == 32 * 2 * 4096 * (32 - 8) * 128


def test_an_explicit_head_dim_need_not_be_hidden_over_heads() -> None:
    shape = model_from_huggingface({**LLAMA, "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128})
    assert (shape.hidden // shape.heads, shape.head_dim) == (64, 128)


@pytest.mark.parametrize(
    ("kind", "kv_heads", "head_dim"),
    [("llama", 64, 64), ("mistral", 8, 64), ("qwen2", 32, 64), ("qwen3", 32, 128)],
)
def test_fields_left_out_take_the_default_of_the_transformers_class(kind: str, kv_heads: int, head_dim: int) -> None:
    shape = model_from_huggingface({**LLAMA, "model_type": kind, "num_attention_heads": 64})
    assert (shape.kv_heads, shape.head_dim, shape.tied_embeddings) == (kv_heads, head_dim, False)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_null_kv_heads_mean_as_many_as_query_heads(kind: str) -> None:
    config = {**LLAMA, "model_type": kind, "num_attention_heads": 64, "num_key_value_heads": None}
    assert model_from_huggingface(config).kv_heads == 64


def test_gpt_neox_knows_neither_kv_heads_nor_a_head_dim() -> None:
    shape = model_from_huggingface({**LLAMA, "model_type": "gpt_neox", "num_key_value_heads": 4, "head_dim": 7})
    assert (shape.kv_heads, shape.head_dim, shape.gated_mlp, shape.positions) == (32, 128, False, 0)


@pytest.mark.parametrize("config", [GPT2, {**GPT2, "n_inner": None}])
def test_gpt2_without_n_inner_has_an_mlp_four_times_as_wide(config: dict[str, Any]) -> None:
    assert model_from_huggingface(config).ffn == 4 * 768


def test_gpt2_with_n_inner_uses_it() -> None:
    assert model_from_huggingface({**GPT2, "n_inner": 1000}).ffn == 1000


def test_gpt2_ties_its_embeddings_and_learns_its_positions() -> None:
    shape = model_from_huggingface(GPT2)
    assert (shape.tied_embeddings, shape.positions, shape.gated_mlp) == (True, 1024, False)
    untied = model_from_huggingface({**GPT2, "tie_word_embeddings": False})
    assert untied.parameters - shape.parameters == 50257 * 768


def test_tied_embeddings_are_counted_once() -> None:
    tied = model_from_huggingface({**LLAMA, "tie_word_embeddings": True})
    assert model_from_huggingface(LLAMA).parameters - tied.parameters == 32000 * 4096


@pytest.mark.parametrize("kind", ["mixtral", "t5", "", None, 5, ["llama"]])
def test_another_architecture_is_refused_with_the_known_ones(kind: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        model_from_huggingface({**LLAMA, "model_type": kind})
    shown = "missing" if kind is None else repr(kind)
    known = "gpt2, gpt_neox, llama, mistral, qwen2, qwen3"
    assert str(caught.value) == f"model.model_type: {shown}: must be one of {known}"


@pytest.mark.parametrize("base", [LLAMA, {**LLAMA, "model_type": "gpt_neox"}, GPT2])
def test_each_size_is_required_and_named_when_missing(base: dict[str, Any]) -> None:
    for field in set(base) - {"model_type"}:
        config = {key: value for key, value in base.items() if key != field}
        with pytest.raises(InvalidInput, match=rf"^model\.{field}: missing: must be a whole number of at least 1$"):
            model_from_huggingface(config)


@pytest.mark.parametrize("value", [True, "32", 32.0, 0, -1, [32]])
@pytest.mark.parametrize("field", ["num_hidden_layers", "num_key_value_heads", "head_dim"])
def test_a_size_that_is_not_a_positive_whole_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^model\.{field}: .*: must be a whole number of at least 1$"):
        model_from_huggingface({**LLAMA, field: value})


@pytest.mark.parametrize("value", [1, 0, "false", None])
def test_a_flag_that_is_neither_true_nor_false_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^model\.tie_word_embeddings: .*: must be true or false$"):
        model_from_huggingface({**LLAMA, "tie_word_embeddings": value})


def test_heads_that_do_not_divide_hidden_need_a_head_dim() -> None:
    with pytest.raises(InvalidInput, match=r"model\.heads: 48: must divide hidden = 4096"):
        model_from_huggingface({**LLAMA, "num_attention_heads": 48})
    assert model_from_huggingface({**LLAMA, "num_attention_heads": 48, "head_dim": 80}).head_dim == 80


def test_kv_heads_that_do_not_divide_heads_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"model\.kv_heads: 5: must divide heads = 32"):
        model_from_huggingface({**LLAMA, "num_key_value_heads": 5})


def test_every_wrong_size_of_a_shape_is_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        ModelShape(layers=0, hidden=64, heads=4, kv_heads=4, ffn=-1, vocab=100, positions=-5)
    assert [problem.field for problem in caught.value.problems] == ["model.layers", "model.ffn", "model.positions"]


def test_tokens_per_step_are_sequences_times_their_length() -> None:
    job = TrainingJob(model=model_from_huggingface(LLAMA), sequence_length=4096, global_batch_size=128)
    assert job.tokens_per_step == 524_288


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    kv_heads = draw(st.integers(1, 8))
    heads = kv_heads * draw(st.integers(1, 8))
    head_dim = draw(st.integers(1, 128))
    return ModelShape(
        layers=draw(st.integers(1, 100)),
        hidden=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        ffn=draw(st.integers(1, 30_000)),
        vocab=draw(st.integers(1, 200_000)),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        head_dim=draw(st.sampled_from([0, head_dim, 64])),
        positions=draw(st.sampled_from([0, 1024])),
    )


def with_layers(shape: ModelShape, layers: int) -> ModelShape:
    names = ("hidden", "heads", "kv_heads", "ffn", "vocab", "gated_mlp", "tied_embeddings", "head_dim", "positions")
    return ModelShape(layers=layers, **{name: getattr(shape, name) for name in names})


@given(shape=shapes(), more=st.integers(1, 50))
def test_parameters_are_positive_and_grow_by_one_block_for_each_layer(shape: ModelShape, more: int) -> None:
    deeper = with_layers(shape, shape.layers + more)
    assert shape.parameters > shape.embedding_parameters > 0
    assert deeper.parameters - shape.parameters == more * shape.layer_parameters > 0


@given(shape=shapes())
def test_a_block_counts_its_matrices_one_by_one(shape: ModelShape) -> None:
    query = output = shape.hidden * shape.heads * shape.head_dim
    key = value = shape.hidden * shape.kv_heads * shape.head_dim
    mlp = [shape.hidden * shape.ffn] * (3 if shape.gated_mlp else 2)
    norms = [shape.hidden] * 2
    assert shape.layer_parameters == sum([query, key, value, output, *mlp, *norms])
