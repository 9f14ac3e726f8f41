"""The processes of this machine: whether one still runs, and which machine this is."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["machine_id", "started_at"]


def machine_id() -> str:
    """Return what tells apart the boots of this host, and the containers on it.

    A process id means nothing after a reboot or in another container, and a container that is
    restarted has the same host name and often the same process id as before.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def started_at(pid: int) -> str | None:
    """Return when a process of this machine began, in the system's own terms; None if it ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # it belongs to somebody else
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return None if fields[0] in "ZX" else fields[19]  # a process that nobody waits for has ended
