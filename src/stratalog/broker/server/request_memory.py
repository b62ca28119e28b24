"""Memory that clients can make the broker hold: requests that have arrived in part, and answers that are not read.

    queued.max.request.bytes   bounds the first; more of a large request is read only when there is room
    the same number            bounds the second; the client that has read nothing for longest has to go

Small requests never wait: they are received into memory that all connections share. So clients that fill this memory
hold up large requests of others only, and those not for long: while anybody waits, a request that does not arrive
within some seconds is given up, its connection with it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Protocol

from stratalog.broker.security import Peer
from stratalog.broker.server.closing_log import ClosingLog

Memory = bytearray | mmap.mmap

#: Buffers of large requests that are kept for the next ones; smaller ones are not worth it.
_POOL_BYTES_MAX: Final = 32 * 1024 * 1024
_POOLED_BYTES_MIN: Final = 64 * 1024
#: Holes in the heap that are worth giving back to the system.
_HOLES_BYTES_MIN: Final = 32 * 1024 * 1024
#: How long a large request may take to arrive while others wait for its memory.
_ARRIVAL_S_MAX: Final = 30.0
#: That part of the machine's memory is for requests, and as much for answers, when no number is set.
_SHARE_OF_MEMORY: Final = 4


def _rounded(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _memory(size: int) -> Memory:
    """Return memory that, where it is large, is there once it is written to, and gone with its last user."""
    if size < _POOLED_BYTES_MIN:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def default_limit(memory_bytes: int, request_bytes_max: int) -> int:
    """Return what may be held when `queued.max.request.bytes` is not set: a share of the memory that there is."""
    return max(memory_bytes // _SHARE_OF_MEMORY, request_bytes_max)


class SlowReader(Protocol):
    """A client that has answers to read."""

    peer: Peer

    def close(self) -> None: ...


class RequestMemory:
    """Belongs to the loop's thread. `clock` counts seconds.

    Invariant: buffers of requests take at most `limit` bytes, beside what the oldest of them needs to be whole, and
    what each connection has received at once when it began. The oldest may always grow, so that there is no deadlock.
    """

    def __init__(
        self,
        limit: int,
        clock: Callable[[], float],
        discard: Callable[[list[Memory]], object] = list.clear,
        closings: ClosingLog | None = None,
    ) -> None:
        """`discard` is given memory that is no longer used; freeing large maps takes a while."""
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
        #: Who took something last comes last: no search among thousands.
        self._unread: dict[SlowReader, int] = {}
        self._unread_bytes = 0
        #: Bytes of answers that had to wait, and do not wait any more.
        self._freed_bytes = 0

    # --- requests -----------------------------------------------------------------------------------------------------

    def take(self, request: Hashable, size: int, wanted: int) -> Memory:
        """Return a buffer with anything in it.

        One that is kept and has at least `wanted` bytes, else of at least `size`.
        """
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
            with suppress(BufferError, SystemError):  # not everywhere can a map grow
                buffer.resize(_rounded(size))  # no byte is copied: the kernel moves pages
                self._arriving[request] += len(buffer) - before
                self._arriving_bytes += len(buffer) - before
                return buffer
        larger = self.take(request, size, wanted)
        larger[:used] = memoryview(buffer)[:used]
        self.give(request, buffer)
        return larger

    def give(self, request: Hashable, buffer: Memory) -> None:
        """Take a buffer back. Requests that waited for it go on."""
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
        """Return whether others wait for memory of a request that should have arrived by now."""
        begun_at = self._begun_at.get(request)
        return bool(self._waiting) and begun_at is not None and self._clock() > begun_at + _ARRIVAL_S_MAX

    def trim(self) -> None:
        """Give memory back to the system that was not used since the last time; let all that wait look again."""
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
        """Let the first one go on, and the one that may always; each wakes the next with what it gives back."""
        for request in {next(iter(self._waiting)), next(iter(self._arriving), None)}:
            go_on = self._waiting.pop(request, None)
            if go_on is not None:
                go_on()

    def trims_heap(self) -> bool:
        """Return whether so many answers have gone that the heap may be mostly holes; True once."""
        if self._freed_bytes < _HOLES_BYTES_MIN or self._unread_bytes > self._freed_bytes:
            return False
        self._freed_bytes = 0
        return True

    # --- answers ------------------------------------------------------------------------------------------------------

    def hold_answers(self, reader: SlowReader, size: int) -> None:
        """Count the answers that wait for a client, at first, and each time that it has taken something.

        Too many of all: who has taken nothing for longest is closed, of those who hold no less than most.
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
                oldest.peer.client_host, f"it does not read, and answers that wait take {self._unread_bytes} bytes"
            )
            self._unread_bytes -= self._unread.pop(oldest)
            oldest.close()
