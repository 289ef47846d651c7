"""The public measured tables of ``benchmarks/data``, as groups of trials that share one job and one cluster.

``benchmarks/data/README.md`` says where each table comes from. What the tables leave out is taken from the models'
public descriptions, and named where it is filled in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from benchmarks.groups import (
    GPUS_PER_NODE,
    Group,
    Row,
    Trial,
    cluster_of,
    configurations_of,
    grouped,
    layout_trial,
    measured_of,
)
from tuner.hardware import find_gpu
from tuner.job import ModelShape, Recompute, TrainingJob
from tuner.physics.configurations import RECOMPUTE

FITTED_GROUPS: Mapping[str, Callable[[int, str], bool]] = {
    "nanotron": lambda place, _name: place % 2 == 0,
    "vtrain": lambda place, _name: place % 3 == 0,
    "llm_foundry": lambda _place, _name: False,
    "perseus": lambda _place, _name: False,
}
"""By table, whether the default coefficients may be fitted on a group, given its place in the table and its name."""


def read_tables() -> dict[str, tuple[Group, ...]]:
    """Every table's groups, by the table's name, sorted by what tells them apart."""
    return {
        table: tuple(
            replace(group, fitted=FITTED_GROUPS[table](place, group.name)) for place, group in enumerate(read())
        )
        for table, read in (
            ("nanotron", read_nanotron),
            ("vtrain", read_vtrain),
            ("llm_foundry", read_llm_foundry),
            ("perseus", read_perseus),
        )
    }


def read_nanotron() -> tuple[Group, ...]:
    """nanotron pre-training on H100: one group for each model, number of GPUs and global batch.

    The models are Llama-shaped with as many key and value heads as heads. ``gbs`` is dp * microbatch * accumulation,
    which is what the step times go with. Rows that ran too slowly to be kept have no step time, and are left out.
    Failed rows that ask for more stages than layers are left out: nothing could ever run them.
    """

    def trial(row: Row) -> Trial:
        return layout_trial(
            row,
            find_gpu("H100-SXM5-80GB").max_clock_mhz,
            zero_stage=row["zero_stage"],
            recompute=Recompute.none,
            peak_memory_gib=row["peak_mem_gb"],
        )

    groups = []
    for (model, gpus, batch), rows in grouped(
        "nanotron_ultrascale_bench", lambda row: (row["model"], int(row["gpus"]), int(row["gbs"]))
    ):
        ran = [trial(row) for row in rows if row["status"] == "ok"]
        possible = [trial(row) for row in rows if row["status"] == "failed" and int(row["pp"]) <= int(row["n_layers"])]
        failures = {each.configuration: each for each in possible}
        failed = [failures[each] for each in sorted(failures.keys() - {each.configuration for each in ran})]
        if not ran and not failed:
            continue
        groups.append(
            Group(
                table="nanotron",
                name=f"{model}, {gpus} GPUs, batch {batch}",
                job=TrainingJob(
                    model=_nanotron_shape(rows[0]), sequence_length=int(rows[0]["seq"]), global_batch_size=batch
                ),
                cluster=cluster_of("H100-SXM5-80GB", gpus),
                measured=measured_of(ran),
                failed=configurations_of(failed),
            )
        )
    return tuple(groups)


def read_vtrain() -> tuple[Group, ...]:
    """Megatron-LM on A100: one group for each number of GPUs, model and global batch.

    GPT with a vocabulary of 51,200 (GPT-2's, padded) and learned positions; everything is recomputed, and nothing is
    split along the sequence.
    """
    groups = []
    for (kind, gpus, layers, hidden, batch), rows in grouped(
        "vtrain_a100_measured", lambda row: (row["set"], *(int(row[c]) for c in ("gpus", "n_layers", "hidden", "gbs")))
    ):
        sequence = int(rows[0]["seq"])
        cluster = cluster_of("A100-SXM4-80GB", gpus)
        heads = int(rows[0]["n_heads"])
        groups.append(
            Group(
                table="vtrain",
                name=f"{kind.replace('_', ' ')}, {gpus} GPUs, {layers} layers of {hidden}, batch {batch}",
                job=TrainingJob(
                    model=_gpt(layers=layers, hidden=hidden, heads=heads, vocab=51_200, positions=sequence),
                    sequence_length=sequence,
                    global_batch_size=batch,
                    zero_stage=0,
                    recompute=Recompute.full,
                    sequence_parallel=False,
                ),
                cluster=cluster,
                measured=measured_of(
                    layout_trial(row, cluster.gpu.max_clock_mhz, zero_stage=0, recompute=Recompute.full) for row in rows
                ),
            )
        )
    return tuple(groups)


def read_llm_foundry() -> tuple[Group, ...]:
    """MPT models under PyTorch FSDP on A100: one group for each model, GPU, number of GPUs, sequence and global batch.

    MPT has a vocabulary of 50,368, tied embeddings and ALiBi, hence no learned positions. The network of 1,600 Gb/s a
    node that the source names is the catalogue's. Rows that offload activations to the host are left out. Versions of
    the software, which are some 2 % apart, count as repeats.
    """
    groups = []
    for (model, gpu, gpus, sequence, batch), rows in grouped(
        "llm_foundry_mpt_throughput",
        lambda row: (row["model"], row["gpu"], *(int(row[c]) for c in ("gpus", "seq", "gbs"))),
    ):
        kept = [row for row in rows if row["act_cpu_offload"] == "0"]
        if not kept:
            continue
        cluster = cluster_of(gpu.replace("A100", "A100-SXM4"), gpus)
        layers, hidden, heads = (int(rows[0][c]) for c in ("n_layers", "d_model", "n_heads"))
        groups.append(
            Group(
                table="llm_foundry",
                name=f"MPT {model}, {gpus} {gpu}, sequence {sequence}, batch {batch}",
                job=TrainingJob(
                    model=_gpt(layers=layers, hidden=hidden, heads=heads, vocab=50_368, positions=0),
                    sequence_length=sequence,
                    global_batch_size=batch,
                    zero_stage=3,
                ),
                cluster=cluster,
                measured=measured_of(
                    layout_trial(
                        row,
                        cluster.gpu.max_clock_mhz,
                        zero_stage=row["zero_stage_equiv"],
                        recompute=Recompute.full if row["act_ckpt"] == "1" else Recompute.none,
                    )
                    for row in kept
                ),
            )
        )
    return tuple(groups)


# The profile is of passes alone. In a step of so many microbatches, optimizer and reduction count for nothing.
STAGE_MICROBATCHES = 1000

_PERSEUS_SHAPES = {
    # Brown et al. 2020, table 2.1, and the configuration of bigscience/bloom.
    "gpt3-175b": {"layers": 96, "hidden": 12_288, "heads": 96, "vocab": 50_257, "sequence": 2048},
    "bloom": {"layers": 70, "hidden": 14_336, "heads": 112, "vocab": 250_880, "sequence": 2048},
}


def read_perseus() -> tuple[Group, ...]:
    """Pipeline stages at each clock: one group for each model, stage and pass, and for both passes together.

    A stage is a job of its layers on the 8 GPUs of its tensor-parallel group, with microbatches of one sequence. Its
    units are layers, but for the last stage's last one, which is the output projection; the other stages have none,
    and so get the smallest vocabulary there is. The table's energies are per GPU. Stages that hold the same numbers as
    an earlier one were profiled once by the source, and count once.
    """
    groups: list[Group] = []
    seen = set()
    for (model, stage), rows in grouped("perseus_stage_profile_by_freq", lambda row: (row["model"], int(row["stage"]))):
        cluster = cluster_of(rows[0]["gpu"], int(rows[0]["tp"]))
        profile = {
            passes: tuple(_stage_trials(rows, passes, cluster.world_size))
            for passes in (("forward",), ("backward",), ("forward", "backward"))
        }
        numbers = (model, *(each.step_time_s for each in profile["forward",]))
        if numbers in seen:
            continue
        seen.add(numbers)
        groups += [
            Group(
                table="perseus",
                name=f"{model} on {rows[0]['gpu']}, stage {stage}, {' and '.join(passes)}",
                job=_stage_job(model, int(rows[0]["partition_units"]), stage == int(rows[0]["pp"]) - 1),
                cluster=cluster,
                measured=measured_of(trials),
            )
            for passes, trials in profile.items()
        ]
    return tuple(groups)


def _stage_trials(rows: Sequence[Row], passes: Sequence[str], gpus: int) -> Iterable[Trial]:
    at_clock: dict[float, list[Row]] = defaultdict(list)
    for row in rows:
        if row["instruction"] in passes:
            at_clock[float(row["frequency_mhz"])].append(row)
    for clock_mhz, parts in sorted(at_clock.items()):
        yield Trial(
            dp=1,
            tp=gpus,
            pp=1,
            microbatch=1,
            frequency_mhz=clock_mhz,
            zero_stage=0,
            recompute=RECOMPUTE.index(Recompute.none),
            step_time_s=STAGE_MICROBATCHES * sum(float(part["time_s"]) for part in parts),
            energy_j=STAGE_MICROBATCHES * gpus * sum(float(part["energy_j"]) for part in parts),
        )


def _stage_job(model: str, units: int, last: bool) -> TrainingJob:
    shape = _PERSEUS_SHAPES[model]
    return TrainingJob(
        model=_gpt(
            layers=units - 1 if last else units,
            hidden=shape["hidden"],
            heads=shape["heads"],
            vocab=shape["vocab"] if last else GPUS_PER_NODE,
            positions=0,
        ),
        sequence_length=shape["sequence"],
        global_batch_size=STAGE_MICROBATCHES,
        zero_stage=0,
        sequence_parallel=False,
    )


def _gpt(*, layers: int, hidden: int, heads: int, vocab: int, positions: int) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden,
        vocab=vocab,
        gated_mlp=False,
        tied_embeddings=True,
        positions=positions,
    )


def _nanotron_shape(row: Row) -> ModelShape:
    return ModelShape(
        layers=int(row["n_layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["n_heads"]),
        kv_heads=int(row["n_heads"]),
        ffn=int(row["ffn_hidden"]),
        vocab=int(row["vocab"]),
        tied_embeddings=row["tied_embeddings"] == "1",
    )
