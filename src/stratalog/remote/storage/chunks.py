"""Layout of a compressed or encrypted content in its object: chunks that are encoded independently.

    content   |   chunk 0   |   chunk 1   | chunk 2 |      `chunk_bytes` each, the last one shorter
    object    | stored 0 | stored 1 | stored 2 |           consecutive, from `position` on

A range of the content is read by fetching only its chunks.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """Content [start, end) as bytes [stored_start, stored_end) of the object."""

    number: int
    start: int
    end: int
    stored_start: int
    stored_end: int


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Sizes in bytes. `position` is where the first chunk begins in its object. Immutable.

    Raises ValueError unless there is one stored size for each chunk of the content.
    """

    size: int
    chunk_bytes: int
    stored_sizes: Sequence[int]
    position: int = 0
    _ends: array[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.chunk_bytes < 1 or self.size < 0 or self.position < 0:
            raise ValueError(f"{self.size} bytes in chunks of {self.chunk_bytes} from {self.position}")
        if len(self.stored_sizes) != -(-self.size // self.chunk_bytes):
            raise ValueError(
                f"{len(self.stored_sizes)} chunks of {self.chunk_bytes} bytes do not make {self.size} bytes"
            )
        if any(size < 1 for size in self.stored_sizes):
            raise ValueError("a stored chunk is empty")
        ends = array("Q", accumulate(self.stored_sizes, initial=self.position))
        object.__setattr__(self, "_ends", ends)

    @property
    def count(self) -> int:
        return len(self.stored_sizes)

    @property
    def stored_size(self) -> int:
        """Bytes of all chunks in the object."""
        return self._ends[-1] - self.position

    def chunk(self, number: int) -> StoredChunk:
        """Return the chunk with this number, from 0."""
        start = number * self.chunk_bytes
        return StoredChunk(
            number,
            start,
            min(start + self.chunk_bytes, self.size),
            self._ends[number],
            self._ends[number + 1],
        )

    def chunks(self, start: int, end: int) -> list[StoredChunk]:
        """Return the chunks of the content [start, end), clipped to its size."""
        end = min(end, self.size)
        if start >= end:
            return []
        first, last = start // self.chunk_bytes, (end - 1) // self.chunk_bytes
        return [self.chunk(number) for number in range(first, last + 1)]
