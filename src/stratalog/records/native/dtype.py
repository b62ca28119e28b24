"""Structures that Python and native loops share: a field has one name on both sides, and is an int64.

A single structure is a ctypes one, which Python accesses quickly. A table of batches is a numpy array:
`rows["base_offset"]` for numpy, `row.base_offset` in a loop (`toolkit.struct_at`). Importing this module loads neither
numpy nor numba.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar


class Words(ctypes.Structure):
    """A structure of int64 fields, or of other such structures; all zeros at first."""

    __slots__ = ()

    @staticmethod
    def of(*names: str) -> list[tuple[str, Any]]:
        """Fields of int64."""
        return [(name, ctypes.c_int64) for name in names]

    @property
    def address(self) -> int:
        """The address for native loops; valid while the structure lives."""
        return ctypes.addressof(self)


class BatchRow(Words):
    """The header of one batch, and where the batch is.

    `position` and `size` are bytes of a file, or of another scanned source. `is_sound`: its CRC is right (1), wrong (0)
    or unchecked (-1). `payload` is the address of the records, of `payload_size` bytes.
    """

    __slots__ = ()

    _fields_: ClassVar[list[tuple[str, Any]]] = Words.of(
        "position",
        "size",
        "base_offset",
        "last_offset",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "is_sound",
        "payload",
        "payload_size",
    )
