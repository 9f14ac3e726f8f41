"""The bytes that came from the peer and are not a whole frame yet."""

from __future__ import annotations

_MAX_CHUNKS = 1000


class InputBuffer:
    """Collects received chunks until the next frame is complete.

    Chunks are joined only when the frame that they belong to is complete, so a large frame that
    arrives in many small chunks is not copied again for each of them.
    """

    __slots__ = ("_chunks", "_needed", "_size")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = 8

    def add(self, data: bytes) -> bytes | None:
        """Add a chunk; return all bytes so far, or None while the next frame is incomplete."""
        self._size += len(data)
        chunks = self._chunks
        if self._size < self._needed:
            chunks.append(data)
            if len(chunks) > _MAX_CHUNKS:  # bounds the overhead of tiny chunks
                self._chunks = [b"".join(chunks)]
            return None
        if chunks:
            chunks.append(data)
            data = b"".join(chunks)
            self._chunks = []
        elif type(data) is not bytes:
            data = bytes(data)
        return data

    def keep(self, data: bytes, pos: int, needed: int) -> None:
        """Keep what follows `pos`, the start of a frame that is `needed` bytes long."""
        if pos < len(data):
            self._chunks = [data[pos:] if pos else data]
        self._size = len(data) - pos
        self._needed = needed
