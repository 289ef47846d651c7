"""Fit the coefficients to measured trials: robust least squares with priors, so that even one trial helps.

The logarithms of step time, power and peak memory are compared. What the model gets wrong about a layout is shared by
all its clocks; what remains is noise. Coefficients have normal priors on their logarithms, from the default or from an
earlier calibration, which makes this a maximum a posteriori fit. Without an earlier one the fit starts from every
framework and cluster that is known, and the one that explains the trials best is taken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.errors import InvalidInput
from tuner.hardware import Cluster
from tuner.job import TrainingJob
from tuner.physics.calibration import DEFAULT, Calibration
from tuner.physics.coefficients import COEFFICIENTS, KNOWN, SPREADS, logarithms, with_logarithms
from tuner.physics.configurations import Floats
from tuner.physics.evidence import Deviations, Evidence, Measured

# By how much one that is not the default must fit better, in units of the halved sum of squares.
_OTHERS_MARGIN = 1.0
# The deviations are estimated from a first fit and used in a second.
_ROUNDS = 2
_EVALUATIONS = 25


def calibrate(job: TrainingJob, cluster: Cluster, measured: Measured, prior: Calibration = DEFAULT) -> Calibration:
    """Correct what is known about a cluster by measured trials.

    Args:
        job: The training job that was run.
        cluster: The cluster that it ran on.
        measured: The trials; at least one that ran.
        prior: What was known before.

    Raises:
        InvalidInput: No trial with a step time.
    """
    ran = measured.ran
    if not ran.any():
        raise InvalidInput.of("measured", len(ran), "must hold at least one trial that ran")
    evidence = Evidence(job, cluster, measured)
    known = (
        [prior]
        if prior.trials
        else [replace(prior, coefficients=each, covariance=np.diag(SPREADS**2)) for each in KNOWN]
    )
    cost, calibration = _fit(evidence, known[0])
    for other in known[1:]:
        other_cost, other_calibration = _fit(evidence, other)
        if other_cost + _OTHERS_MARGIN < cost:
            cost, calibration = other_cost, other_calibration
    return replace(calibration, trials=prior.trials + int(ran.sum()), gpu=cluster.gpu.name)


def _fit(evidence: Evidence, prior: Calibration) -> tuple[float, Calibration]:
    """Half the sum of squares at the best fit, and the fit."""
    # Loading scipy takes longer than a prediction, which does not need it.
    from scipy.optimize import least_squares

    base, start = prior.coefficients, logarithms(prior.coefficients)
    root = np.linalg.cholesky(prior.covariance + 1e-12 * np.eye(len(start))).astype(np.float64)
    deviations = Deviations(prior.time_deviation, prior.energy_deviation, prior.memory_deviation)
    # The unknowns are whitened by the prior, so that their own residuals are themselves.
    z: Floats = np.zeros(len(start))

    def residuals(z: Floats, deviations: Deviations) -> Floats:
        errors = evidence.errors(with_logarithms(base, start + root @ z))
        return np.concatenate([evidence.residuals(errors, deviations), z])

    def jacobian(z: Floats, deviations: Deviations) -> Floats:
        return np.vstack([evidence.jacobian(base, start + root @ z, root, deviations), np.eye(len(z))])

    for _ in range(_ROUNDS):
        found = least_squares(residuals, z, jac=jacobian, args=(deviations,), max_nfev=_EVALUATIONS)
        z = found.x
        errors = evidence.errors(with_logarithms(base, start + root @ z))
        deviations = evidence.deviations(errors, prior)
    best = with_logarithms(base, start + root @ z)
    slopes = jacobian(z, deviations)
    covariance = root @ np.linalg.inv(slopes.T @ slopes) @ root.T
    return float(found.cost), Calibration(
        coefficients=replace(best, **{name: float(getattr(best, name)) for name in COEFFICIENTS}),
        covariance=(covariance + covariance.T) / 2,
        time_deviation=deviations.time,
        energy_deviation=deviations.power,
        memory_deviation=deviations.memory,
        offsets=evidence.offsets(errors, deviations),
    )
