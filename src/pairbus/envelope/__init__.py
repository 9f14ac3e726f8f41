"""The envelope of messages in a backlog queue: see `pairbus.envelope.fields`."""

from typing import Any

from pairbus._moved import find_renamed


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name)
