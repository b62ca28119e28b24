"""Sequences of integers that take four bytes each, for what is kept by the hundred thousand."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import overload


class PackedUint32s(Sequence[int]):
    """An immutable sequence of uint32, as big-endian bytes. Equal to any sequence of the same numbers.

    A tuple takes 40 bytes a number. Raises struct.error for a number that does not fit.
    """

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        """Take bytes as they are. Raises ValueError unless they are a whole number of words."""
        if len(packed) % 4:
            raise ValueError(f"{len(packed)} bytes are no whole number of 32-bit words")
        self.packed = packed

    @classmethod
    def of(cls, values: Iterable[int]) -> PackedUint32s:
        """Pack numbers; packed ones are returned as they are."""
        if isinstance(values, PackedUint32s):
            return values
        numbers = tuple(values)
        return cls(struct.pack(f">{len(numbers)}I", *numbers))

    def __len__(self) -> int:
        return len(self.packed) // 4

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        if isinstance(at, slice):
            return struct.unpack(f">{len(self)}I", self.packed)[at]
        index = range(len(self))[at]
        return int.from_bytes(self.packed[4 * index : 4 * index + 4], "big")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedUint32s):
            return self.packed == other.packed
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return f"PackedUint32s.of({tuple(self)})"
