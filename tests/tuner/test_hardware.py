from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from itertools import pairwise
from typing import Any

import pytest

from tuner.errors import InvalidInput
from tuner.hardware import Cluster, GpuSpec, find_gpu, gpu_catalogue, gpu_sources

NAMES = (
    "V100-SXM2-32GB",
    "A40",
    "L40S",
    "A100-PCIE-40GB",
    "A100-PCIE-80GB",
    "A100-SXM4-40GB",
    "A100-SXM4-80GB",
    "H100-PCIE-80GB",
    "H100-SXM5-80GB",
    "H200-SXM5-141GB",
    "B200-SXM-180GB",
    "MI300X-192GB",
)
FACTS = tuple(field.name for field in fields(GpuSpec) if field.name != "name")
NUMBERS = tuple(fact for fact in FACTS if fact not in ("memory_gib", "link", "energy_counter"))


def test_the_catalogue_holds_these_gpus_in_this_order() -> None:
    assert tuple(gpu_catalogue()) == NAMES
    assert all(spec.name == name for name, spec in gpu_catalogue().items())


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_a_row_has_a_source_and_no_source_is_left_over(name: str) -> None:
    sources = gpu_sources(name)
    assert set(sources) == set(FACTS)
    assert all(len(text.split()) >= 4 for text in sources.values()), "a source says where and what"


@pytest.mark.parametrize("fact", NUMBERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_source_states_the_very_number_it_stands_for(name: str, fact: str) -> None:
    stated = re.findall(r"\d+(?:\.\d+)?", gpu_sources(name)[fact])
    assert float(getattr(find_gpu(name), fact)) in map(float, stated)


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_what_the_driver_reports_and_never_more(name: str) -> None:
    match = re.search(r"(\d+) MiB", gpu_sources(name)["memory_gib"])
    assert match is not None
    reported_gib = int(match[1]) / 1024
    assert reported_gib - 0.1 < find_gpu(name).memory_gib <= reported_gib


@pytest.mark.parametrize("name", NAMES)
def test_the_types_in_the_file_are_those_of_the_spec(name: str) -> None:
    for field in fields(GpuSpec):
        assert type(getattr(find_gpu(name), field.name)).__name__ == field.type, field.name


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_physically_plausible(name: str) -> None:
    gpu = find_gpu(name)
    assert gpu.peak_fp32_tflops <= gpu.peak_bf16_tflops / 2 * 1.02, "fp32 and TF32 run at half the rate or less"
    assert 0.05 < gpu.idle_power_w / gpu.power_limit_w < 0.2
    assert gpu.network_gb_s < gpu.link_gb_s < gpu.memory_bandwidth_gb_s


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("V100-SXM2-32GB", {"peak_bf16_tflops": 125, "max_clock_mhz": 1530, "min_clock_mhz": 135, "link_gb_s": 150}),
        ("A100-SXM4-80GB", {"peak_bf16_tflops": 312, "max_clock_mhz": 1410, "min_clock_mhz": 210, "link_gb_s": 300}),
        ("H100-SXM5-80GB", {"peak_bf16_tflops": 989.4, "memory_gib": 79.6, "power_limit_w": 700, "link_gb_s": 450}),
        ("B200-SXM-180GB", {"peak_bf16_tflops": 2250, "max_clock_mhz": 1965, "power_limit_w": 1000, "link_gb_s": 900}),
        ("MI300X-192GB", {"peak_bf16_tflops": 1307.4, "max_clock_mhz": 2100, "power_limit_w": 750, "link_gb_s": 448}),
    ],
)
def test_well_known_numbers_are_those_of_the_data_sheets(name: str, expected: dict[str, float]) -> None:
    facts = asdict(find_gpu(name))
    assert {field: facts[field] for field in expected} == expected


@pytest.mark.parametrize("name", NAMES)
def test_clocks_run_down_from_the_highest_to_the_lowest_in_equal_steps(name: str) -> None:
    gpu = find_gpu(name)
    clocks = gpu.clocks_mhz
    assert clocks[0] == gpu.max_clock_mhz
    assert clocks[-1] == gpu.min_clock_mhz
    assert {high - low for high, low in pairwise(clocks)} == {gpu.clock_step_mhz}


def test_the_lowest_clock_is_left_out_where_the_step_does_not_reach_it() -> None:
    gpu = replace(find_gpu("A40"), min_clock_mhz=1000, max_clock_mhz=1031, clock_step_mhz=15)
    assert gpu.clocks_mhz == (1031, 1016, 1001)


def test_an_unknown_gpu_is_refused_with_every_valid_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        find_gpu("zzz")
    assert str(caught.value) == f"cluster.gpu: 'zzz': must be one of {', '.join(NAMES)}, or an inline entry"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("H100", {"H100-SXM5-80GB", "H100-PCIE-80GB"}),
        ("h200-sxm5-141gb", {"H200-SXM5-141GB"}),
        ("MI300", {"MI300X-192GB"}),
        ("NVIDIA H100 80GB HBM3", {"H100-SXM5-80GB", "H100-PCIE-80GB"}),
        ("L40", {"L40S"}),
    ],
)
def test_a_near_miss_is_answered_with_the_names_close_to_it(wrong: str, meant: set[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_gpu(wrong)
    listed, _, hint = str(caught.value).partition(" (did you mean ")
    assert all(name in listed for name in NAMES)
    assert meant <= set(hint.removesuffix("?)").split(" or "))


def test_sources_of_an_unknown_gpu_are_refused_like_the_gpu_itself() -> None:
    with pytest.raises(InvalidInput, match="must be one of V100-SXM2-32GB"):
        gpu_sources("H1000")


@pytest.mark.parametrize("fact", ["memory_gib", "peak_bf16_tflops", "power_limit_w", "clock_step_mhz", "network_gb_s"])
def test_a_number_that_is_not_above_zero_is_refused_by_its_field(fact: str) -> None:
    wrong: dict[str, Any] = {fact: 0}
    with pytest.raises(InvalidInput, match=rf"cluster\.gpu\.{fact}: 0: must be above 0"):
        replace(find_gpu("A40"), **wrong)


def test_not_a_number_is_refused_too() -> None:
    with pytest.raises(InvalidInput, match="must be above 0"):
        replace(find_gpu("A40"), memory_gib=float("nan"))


def test_a_lowest_clock_above_the_highest_is_refused_naming_both() -> None:
    with pytest.raises(InvalidInput, match=r"min_clock_mhz: 1800: must not exceed max_clock_mhz = 1740"):
        replace(find_gpu("A40"), min_clock_mhz=1800)


def test_the_world_of_a_cluster_is_all_gpus_of_all_nodes() -> None:
    cluster = Cluster(gpu=find_gpu("A40"), nodes=3, gpus_per_node=4, intra_node_gb_s=31.5, inter_node_gb_s=12.5)
    assert cluster.world_size == 12
