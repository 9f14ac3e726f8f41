"""A simulation of everything that waits: one process, one seeded event loop, virtual time.

The same code as in production runs here: the SDK's asyncio client from its unmodified files, the
embedded brokers with their real protocol, and every component that takes a `pairbus.runtime`. What
the operating system would decide, a seed decides: the order of ready callbacks, the delay and the
segments of data on a connection, random numbers, identifiers, and which files survive a crash. Time
jumps from one timer to the next. So the same seed gives the same run, and an hour of outage takes a
fraction of a second.

    loop.py      the event loop
    network.py   connections in memory, with faults
    files.py     files in memory, which lose data that was not synced
    runtime.py   `AsyncRuntime` on these
    world.py     replaces the process's clocks and random numbers for the time of a run
    broker.py    the embedded broker behind an address of the simulated network
"""

from simulation.broker import SimulatedBroker
from simulation.files import SimulatedFiles
from simulation.loop import SimulatedLoop, SimulationError
from simulation.network import Conditions, Network
from simulation.runtime import SimulatedRuntime
from simulation.world import run

__all__ = [
    "Conditions",
    "Network",
    "SimulatedBroker",
    "SimulatedFiles",
    "SimulatedLoop",
    "SimulatedRuntime",
    "SimulationError",
    "run",
]
