"""From a checked study document to a row of the store."""

from __future__ import annotations

from dataclasses import asdict

from tuner.search.requirements import require_gp
from tuner.space import build_space
from tuner.spec import StudySpec, fingerprint
from tuner.store.records import NewStudy


def new_study(spec: StudySpec) -> NewStudy:
    """Check that the study can be run as written, and fingerprint what it is about.

    Raises:
        InvalidInput: It cannot.
    """
    space = build_space(spec)
    if spec.sampler.kind == "gp":
        require_gp()
    return NewStudy(
        name=spec.name,
        spec=spec.document(),
        spec_digest=spec.digest,
        job_fingerprint=fingerprint(asdict(space.job)),
        hardware_fingerprint=fingerprint(asdict(space.cluster)),
    )
