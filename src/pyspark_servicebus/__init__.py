"""Found by Spark itself: `spark.read.format("servicebus")` works wherever pairbus is installed.

Spark imports every top-level module named `pyspark_*` and registers its `DefaultSource`.
"""

from pairbus.spark.source import ServiceBusSource as DefaultSource

__all__ = ["DefaultSource"]
