"""Bound the number of `.log` files that the process keeps open.

Most partitions are idle, and one descriptor per segment would limit how many a broker can hold. When the limit is
reached, segments are parked: they close their `File` and open it again at the next use. A concurrent reader keeps its
`File`, which closes with its last user.

Writes through a closed `File` are synced through the next one: to the system they are one file, and it reports a
pending write-back error there.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from stratalog.errors import is_shortage
from stratalog.util import File, descriptors_max

#: Share of all descriptors for open logs; the rest is for connections and other files.
_SHARE_OF_LOGS: Final = 2
#: Segments parked at once when no descriptor is left.
_PARKED_AT_ONCE: Final = 64


class Parked(Protocol):
    """A segment. It sets `is_used` at each use of its `.log`. Any thread may call `park`."""

    is_used: bool

    def park(self) -> None:
        """Close the `.log` until its next use."""


class OpenSegments:
    """Segments whose `.log` is open, in order of opening. Thread-safe.

    The first is parked first unless it was used since the last look.
    """

    def __init__(self, limit: Callable[[], int | None]) -> None:
        """`limit` returns how many may be open, None for no limit."""
        self._limit = limit
        self._lock = threading.Lock()
        #: Weak: dropping the last reference to a segment closes its file.
        self._open: OrderedDict[weakref.ref[Parked], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, opening: Callable[[], File]) -> File:
        """Return the result of `opening`. If no descriptor is free, park other segments and try again."""
        while True:
            try:
                return opening()
            except OSError as error:
                if not is_shortage(error) or not self._park_down_to(len(self._open) - _PARKED_AT_ONCE):
                    raise

    def admit(self, segment: Parked) -> None:
        """Register `segment` as open and in use. Park others for it if needed."""
        segment.is_used = True
        with self._lock:
            self._open[weakref.ref(segment)] = None
        limit = self._limit()
        if limit is not None and len(self._open) > limit:
            self._park_down_to(limit)

    def forget(self, segment: Parked) -> None:
        with self._lock:
            self._open.pop(weakref.ref(segment), None)

    def _park_down_to(self, count: int) -> bool:
        """Park segments until `count` are open. Return whether any was parked."""
        parked = False
        with self._lock:
            sparing = len(self._open)
            while self._open and len(self._open) > count:
                oldest, _ = self._open.popitem(last=False)
                segment = oldest()
                if segment is None:
                    continue
                if segment.is_used and sparing > 0:
                    segment.is_used = False
                    sparing -= 1
                    self._open[oldest] = None
                    continue
                segment.park()
                parked = True
        return parked


def _open_at_most() -> int | None:
    limit = descriptors_max()
    return None if limit is None else limit // _SHARE_OF_LOGS


#: Of all segments of the process.
OPEN_SEGMENTS: Final = OpenSegments(_open_at_most)
