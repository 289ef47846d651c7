"""A calibration with what it was fitted on, so that it is never used on another GPU model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.physics.calibration import Calibration

_LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """What is saved of a calibration.

    Args:
        gpu: Name of the GPU model that it was fitted on.
        nodes: Nodes of the cluster that it was last fitted on.
        gpus_per_node: GPUs on each of them.
        intra_node_gb_s: Link bandwidth inside a node, 10^9 bytes per second.
        inter_node_gb_s: Network bandwidth between nodes, 10^9 bytes per second.
        fitted_to: What it was fitted to, in words; it says so where that was simulated or replayed.
        calibration: The calibration.
    """

    gpu: str
    nodes: int
    gpus_per_node: int
    intra_node_gb_s: float
    inter_node_gb_s: float
    fitted_to: str
    calibration: Calibration

    @classmethod
    def of(cls, calibration: Calibration, cluster: Cluster, fitted_to: str) -> Self:
        """Of a calibration, the cluster that it was fitted on, and what it was fitted to."""
        return cls(
            gpu=cluster.gpu.name,
            nodes=cluster.nodes,
            gpus_per_node=cluster.gpus_per_node,
            intra_node_gb_s=cluster.intra_node_gb_s,
            inter_node_gb_s=cluster.inter_node_gb_s,
            fitted_to=fitted_to,
            calibration=calibration,
        )

    def to_document(self) -> dict[str, Any]:
        """As JSON data."""
        facts = {name: getattr(self, name) for name in _FACTS}
        return facts | {"calibration": self.calibration.to_document()}

    @classmethod
    def from_document(cls, document: Any, field: str) -> Self:
        """The inverse of :meth:`to_document`.

        Args:
            document: JSON data.
            field: What to call it in errors.

        Raises:
            InvalidInput: Anything that :meth:`to_document` does not write.
        """
        invalid = "must be a calibration as saved by paretune predict --save-calibration"
        if not isinstance(document, dict) or set(document) != {*_FACTS, "calibration"}:
            raise InvalidInput.of(field, "document", invalid)
        for name, kind in _FACTS.items():
            value = document[name]
            if isinstance(value, bool) or not isinstance(value, kind):
                raise InvalidInput.of(f"{field}.{name}", value, invalid)
            if isinstance(value, str) and not (value.isprintable() and len(value) <= _LONGEST_TEXT):
                raise InvalidInput.of(f"{field}.{name}", value, f"must be printable, in {_LONGEST_TEXT} characters")
            if not isinstance(value, str) and not 0 < value < math.inf:
                raise InvalidInput.of(f"{field}.{name}", value, "must be above 0")
        try:
            calibration = Calibration.from_document(document["calibration"])
        except InvalidInput as error:
            raise InvalidInput.of(f"{field}.calibration", "document", invalid + f" ({error})") from None
        return cls(**{name: document[name] for name in _FACTS}, calibration=calibration)

    def check_gpu(self, cluster: Cluster, field: str) -> None:
        """Refuse another GPU model than the one that it was fitted on.

        Args:
            cluster: Where it is to be used.
            field: What to call it in errors.

        Raises:
            InvalidInput: The cluster has another GPU model.
        """
        if self.gpu != cluster.gpu.name:
            raise InvalidInput.of(f"{field}.gpu", self.gpu, f"must be the cluster's GPU model, {cluster.gpu.name}")

    def notes(self, cluster: Cluster) -> tuple[str, ...]:
        """What a person should know about its use on this cluster: how it differs from the one it was fitted on."""
        notes = []
        if (self.nodes, self.gpus_per_node) != (cluster.nodes, cluster.gpus_per_node):
            before, now = (f"{each.nodes} x {each.gpus_per_node} GPUs" for each in (self, cluster))
            notes.append(f"the calibration was fitted on {before}, and is used for {now}")
        for name, label in (("intra_node_gb_s", "inside a node"), ("inter_node_gb_s", "between nodes")):
            fitted, used = getattr(self, name), getattr(cluster, name)
            if not math.isclose(fitted, used, rel_tol=1e-6):
                notes.append(f"the calibration was fitted on links {label} of {fitted:g} GB/s, and these have {used:g}")
        return tuple(notes)


_FACTS: dict[str, Any] = {
    "gpu": str,
    "nodes": int,
    "gpus_per_node": int,
    "intra_node_gb_s": int | float,
    "inter_node_gb_s": int | float,
    "fitted_to": str,
}
