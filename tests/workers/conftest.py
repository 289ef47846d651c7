from __future__ import annotations

from collections.abc import Iterator

import pytest

from workers.ray_cluster import RayCluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A real local Ray with eight logical GPUs, shared by the tests of a session."""
    with RayCluster(address=None, local_gpus=8).connected() as cluster:
        yield cluster
