"""Plain texts for the reasons that a syphon's status gives in AMQP conditions."""

import re
from collections.abc import Mapping

from pairbus.monitoring.formatting import brief, duration
from pairbus.syphon.progress import STANDSTILL
from pairbus.syphon.refusals import CREDENTIAL_FAILED

WHOLE_PRIMARY = "*"
"""The destination under which a status reports that the whole primary cannot take messages."""

_PRIMARY = {
    "com.microsoft:server-busy": "the primary is throttling",
    "com.microsoft:auth-failed": "the primary refuses the key or token",
    "amqp:unauthorized-access": "the primary refuses the key or token",
    CREDENTIAL_FAILED: "the credential of the primary gives no token",
}
_DESTINATION = {
    "": "sending its deferred messages",
    "amqp:not-found": "does not exist; waiting for it to be created",
    "amqp:resource-deleted": "does not exist; waiting for it to be created",
    "com.microsoft:entity-disabled": "waiting for it to be enabled",
    "amqp:resource-limit-exceeded": "full; waiting for room",
    "amqp:unauthorized-access": "access denied; waiting for the right Send",
    "com.microsoft:auth-failed": "access denied; waiting for the right Send",
    "com.microsoft:timeout": "no answer in time; retrying",
    "com.microsoft:server-busy": "throttled; retrying",
}


def waits_for_primary(stalled: str | None) -> bool:
    """Return whether a syphon is stalled because the primary takes no message."""
    return bool(stalled) and str(stalled).startswith("primary")


def stands_still(stalled: str | None) -> bool:
    """Return whether a syphon forwards nothing without knowing the reason."""
    return str(stalled).startswith(STANDSTILL)


def explain_stall(stalled: str | None, next_attempt_in: float | None = None) -> str:
    """Return why a syphon is stalled, and when it tries again if that is known."""
    if not stalled:
        return ""
    role, _, reason = stalled.partition(": ")
    if role.startswith("primary"):
        text = _PRIMARY.get(reason.split(":  ")[0].strip(), "the primary cannot be reached")
    elif role.startswith("secondary"):
        text = f"the secondary cannot be reached: {brief(reason)}"
    elif role == "ledger":
        text = f"the ledger cannot be written: {brief(reason)}"
    else:
        text = brief(stalled)
    if next_attempt_in is not None and next_attempt_in > 0:
        text += f"; next try in {duration(next_attempt_in)}"
    return text


def explain_waits(
    waiting_for: Mapping[str, str], counts: Mapping[str, int] | None = None
) -> list[str]:
    """Return for each destination that cannot accept messages why they wait, and how many."""
    texts = []
    for destination, condition in waiting_for.items():
        if destination != WHOLE_PRIMARY:  # that is the stall
            number = (counts or {}).get(destination, 0)
            many = f" ({number:,} message{'' if number == 1 else 's'})" if number else ""
            texts.append(explain_wait(destination, str(condition)) + many)
    return texts


def explain_wait(destination: str, condition: str) -> str:
    """Return why the messages of one destination wait."""
    name = re.split(r"[\s;]", condition.strip(), maxsplit=1)[0]
    return f"{destination}: {_DESTINATION.get(name, f'refused ({brief(condition)}); retrying')}"
