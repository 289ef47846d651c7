"""What is known about a cluster: the coefficients, how sure they are, and what measured layouts had of their own."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.job import Recompute, TrainingJob
from tuner.physics.coefficients import COEFFICIENTS, MEGATRON, SPREADS, Coefficients, logarithms
from tuner.physics.configurations import Configurations, Floats

SLOPE_DEVIATION = 0.1
"""By how much a layout's step time and power may drift with the clock against the model, a logarithm over another."""

# Values that dp, tp, pp, microbatch, ZeRO stage and recomputation take in a key of 62 bits.
_KEY_SIZES = (1 << 20, 1 << 12, 1 << 12, 1 << 14, 4, 4)


@dataclass(frozen=True, slots=True)
class OwnError:
    """What configurations take beyond the fitted model because their layouts were measured; arrays of shape ``(n,)``.

    Args:
        time: Logarithm of the factor on step time.
        energy: The same of energy.
        time_left: Share of the variance of the modelled step time that is left.
        power_left: The same of power, which trials without energy leave whole.
        time_slope_variance: What an unknown slope against the clock adds to the variance of the step time's logarithm.
        power_slope_variance: The same of power.
    """

    time: Floats
    energy: Floats
    time_left: Floats
    power_left: Floats
    time_slope_variance: Floats
    power_slope_variance: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOffsets:
    """What measured layouts took beyond the fitted model, as logarithms of factors. Arrays have shape ``(m,)``.

    A layout's clocks share what the model gets wrong about it, so that one measured clock teaches the others; several
    also tell how it drifts with the clock.

    Args:
        key: The layouts, as :func:`layout_keys` writes them, ascending.
        clock: Mean of the measured clocks, as :func:`log_clock` has them.
        time: Logarithm of measured over modelled step time at the mean clock.
        energy: The same of energy.
        time_slope: Change of ``time`` with the clock's logarithm.
        energy_slope: The same of ``energy``.
        time_left: Share of the variance of the modelled step time that is left for them.
        power_left: The same of power.
        time_slope_left: Share of the variance of the step time's slope that is left.
        power_slope_left: The same of power.
    """

    key: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    clock: Floats = field(default_factory=lambda: np.zeros(0))
    time: Floats = field(default_factory=lambda: np.zeros(0))
    energy: Floats = field(default_factory=lambda: np.zeros(0))
    time_slope: Floats = field(default_factory=lambda: np.zeros(0))
    energy_slope: Floats = field(default_factory=lambda: np.zeros(0))
    time_left: Floats = field(default_factory=lambda: np.zeros(0))
    power_left: Floats = field(default_factory=lambda: np.zeros(0))
    time_slope_left: Floats = field(default_factory=lambda: np.zeros(0))
    power_slope_left: Floats = field(default_factory=lambda: np.zeros(0))

    def at(self, keys: NDArray[np.int64], clock: Floats) -> OwnError:
        """The offsets of layouts at clocks.

        Args:
            keys: As :func:`layout_keys` writes them, shape ``(n,)``.
            clock: As :func:`log_clock` has it, shape ``(n,)``.
        """
        n = len(keys)
        if not len(self.key):
            drift = (SLOPE_DEVIATION * clock) ** 2
            return OwnError(np.zeros(n), np.zeros(n), np.ones(n), np.ones(n), drift, drift)
        where = np.minimum(np.searchsorted(self.key, keys), len(self.key) - 1)
        known = self.key[where] == keys
        away = clock - np.where(known, self.clock[where], 0.0)
        drift = (SLOPE_DEVIATION * away) ** 2
        return OwnError(
            time=np.where(known, self.time[where] + self.time_slope[where] * away, 0.0),
            energy=np.where(known, self.energy[where] + self.energy_slope[where] * away, 0.0),
            time_left=np.where(known, self.time_left[where], 1.0),
            power_left=np.where(known, self.power_left[where], 1.0),
            time_slope_variance=np.where(known, self.time_slope_left[where], 1.0) * drift,
            power_slope_variance=np.where(known, self.power_slope_left[where], 1.0) * drift,
        )


_OFFSETS = tuple(f.name for f in fields(LayoutOffsets) if f.name != "key")


