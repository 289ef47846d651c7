from __future__ import annotations

import pytest

from tuner.errors import ClusterUnavailable, InvalidInput
from workers.ray_cluster import RayCluster


def test_an_address_where_nothing_listens_is_one_sentence_at_once() -> None:
    with pytest.raises(ClusterUnavailable, match=r"cannot reach Ray at 127\.0\.0\.1:1: .*refused"):
        RayCluster("127.0.0.1:1").connect()


@pytest.mark.parametrize("address", ["auto", "ray.example", "ray://", "host:", ":6379x", "host:99999999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises((InvalidInput, ClusterUnavailable)) as caught:
        RayCluster(address).connect()
    assert address in str(caught.value)


def test_a_local_cluster_has_the_logical_gpus_asked_for(ray_cluster: RayCluster) -> None:
    assert ray_cluster.gpus() == 8
