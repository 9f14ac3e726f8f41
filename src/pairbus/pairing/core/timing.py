"""The times of a pair's options."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pairbus.options import SendAvailabilityPairedNamespaceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of the options, all in seconds; and whether sends wait for the backlog."""

    failover_interval: float
    ping_primary_interval: float
    send_timeout: float
    backlog_cooldown: float
    open_timeout: float = 5.0
    drains_first: bool = False

    @classmethod
    def of(cls, options: SendAvailabilityPairedNamespaceOptions) -> Timing:
        """The times of `options`, which has checked them and turned them into seconds."""
        names = [field.name for field in fields(cls) if field.name != "drains_first"]
        times = {name: getattr(options, name) for name in names}
        return cls(**times, drains_first=options.recovery == "drain_first")
