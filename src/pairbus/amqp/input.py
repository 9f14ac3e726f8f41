"""The bytes that came from the peer and are not a whole frame yet."""

from __future__ import annotations

_MAX_CHUNKS = 1000


class InputBuffer:
    """Collects received chunks until the next frame is complete.

    Chunks are joined only when the frame that they belong to is complete, so a large frame that
    arrives in many small chunks is not copied again for each of them.
    """

    __slots__ = ("_chunks", "_needed", "size")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._needed = 0
        self.size = 0
        """The bytes that are kept; 0 most of the time, since peers send whole frames."""

    def add(self, data: bytes) -> bytes | None:
        """Add a chunk; return and forget all bytes, or None while the frame is incomplete."""
        chunks = self._chunks
        chunks.append(data)
        self.size += len(data)
        if self.size < self._needed:
            if len(chunks) > _MAX_CHUNKS:  # bounds the overhead of tiny chunks
                self._chunks = [b"".join(chunks)]
            return None
        self._chunks = []
        self.size = self._needed = 0
        return b"".join(chunks)

    def keep(self, data: bytes, needed: int) -> None:
        """Keep the start of a frame that is `needed` bytes long."""
        self._chunks = [data]
        self.size = len(data)
        self._needed = needed
