"""Which configurations were predicted to fit in memory, against what a table shows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.groups import Group
from tuner.physics.configurations import Configurations, Floats
from tuner.physics.predict import predict


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCounts:
    """Whether configurations were predicted to fit, in numbers of configurations.

    Args:
        ran: That ran.
        ran_predicted_to_fit: Of these, predicted to fit.
        failed: That never ran, for whatever reason.
        failed_predicted_out: Of these, predicted to run out of memory.
        out: Failed, and the table itself shows that they ran out of memory.
        out_predicted_out: Of these, predicted to run out of memory.
        room: Failed, and the table itself shows that memory was not the reason.
        room_predicted_out: Of these, predicted to run out of memory.
    """

    ran: int = 0
    ran_predicted_to_fit: int = 0
    failed: int = 0
    failed_predicted_out: int = 0
    out: int = 0
    out_predicted_out: int = 0
    room: int = 0
    room_predicted_out: int = 0

    def __add__(self, other: MemoryCounts) -> MemoryCounts:
        return MemoryCounts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(MemoryCounts)})

    @property
    def recall(self) -> float:
        """Share of the shown cases of running out that were predicted."""
        return self.out_predicted_out / self.out if self.out else np.nan

    @property
    def precision(self) -> float:
        """Share of shown cases of running out among the configurations predicted to, where the table tells which."""
        wrong = self.ran - self.ran_predicted_to_fit + self.room_predicted_out
        predicted = self.out_predicted_out + wrong
        return self.out_predicted_out / predicted if predicted else np.nan


def count_memory(group: Group) -> MemoryCounts:
    """Count what was predicted to fit."""
    fits = predict(group.job, group.cluster, group.measured.configurations).fits
    counts = MemoryCounts(ran=len(fits), ran_predicted_to_fit=int(fits.sum()))
    if group.failed is None or not len(group.failed):
        return counts
    out = ~predict(group.job, group.cluster, group.failed).fits
    needed_gib = needed_memory(group)
    limit_gib = group.cluster.gpu.memory_gib
    shown_out, shown_room = needed_gib > limit_gib, needed_gib < 0.9 * limit_gib
    return replace(
        counts,
        failed=len(out),
        failed_predicted_out=int(out.sum()),
        out=int(shown_out.sum()),
        out_predicted_out=int((out & shown_out).sum()),
        room=int(shown_room.sum()),
        room_predicted_out=int((out & shown_room).sum()),
    )


def needed_memory(group: Group) -> Floats:
    """Memory that the failed configurations needed, in GiB, by the table alone; nan where it does not tell.

    With everything else the same, peak memory is affine in the microbatch, as long as there are enough microbatches to
    fill the pipeline. Where at least two microbatches of a layout ran, a line through the smallest and the largest of
    them says what another one needs.
    """
    failed = group.failed
    assert failed is not None
    x, memory_gib = group.measured.configurations, group.measured.peak_memory_gib
    needed = np.full(len(failed), np.nan)
    full = group.job.global_batch_size / (failed.dp * failed.microbatch) >= failed.pp
    for row in np.flatnonzero(full).tolist():
        same = np.flatnonzero(_same_layout(x, failed, row) & np.isfinite(memory_gib))
        if len(same) >= 2:
            ends = same[[np.argmin(x.microbatch[same]), np.argmax(x.microbatch[same])]]
            slope = np.diff(memory_gib[ends])[0] / np.diff(x.microbatch[ends])[0]
            # A larger microbatch never needs less: a line that falls is no line, and tells nothing.
            if slope > 0:
                needed[row] = memory_gib[ends[1]] + slope * (failed.microbatch[row] - x.microbatch[ends[1]])
    return needed


def _same_layout(x: Configurations, failed: Configurations, row: int) -> NDArray[np.bool_]:
    names = ("dp", "tp", "pp", "zero_stage", "recompute")
    same: NDArray[np.bool_] = np.all([getattr(x, name) == getattr(failed, name)[row] for name in names], axis=0)
    return same