def _default_covariance() -> Floats:
    """What is known before any trial: each coefficient's own spread, and that the framework may be another one."""
    apart = logarithms(MEGATRON) - logarithms(Coefficients())
    return np.diag(SPREADS**2) + np.outer(apart, apart) / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The model's coefficients for one cluster and framework.

    Args:
        coefficients: Best values.
        covariance: Of the fitted coefficients' logarithms, shape ``(c, c)``.
        time_deviation: Relative deviation of a layout's step time that the model does not explain.
        energy_deviation: The same of energy at a known step time, that is of power.
        memory_deviation: The same of peak memory.
        offsets: What measured layouts had of their own.
        trials: Number of trials it was fitted to.
        gpu: Catalogue name of the GPU it was fitted on; empty for the default.
    """

    coefficients: Coefficients = field(default_factory=Coefficients)
    covariance: Floats = field(default_factory=_default_covariance)
    time_deviation: float = 0.1
    energy_deviation: float = 0.1
    memory_deviation: float = 0.1
    offsets: LayoutOffsets = field(default_factory=LayoutOffsets)
    trials: int = 0
    gpu: str = ""

    def to_document(self) -> dict[str, Any]:
        """As JSON data."""
        offsets = {name: values.tolist() for name, values in asdict(self.offsets).items()}
        return {
            "gpu": self.gpu,
            "trials": self.trials,
            "coefficients": asdict(self.coefficients),
            "covariance": self.covariance.tolist(),
            "time_deviation": self.time_deviation,
            "energy_deviation": self.energy_deviation,
            "memory_deviation": self.memory_deviation,
            "offsets": offsets,
        }

    @classmethod
    def from_document(cls, document: Any) -> Calibration:
        """The inverse of :meth:`to_document`.

        Raises:
            InvalidInput: Anything that :meth:`to_document` does not write.
        """
        try:
            offsets = document["offsets"]
            result = cls(
                coefficients=Coefficients(**{name: float(value) for name, value in document["coefficients"].items()}),
                covariance=np.array(document["covariance"], float),
                time_deviation=float(document["time_deviation"]),
                energy_deviation=float(document["energy_deviation"]),
                memory_deviation=float(document["memory_deviation"]),
                offsets=LayoutOffsets(
                    key=np.array(offsets["key"], np.int64),
                    **{name: np.array(offsets[name], float) for name in _OFFSETS},
                ),
                trials=int(document["trials"]),
                gpu=str(document["gpu"]),
            )
            result._check()
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, np.linalg.LinAlgError):
            raise InvalidInput.of("calibration", "document", "must be what `paretune predict` saved") from None
        return result

    def _check(self) -> None:
        size = len(COEFFICIENTS)
        values = np.array([getattr(self.coefficients, name) for name in COEFFICIENTS], float)
        deviations = np.array([self.time_deviation, self.energy_deviation, self.memory_deviation])
        offsets = np.stack([getattr(self.offsets, name) for name in _OFFSETS])
        shares = np.stack([getattr(self.offsets, name) for name in _OFFSETS if name.endswith("_left")])
        sound = (
            np.all(np.isfinite(values) & (values > 0))
            and self.covariance.shape == (size, size)
            and np.allclose(self.covariance, self.covariance.T)
            and np.all(np.linalg.eigvalsh(self.covariance) > -1e-9)
            and np.all((deviations > 0) & (deviations < 10))
            and offsets.shape[1] == len(self.offsets.key)
            and np.all(np.abs(offsets) < 100)
            and np.all((shares >= 0) & (shares <= 1))
            and np.all(np.diff(self.offsets.key) > 0)
            and self.trials >= 0
            and 0 <= self.coefficients.head_share <= 1
        )
        if not sound:
            raise ValueError


def log_clock(x: Configurations, cluster: Cluster) -> Floats:
    """Logarithm of the clocks asked for, as a share of the highest, shape ``(n,)``: 0 and below."""
    ratio: Floats = np.log(x.frequency_mhz / cluster.gpu.max_clock_mhz)
    return ratio


def layout_keys(job: TrainingJob, cluster: Cluster, x: Configurations) -> NDArray[np.int64]:
    """One whole number for each layout of a job on a cluster, with its ZeRO stage and recomputation, shape ``(n,)``.

    Args:
        job: The training job, whose own ZeRO stage and recomputation the configurations replace.
        cluster: The cluster.
        x: Configurations.
    """
    same = replace(job, zero_stage=0, recompute=Recompute.none)
    digest = hashlib.sha256(repr((same, cluster)).encode()).digest()
    key = np.zeros(len(x), np.int64)
    for values, size in zip((x.dp, x.tp, x.pp, x.microbatch, x.zero_stage, x.recompute), _KEY_SIZES, strict=True):
        key = key * size + values.astype(np.int64) % size
    return key ^ (int.from_bytes(digest[:8]) >> 2)


DEFAULT = Calibration()
