"""Paired namespaces for Azure Service Bus: senders that survive an outage."""

from pairbus._version import __version__

__all__ = ["__version__"]
