"""The pair of brokers that the tests without Spark use, for those with Spark."""

from tests.syphon.conftest import pair

__all__ = ["pair"]
