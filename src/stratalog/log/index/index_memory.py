"""Memory for the indexes of the process: only for those that are searched, within one limit for all.

An index is read into memory at its first search. Thousands of them would take all memory, so it is lent: whose copy was
not used for longest has to drop it, and reads its file again when it is searched again.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Final, Protocol


class Borrower(Protocol):
    """A borrower of memory.

    It sets `is_used` at each use; `drop` is called by any thread, and must not wait for anything.
    """

    is_used: bool

    def drop(self) -> None:
        """Let go of the memory."""


class IndexMemory:
    """At most `bytes_max` lent to all together; one that takes more by itself keeps it until another one is lent any.

    The oldest loan ends first, but for those that were used since they were last looked at. Thread-safe.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        #: Weak: who is forgotten without a word has nothing any more.
        self._loans: OrderedDict[weakref.ref[Borrower], int] = OrderedDict()
        self.bytes_lent = 0

    def lend(self, borrower: Borrower, size: int) -> None:
        """`borrower` has `size` bytes from now on, whatever it had before."""
        newest = weakref.ref(borrower)
        with self._lock:
            self.bytes_lent += size - self._loans.pop(newest, 0)
            self._loans[newest] = size
            sparing = len(self._loans)
            while self.bytes_lent > self._bytes_max and len(self._loans) > 1:
                oldest, its_size = self._loans.popitem(last=False)
                found = oldest()
                if found is not None and (oldest is newest or (found.is_used and sparing > 0)):
                    found.is_used = False
                    sparing -= 1
                    self._loans[oldest] = its_size
                    continue
                self.bytes_lent -= its_size
                if found is not None:
                    found.drop()

    def end(self, borrower: Borrower) -> None:
        """`borrower` has nothing any more."""
        with self._lock:
            self.bytes_lent -= self._loans.pop(weakref.ref(borrower), 0)


#: For all indexes of the process.
INDEX_MEMORY: Final = IndexMemory(128 * 1024 * 1024)
