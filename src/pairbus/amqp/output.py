"""The bytes that go to the peer, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pairbus.amqp.composite import Composite
from pairbus.amqp.frames import frame


class OutputBuffer:
    """Collects outgoing bytes until the owner of the connection takes them.

    AMQP frames can be held back while SASL runs, so that a client may open, begin and attach
    before the handshake is over. Nothing is accepted after `close`.

    `write` and `write_all` are replaced when the state changes. A transfer calls them once or
    more per message, and this way a call costs as much as appending to a list.
    """

    __slots__ = ("_ready", "is_closed", "write", "write_all")

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        self.is_closed = False
        self.write: Callable[[bytes], object] = self._ready.append
        """Add one AMQP frame, or a part of one."""
        self.write_all: Callable[[Iterable[bytes]], object] = self._ready.extend
        """Add several parts of AMQP frames."""

    def __bool__(self) -> bool:
        return bool(self._ready)

    def send(self, channel: int, performative: Composite) -> None:
        """Add a frame with a performative and no payload."""
        self.write(frame(channel, performative.encode()))

    def write_handshake(self, data: bytes) -> None:
        """Add bytes of the handshake, which precede all frames that are held back."""
        self._ready.append(data)

    def hold(self) -> Callable[[], None]:
        """Hold AMQP frames back from now on; call the result to let them follow."""
        held: list[bytes] = []
        self.write, self.write_all = held.append, held.extend

        def release() -> None:
            self._ready.extend(held)
            if not self.is_closed:
                self.write, self.write_all = self._ready.append, self._ready.extend

        return release

    def close(self) -> None:
        """Discard everything that is written after this."""
        self.is_closed = True
        self.write = self.write_all = _discard

    def take(self) -> bytes:
        """Return the collected bytes and start again with none."""
        ready = self._ready
        if not ready:
            return b""
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        ready.clear()
        return data


def _discard(data: object) -> None:
    """Stand for `write` on a closed connection."""
