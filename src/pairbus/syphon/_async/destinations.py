"""The primary: sends to several destinations concurrently, one batch to each."""

from collections.abc import Sequence

from pairbus.client._async.sender import Posted
from pairbus.client.batches import ENVELOPE_ROOM
from pairbus.client.errors import (
    SERVER_BUSY,
    ClientError,
    ConnectionLostError,
    ConnectTimeoutError,
)
from pairbus.syphon._async.connections import NamespaceConnections
from pairbus.syphon.refusals import Cause, Outcome, judge

__all__ = ["Destinations"]

CONNECTION_LOST = "amqp:connection:forced"


class Destinations:
    """The queues and topics of the primary.

    Args:
        connections: the connection to the primary.
        timeout: seconds to wait for a destination's answer.
    """

    def __init__(self, connections: NamespaceConnections, timeout: float) -> None:
        self._connections = connections
        self._timeout = timeout
        self._refused: dict[str, Outcome] = {}

    async def limit(self, destination: str) -> int:
        """Return the most bytes of one batch; if there is no link, `send` returns the refusal."""
        try:
            sender = await self._connections.sender(destination)
        except ClientError as exc:
            self._refused[destination] = _unsent(exc)
            return 1 << 20
        return sender.max_batch_bytes - ENVELOPE_ROOM

    async def send(self, jobs: Sequence[tuple[str, Sequence[bytes]]]) -> list[Outcome]:
        """Send one batch to each of several destinations concurrently; return their outcomes."""
        answers: list[Outcome | Posted] = []
        for destination, messages in jobs:
            refused = self._refused.pop(destination, None)
            if refused is not None:
                answers.append(refused)
                continue
            try:
                sender = await self._connections.sender(destination)
                answers.append(sender.post(messages))
            except ClientError as exc:
                answers.append(_unsent(exc))
        return [await self._answer(one) for one in answers]

    async def _answer(self, answer: Outcome | Posted) -> Outcome:
        if isinstance(answer, Outcome):
            return answer
        for outcome in await answer.wait(self._timeout):
            if outcome.error is not None:
                return _outcome(outcome.error)
        return Outcome()


def _unsent(error: ClientError) -> Outcome:
    """Return the outcome of a batch whose link could not be opened.

    Nothing was sent, so no message can be at fault. Unless the connection broke or could not be
    opened, the primary answered, so only this destination has to wait.
    """
    outcome = _outcome(error)
    if judge(outcome.condition or "").cause is Cause.MESSAGE:
        return Outcome(f"{outcome.condition} when the link was opened", outcome.description)
    return outcome


def _outcome(error: ClientError) -> Outcome:
    outcome = Outcome.of(error)
    is_lost = isinstance(error, ConnectionLostError | ConnectTimeoutError)
    if is_lost and outcome.condition != SERVER_BUSY:
        return Outcome(CONNECTION_LOST, outcome.description)
    return outcome
