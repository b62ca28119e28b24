"""Cut the bytes that a connection receives into requests. Independent of sockets and APIs.

    frame:  size int32 | that many bytes

    space() -> where to receive the next bytes;  received(count);  frames() -> the complete ones;  settle()

Frames up to half of the shared scratch buffer are views into it. Larger ones are received into a pooled buffer. Both
are writable, so that an append can stamp offsets in place. Both are reused after `settle`: no frame may be accessed
after it. Incomplete bytes move to a buffer of the connection.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Protocol

from stratalog.broker.server.request_memory import Memory
from stratalog.errors import InvalidRequestError
from stratalog.wire import INT32, REQUEST_HEAD

#: The size of a request is at least that of its header.
_REQUEST_BYTES_MIN: Final = REQUEST_HEAD.size + 2
#: The buffer of a large request grows with the bytes that arrive: to this multiple of them, or to this at first.
_LARGE_GROWTH: Final = 4
_LARGE_BUFFER_BYTES: Final = 4096
#: Bytes to receive at once before an expected large request, so that little of it has to be moved.
_EXPECT_LARGE_BYTES: Final = 4096
#: Bytes to receive at once: more delays other connections, by the copy and by page faults on new memory.
_RECEIVE_BYTES_MAX: Final = 1024 * 1024

_NOTHING: Final = memoryview(b"")


class LargeMemory(Protocol):
    """Memory of large requests: see `RequestMemory`."""

    def take(self, request: Hashable, size: int, wanted: int) -> Memory: ...
    def grow(self, request: Hashable, buffer: Memory, used: int, size: int, wanted: int) -> Memory: ...
    def give(self, request: Hashable, buffer: Memory) -> None: ...
    def has_room(self, request: Hashable, size: int) -> bool: ...


class Buffers(Protocol):
    """Memory that all connections share."""

    #: Where every connection receives small requests. Its contents belong to a connection between `space` and `settle`.
    scratch: memoryview
    memory: LargeMemory


class Framing:
    """The stream of one connection.

    Invariant: between `settle` and the next `space` nothing here refers to the scratch buffer.
    """

    __slots__ = (
        "_buffers",
        "_end",
        "_expect_large",
        "_large",
        "_large_need",
        "_large_used",
        "_position",
        "_size_max",
        "_size_min",
        "_view",
    )

    def __init__(self, buffers: Buffers, size_max: int) -> None:
        self._buffers = buffers
        self._size_min = _REQUEST_BYTES_MIN
        self._size_max = size_max
        #: Bytes that were received but not yet taken as frames: _view[_position:_end].
        self._view = _NOTHING
        self._position = 0
        self._end = 0
        self._expect_large = False
        #: A request larger than half of the scratch buffer, including its size field.
        self._large: Memory | None = None
        self._large_used = 0
        self._large_need = 0

    def expect_messages(self, size_max: int) -> None:
        """Accept SASL messages of any length up to `size_max`, until `expect_requests`."""
        self._size_min, self._size_max = 0, size_max

    def expect_requests(self, size_max: int) -> None:
        """Accept requests with a header, from the next receive on."""
        self._size_min, self._size_max = _REQUEST_BYTES_MIN, size_max

    @property
    def is_large_begun(self) -> bool:
        """Whether a large request has arrived in part, so that more of it has probably arrived."""
        return self._large is not None and self._large_used < self._large_need

    @property
    def is_starved(self) -> bool:
        """Whether the next `space` needs memory that is not available."""
        large = self._large
        if large is None or self._large_used < len(large):
            return False
        size = min(self._large_need, _LARGE_GROWTH * len(large))
        return not self._buffers.memory.has_room(self, size)

    @property
    def has_leftover(self) -> bool:
        """Whether bytes wait here for `frames`, or for the rest of their frame."""
        return self._position < self._end or self._large_need > 0

    @property
    def kept_bytes(self) -> int:
        """Memory of the leftover bytes, without a large request."""
        own = self._view is not _NOTHING and self._view is not self._buffers.scratch
        return len(self._view) if own else self._end - self._position

    def space(self) -> memoryview:
        """Return where to receive the next bytes. All complete frames must have been taken."""
        large = self._large
        if large is not None:
            if self._large_used == len(large):
                large = self._grow(large)
            end = min(self._large_need, self._large_used + _RECEIVE_BYTES_MAX)
            return memoryview(large)[self._large_used : end]
        scratch = self._buffers.scratch
        left = self._end - self._position
        if left:
            scratch[:left] = self._view[self._position : self._end]
        self._view = scratch
        self._position, self._end = 0, left
        return scratch[left : left + _EXPECT_LARGE_BYTES] if self._expect_large else scratch[left:]

    def received(self, count: int) -> None:
        """Record the number of bytes that were received into `space`."""
        if self._large is not None:
            self._large_used += count
        else:
            self._end += count

    def frames(self) -> Iterator[memoryview]:
        """Yield the complete requests, without their sizes. A caller that stops continues with another call.

        Raises InvalidRequestError for an impossible size; the stream is unreadable from there on.
        """
        if self._large is not None:
            if self._large_used == self._large_need:
                self._large_need = 0  # taken; `settle` gives the buffer back
                yield memoryview(self._large)[4 : self._large_used]
            return
        view, position, end = self._view, self._position, self._end
        size_min, size_max = self._size_min, self._size_max
        unpack_size = INT32.unpack_from
        while end - position >= 4:
            (size,) = unpack_size(view, position)
            if not size_min <= size <= size_max:
                raise InvalidRequestError(_bad_size(size, size_max))
            next_position = position + 4 + size
            if next_position > end:
                self._expect_large = size > len(self._buffers.scratch) // 2
                if self._expect_large:
                    self._begin_large(view[position:end], 4 + size)
                    self._position = end
                return
            self._position = next_position
            self._expect_large = False
            yield view[position + 4 : next_position]
            position = next_position

    def settle(self) -> None:
        """Release shared memory. Frames that were yielded become invalid."""
        if self._large is not None and not self._large_need:
            self._buffers.memory.give(self, self._large)
            self._large = None
        if self._position == self._end:
            self._view = _NOTHING
            self._position = self._end = 0
        elif self._view is self._buffers.scratch:
            own = bytearray(self._view[self._position : self._end])
            self._view, self._position, self._end = memoryview(own), 0, len(own)

    def clear(self) -> None:
        """Discard everything: the connection is closed."""
        self._position = self._end
        self._large_need = 0
        self.settle()

    def _begin_large(self, begun: memoryview, need: int) -> None:
        size = min(need, max(_LARGE_BUFFER_BYTES, _LARGE_GROWTH * len(begun)))
        if not self._buffers.memory.has_room(self, size):
            size = len(begun)
        self._large = buffer = self._buffers.memory.take(self, size, need)
        buffer[: len(begun)] = begun
        self._large_used = len(begun)
        self._large_need = need

    def _grow(self, buffer: Memory) -> Memory:
        need, used = self._large_need, self._large_used
        larger = self._buffers.memory.grow(self, buffer, used, min(need, _LARGE_GROWTH * len(buffer)), need)
        self._large = larger
        return larger


def _bad_size(size: int, size_max: int) -> str:
    if size > size_max:
        hint = _foreign_protocol(size)
        return f"a request of {size} bytes, but socket.request.max.bytes allows {size_max}{hint}"
    return f"{size} bytes cannot be a request"


def _foreign_protocol(size: int) -> str:
    """Return a guess at the protocol when the first four bytes are no size."""
    head = size.to_bytes(4, "big")
    if head[:2] == b"\x16\x03":
        return " (that is TLS; this listener speaks plain text)"
    if head in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return " (that is HTTP)"
    return ""
