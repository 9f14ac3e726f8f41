"""What processes cost while something runs: CPU seconds and largest memory, by kind."""

import threading

import psutil

__all__ = ["Watch"]


class Watch:
    """Looks at this process, its children and the brokers twice a second.

    Kinds: `primary` and `secondary` (the brokers), `jvm`, `python` (driver, coordinator, workers).
    """

    def __init__(self, brokers: dict[str, psutil.Process]) -> None:
        self._brokers = brokers
        self._cpu: dict[int, tuple[str, float]] = {}
        self._peak: dict[str, float] = {}
        self._stop = threading.Event()
        self._look()
        self._start, self._machine = self._sums(), _machine()
        self._peak.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        kinds = {process.pid: kind for kind, process in self._brokers.items()}
        here = psutil.Process()
        for process in [*self._brokers.values(), here, *here.children(True)]:
            try:
                times, memory = process.cpu_times(), process.memory_info().rss / 1e6
                name = process.name()
            except psutil.Error:
                continue
            kind = kinds.get(process.pid) or ("jvm" if "java" in name else "python")
            self._cpu[process.pid] = (kind, times.user + times.system)
            self._peak[kind] = max(self._peak.get(kind, 0.0), memory)

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    def _sums(self) -> dict[str, float]:
        sums: dict[str, float] = {}
        for kind, seconds in self._cpu.values():
            sums[kind] = sums.get(kind, 0.0) + seconds
        return sums

    def others(self) -> float:
        """CPU seconds that other processes of the machine used since the start."""
        now = self._sums()
        ours = sum(now.values()) - sum(self._start.values())
        return max(0.0, _machine() - self._machine - ours)

    def end(self) -> tuple[dict[str, float], dict[str, float]]:
        """CPU seconds by kind since the start, and megabytes of the largest process of each."""
        self._stop.set()
        self._thread.join()
        self._look()
        now = self._sums()
        return {kind: now[kind] - self._start.get(kind, 0.0) for kind in now}, dict(self._peak)


def _machine() -> float:
    """CPU seconds that the machine spent on anything."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
