"""The Ray cluster that launches run on: a local one of our own, or one that is there already."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tuner.errors import ClusterUnavailable, InvalidInput

_KNOCK_S = 5.0
_OBJECT_STORE_BYTES = 100 * 2**20
# Ray turns both off in its next major version anyway, and says so on every start.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass(frozen=True, slots=True)
class RayCluster:
    """How to reach Ray.

    Args:
        address: Address of a running cluster; ``None`` starts a local one that ends with this process.
        local_gpus: Logical GPUs of a local one; ``None`` takes the machine's own.
    """

    address: str | None = None
    local_gpus: int | None = None

    @contextmanager
    def connected(self) -> Iterator[RayCluster]:
        """The cluster, for as long as the block lasts.

        Raises:
            ClusterUnavailable: Nothing answers at the address.
        """
        self.connect()
        try:
            yield self
        finally:
            self.disconnect()

    def connect(self) -> None:
        """Start or join the cluster.

        Raises:
            ClusterUnavailable: Nothing answers at the address.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if self.address is not None:
            _knock(self.address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray

            try:
                if self.address is None:
                    ray.init(
                        # By name: without it Ray joins whatever cluster it finds on the machine.
                        address="local",
                        num_gpus=self.local_gpus,
                        include_dashboard=False,
                        object_store_memory=_OBJECT_STORE_BYTES,
                        log_to_driver=False,
                        logging_level=logging.ERROR,
                    )
                else:
                    ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
                where = "start a local Ray cluster" if self.address is None else f"reach Ray at {self.address}"
                first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                raise ClusterUnavailable(f"cannot {where}: {first_line}") from None

    def gpus(self) -> int:
        """GPUs of all nodes that are alive, busy or not."""
        import ray

        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return int(resources.get("GPU", 0))

    def disconnect(self) -> None:
        """Leave the cluster; a local one ends."""
        import ray

        ray.shutdown()


def _knock(address: str) -> None:
    """See whether anything listens: Ray itself would try for minutes before it says that nothing does."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput.of("PARETUNE_RAY_ADDRESS", address, "must be HOST:PORT of a Ray head, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterUnavailable(f"cannot reach Ray at {address}: {error}") from None
