"""The values of the column `verdict`: what the sink does with a restored message."""

__all__ = ["ABANDON", "COMPLETE", "DEAD_LETTER", "DELIVER", "ORIGINAL", "VERDICTS"]

DELIVER = "deliver"
DEAD_LETTER = "dead-letter"
COMPLETE = "complete"
ABANDON = "abandon"

#: The column that keeps the destination that the sender chose when a transform changes it.
ORIGINAL = "originalDestination"

#: Each value of `verdict`, and what the sink does with such a row.
VERDICTS = {
    DELIVER: "send it to `destination`; complete it when the destination has confirmed it",
    DEAD_LETTER: "move it to the dead-letter queue of its `entity`, with `reason` and "
    "`description`",
    COMPLETE: "complete it without sending it; the ledger records `reason`",
    ABANDON: "return it to its `entity` immediately",
}
