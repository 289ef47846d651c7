"""Who holds a lease, told so that others on the same machine can see whether it still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_PROC = Path("/proc")


def this_owner() -> str:
    """A name for this process: machine and boot, then process id and its start, so that no id is taken for another's.

    Off Linux the start is unknown, and nobody is ever taken for gone before its lease is over.
    """
    return f"{_machine()}/{os.getpid()}-{_started(os.getpid()) or 'unknown'}"


def is_gone(owner: str) -> bool:
    """Whether the owner was a process of this very machine and boot that no longer runs.

    Args:
        owner: A name that :func:`this_owner` made, anywhere.
    """
    machine, _, process = owner.rpartition("/")
    pid, _, started = process.partition("-")
    if machine != _machine() or not pid.isdigit() or not started.isdigit():
        return False
    return _started(int(pid)) != started


def _machine() -> str:
    """Host, boot, and process-id namespace: containers share a host's boot, but not its process ids."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = (_PROC / "self/ns/pid").stat().st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{boot}-{namespace}"


def _started(pid: int) -> str | None:
    """When a process started, in clock ticks since boot (field 22 of ``/proc/PID/stat``, proc(5)).

    ``None`` where it is gone. A zombie is gone: it only waits for its parent to read its exit code.
    """
    try:
        # The command, in parentheses, may hold spaces and parentheses itself.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]
