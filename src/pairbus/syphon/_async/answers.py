"""The reply queue: answer the fences of paired clients; see `pairbus.envelope.fence`."""

from collections.abc import Sequence

from pairbus.client.errors import ClientError
from pairbus.envelope.fence import Fence, encode_answer
from pairbus.names import reply_queue_of
from pairbus.runtime import AsyncRuntime
from pairbus.syphon._async.connections import NamespaceConnections
from pairbus.syphon.refusals import Outcome

__all__ = ["FenceAnswers"]

TIMEOUT = 10.0  # seconds to wait for the reply queue


class FenceAnswers:
    """Answers fences in the secondary.

    Args:
        runtime: makes message ids.
        connections: the connection to the secondary.
        syphon: the syphon's id, by which a client notices that there are two.
    """

    def __init__(
        self, runtime: AsyncRuntime, connections: NamespaceConnections, syphon: str
    ) -> None:
        self._runtime = runtime
        self._connections = connections
        self._syphon = syphon

    async def answer(self, queue: str, fences: Sequence[Fence]) -> list[Outcome]:
        """Answer fences of one backlog queue; return the outcome of each answer."""
        messages = [
            encode_answer(fence, message_id=str(self._runtime.uuid4()), syphon=self._syphon)
            for fence in fences
        ]
        try:
            sender = await self._connections.sender(reply_queue_of(queue))
            # Each by itself: the messages of a batch would have to be of one session.
            sent = await sender.send_each(messages, TIMEOUT)
        except ClientError as exc:
            return [Outcome.of(exc)] * len(fences)
        errors = [one.error for one in sent for _ in range(one.count)]
        return [Outcome() if error is None else Outcome.of(error) for error in errors]
