"""Answer a filter whether a newer record has the same key.

The offset map of a cleaning looks up the key. A caller that has compared all keys beforehand looks up the offset:
`SupersededOffsets` is the list of offsets that have a newer record.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratalog.log.cleaner import map_kernel
from stratalog.log.cleaner.context import MapState


class NewerRecords(Protocol):
    """Answers whether records are superseded. `address` is that of its state for native loops (`map_kernel`)."""

    @property
    def latest_offset(self) -> int:
        """The last offset covered. Every record after it is retained."""

    @property
    def address(self) -> int: ...

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Return whether a later record has the key of the record at `offset`."""


class SupersededOffsets:
    """Offsets of one segment, relative to its base offset, ascending and each once. Not thread-safe."""

    def __init__(self, base_offset: int, relative: npt.NDArray[np.uint32], latest_offset: int) -> None:
        self._latest_offset = latest_offset
        #: One more at the end, so that even an empty list has an address.
        self._listed = np.append(relative, np.uint32(0xFFFF_FFFF))
        self._state = MapState()
        self._state.latest_offset = latest_offset
        self._state.listed_at = self._listed.ctypes.data
        self._state.listed = len(relative)
        self._state.listed_base = base_offset

    @property
    def latest_offset(self) -> int:
        return self._latest_offset

    @property
    def address(self) -> int:
        return self._state.address

    def is_superseded(self, key: bytes, offset: int) -> bool:  # noqa: ARG002
        return bool(map_kernel.is_listed(self.address, offset))
