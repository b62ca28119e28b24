"""Memory that clients can make the broker hold: requests received in part, and answers that are not read.

    queued.max.request.bytes   bounds requests; the rest of a large one is read only when there is room
    the same number            bounds answers; the client that has not read for longest is disconnected

Small requests never wait: they are received into memory that all connections share. So clients that fill this memory
delay only large requests of others, and not for long: while a request waits, one that does not arrive within 30 s is
dropped with its connection.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Protocol

from stratalog.broker.security import Peer
from stratalog.broker.server.closing_log import ClosingLog

Memory = bytearray | mmap.mmap

#: Limit of the pool of buffers for large requests, and the smallest buffer worth pooling.
_POOL_BYTES_MAX: Final = 32 * 1024 * 1024
_POOLED_BYTES_MIN: Final = 64 * 1024
#: Freed heap memory that is worth returning to the system.
_HOLES_BYTES_MIN: Final = 32 * 1024 * 1024
#: How long a large request may take to arrive while others wait for its memory.
_ARRIVAL_S_MAX: Final = 30.0
#: One in so many bytes of the machine's memory is for requests, and as much for answers, when no number is set.
_SHARE_OF_MEMORY: Final = 4


def _rounded(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _memory(size: int) -> Memory:
    """Return memory; a large buffer is a map, allocated on first write and returned to the system after use."""
    if size < _POOLED_BYTES_MIN:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def default_limit(memory_bytes: int, request_bytes_max: int) -> int:
    """Return the limit when `queued.max.request.bytes` is not set: a share of the machine's memory."""
    return max(memory_bytes // _SHARE_OF_MEMORY, request_bytes_max)


class SlowReader(Protocol):
    """A client with unread answers."""

    peer: Peer

    def close(self) -> None: ...


class RequestMemory:
    """Buffers of requests and unread answers, counted. Belongs to the loop's thread. `clock` counts seconds.

    Invariant: buffers of requests take at most `limit` bytes, besides what the oldest of them needs to be complete, and
    what each connection received at once when its request began. The oldest may always grow, so there is no deadlock.
    """

    def __init__(
        self,
        limit: int,
        clock: Callable[[], float],
        discard: Callable[[list[Memory]], object] = list.clear,
        closings: ClosingLog | None = None,
    ) -> None:
        """`discard` gets memory that is no longer used; unmapping large maps takes a while."""
        self._limit = limit
        self._clock = clock
        self._discard = discard
        self._closings = closings or ClosingLog(clock)
        self._free: list[Memory] = []
        self._free_bytes = 0
        self._taken = False
        #: Bytes of buffers by request, oldest first, and when each began.
        self._arriving: dict[Hashable, int] = {}
        self._begun_at: dict[Hashable, float] = {}
        self._arriving_bytes = 0
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        #: Ordered by when each client last read something: no search among thousands.
        self._unread: dict[SlowReader, int] = {}
        self._unread_bytes = 0
        #: Bytes of answers that had to wait and were sent since the last trim.
        self._freed_bytes = 0

    def take(self, request: Hashable, size: int, wanted: int) -> Memory:
        """Return a buffer with arbitrary contents: one of the pool with `wanted` bytes, or a new one of `size`."""
        self._taken = True
        for index, buffer in enumerate(self._free):
            if len(buffer) >= wanted:
                del self._free[index]
                self._free_bytes -= len(buffer)
                break
        else:
            buffer = _memory(_rounded(size))
        if request not in self._arriving:
            self._arriving[request] = 0
            self._begun_at[request] = self._clock()
        self._arriving[request] += len(buffer)
        self._arriving_bytes += len(buffer)
        return buffer

    def grow(self, request: Hashable, buffer: Memory, used: int, size: int, wanted: int) -> Memory:
        """Return a larger buffer that begins with the `used` bytes of a full one, and reclaim that one."""
        if isinstance(buffer, mmap.mmap) and not any(len(kept) >= wanted for kept in self._free):
            before = len(buffer)
            with suppress(BufferError, SystemError):  # maps cannot grow on every system
                buffer.resize(_rounded(size))  # no copy: the kernel moves pages
                self._arriving[request] += len(buffer) - before
                self._arriving_bytes += len(buffer) - before
                return buffer
        larger = self.take(request, size, wanted)
        larger[:used] = memoryview(buffer)[:used]
        self.give(request, buffer)
        return larger

    def give(self, request: Hashable, buffer: Memory) -> None:
        """Take back a buffer, and wake requests that waited for memory."""
        self._arriving_bytes -= len(buffer)
        left = self._arriving[request] - len(buffer)
        if left:
            self._arriving[request] = left
        else:
            del self._arriving[request], self._begun_at[request]
        if len(buffer) >= _POOLED_BYTES_MIN and self._free_bytes + len(buffer) <= _POOL_BYTES_MAX:
            self._free.append(buffer)
            self._free.sort(key=len)
            self._free_bytes += len(buffer)
        else:
            self._discard([buffer])
        if self._waiting:
            self._wake()

    def has_room(self, request: Hashable, size: int) -> bool:
        """Return whether a request may take another `size` bytes."""
        return self._arriving_bytes + size <= self._limit or request is next(iter(self._arriving), request)

    def wait(self, request: Hashable, go_on: Callable[[], object]) -> None:
        """Call `go_on` when there may be room."""
        self._waiting[request] = go_on

    def forget_wait(self, request: Hashable) -> None:
        self._waiting.pop(request, None)

    def is_late(self, request: Hashable) -> bool:
        """Return whether a request exceeds its arrival time while others wait for memory."""
        begun_at = self._begun_at.get(request)
        return bool(self._waiting) and begun_at is not None and self._clock() > begun_at + _ARRIVAL_S_MAX

    def trim(self) -> None:
        """Return memory unused since the last call to the system, and wake all that wait."""
        if not self._taken and self._free:
            free, self._free = self._free, []
            self._free_bytes = 0
            self._discard(free)
        self._taken = False
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for go_on in waiting:
            go_on()

    def _wake(self) -> None:
        """Wake the first waiter, and the oldest request; each wakes the next when it returns memory."""
        for request in {next(iter(self._waiting)), next(iter(self._arriving), None)}:
            go_on = self._waiting.pop(request, None)
            if go_on is not None:
                go_on()

    def trims_heap(self) -> bool:
        """Return whether so many answers were sent that the heap may be fragmented; True once."""
        if self._freed_bytes < _HOLES_BYTES_MIN or self._unread_bytes > self._freed_bytes:
            return False
        self._freed_bytes = 0
        return True

    def hold_answers(self, reader: SlowReader, size: int) -> None:
        """Record the size of the answers that wait for a client, each time that it changes.

        Above the limit, close the client that has not read for longest, among those that hold at least the average.
        """
        before = self._unread.pop(reader, 0)
        self._unread_bytes += size - before
        self._freed_bytes += max(0, before - size)
        if size:
            self._unread[reader] = size
        while self._unread_bytes > self._limit and len(self._unread) > 1:
            readers = len(self._unread)
            oldest = next(each for each, held in self._unread.items() if held * readers >= self._unread_bytes)
            self._closings.warn(
                oldest.peer.client_host, f"it does not read its answers, of which {self._unread_bytes} bytes wait"
            )
            self._unread_bytes -= self._unread.pop(oldest)
            oldest.close()
