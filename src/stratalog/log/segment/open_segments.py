"""Which `.log` files are open: no more of all segments of the process than there are descriptors for.

Most partitions of many are idle. A descriptor for each of their segments would bound how many there can be, so a `.log`
is parked when others need the place: its segment lets go of the `File`, and opens another one at its next use. Who
reads at that moment holds the `File` itself, which is closed when the last one lets go.

What was written through a `File` that is gone is synced through the next one: both are the same file to the system, and
an error of writing back that was not reported yet is reported there.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from stratalog.errors import is_shortage
from stratalog.util import File, descriptors_max

#: That part of all descriptors is for logs that are open; the rest is for connections and all other files.
_SHARE_OF_LOGS: Final = 2
#: How many are parked at once when there is no descriptor left.
_PARKED_AT_ONCE: Final = 64


class Parked(Protocol):
    """A segment. It sets `is_used` at each use of its `.log`; `park` is called by any thread."""

    is_used: bool

    def park(self) -> None:
        """Let go of the `.log` until it is used again."""


class OpenSegments:
    """Segments whose `.log` is open, the one that was opened first in front. Thread-safe.

    The first one is parked first, but for those that were used since they were last looked at.
    """

    def __init__(self, limit: Callable[[], int | None]) -> None:
        """`limit` says how many may be open; None: as many as anybody likes."""
        self._limit = limit
        self._lock = threading.Lock()
        #: Weak: a segment that is forgotten without a word closes its file by that.
        self._open: OrderedDict[weakref.ref[Parked], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, opening: Callable[[], File]) -> File:
        """Return what `opening` does, with others parked where it finds no descriptor. OSErrors are those of it."""
        while True:
            try:
                return opening()
            except OSError as error:
                if not is_shortage(error) or not self._park_down_to(len(self._open) - _PARKED_AT_ONCE):
                    raise

    def admit(self, segment: Parked) -> None:
        """`segment` has an open `.log` from now on and is about to use it; others are parked for it."""
        segment.is_used = True
        with self._lock:
            self._open[weakref.ref(segment)] = None
        limit = self._limit()
        if limit is not None and len(self._open) > limit:
            self._park_down_to(limit)

    def forget(self, segment: Parked) -> None:
        """`segment` is not to be parked any more."""
        with self._lock:
            self._open.pop(weakref.ref(segment), None)

    def _park_down_to(self, count: int) -> bool:
        """Park until `count` are open; whether that was any."""
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


#: For all segments of the process.
OPEN_SEGMENTS: Final = OpenSegments(_open_at_most)
