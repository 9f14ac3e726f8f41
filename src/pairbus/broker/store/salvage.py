"""Makes a damaged store usable again, without the transactions that cannot be read."""

from __future__ import annotations

from pathlib import Path

from pairbus.broker.store.store import DATABASE, LOCK, StoreInUseError
from pairbus.broker.store.wal_check import WalDamage, find_damage
from pairbus.runtime import Runtime, ThreadRuntime

SUFFIX = ".damaged"


def salvage(directory: Path, runtime: Runtime | None = None) -> WalDamage | None:
    """Cut the write-ahead log of a store behind its last intact transaction.

    The damaged file is kept beside it, with the suffix ``.damaged``.

    Returns:
        The damage that was cut off, or None if nothing is damaged.

    Raises:
        StoreInUseError: a broker has the directory open.
        OSError: a file cannot be read or written.
    """
    files = (runtime or ThreadRuntime()).files
    try:
        lock = files.lock(directory / LOCK, block=False)
        with lock:
            damage = find_damage(directory / DATABASE, files)
            if damage is not None:
                content = files.read(damage.path)
                files.write(damage.path.with_name(damage.path.name + SUFFIX), content, sync=True)
                files.write(damage.path, content[: damage.intact], sync=True)
                files.remove(directory / f"{DATABASE}-shm")
            return damage
    except BlockingIOError:
        raise StoreInUseError(f"The data directory '{directory}' is in use by a broker.") from None
