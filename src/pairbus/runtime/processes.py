"""Processes of this machine: the start time of a process, and an id of the machine's boot."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["machine_id", "started_at"]


def machine_id() -> str:
    """Return an id of this boot of the host and of this container (its process namespace).

    A process id means nothing after a reboot or in another container, and a container that is
    restarted has the same host name and often the same process id as before.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def started_at(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot; None if the process has ended.

    Empty if the start time cannot be read.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter: no process has such an id
        return None
    except OSError:
        pass  # it exists, and belongs to another user
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return None if fields[0] in "ZX" else fields[19]  # a zombie has ended
