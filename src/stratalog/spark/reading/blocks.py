"""The bytes of a piece in blocks, read ahead on other threads.

Local blocks share one buffer: requesting the next block invalidates the previous one. Remote blocks are ranged gets,
several at the same time.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.inspect import ByteSources, Place, PlaceTier
from stratalog.util import ReadAhead

LOCAL_BLOCK_BYTES: Final = 8 * 1024 * 1024
REMOTE_BLOCK_BYTES: Final = 8 * 1024 * 1024
REMOTE_GETS_AT_ONCE: Final = 3


class Block(NamedTuple):
    """Bytes of a file or object from `position` on. Valid until the next block is requested."""

    position: int
    data: Buffer


def read_blocks(byte_sources: ByteSources, place: Place, start: int, end: int) -> Generator[Block, None, None]:
    """Yield bytes [start, end) in order, fewer where the file or object ends.

    Raises PlaceMissingError before the first block if it does not exist; OSError, RemoteStorageError.
    """
    return (_local_blocks if place.tier is PlaceTier.LOCAL else _remote_blocks)(byte_sources, place, start, end)


def _local_blocks(byte_sources: ByteSources, place: Place, start: int, end: int) -> Generator[Block, None, None]:
    buffer = bytearray(min(LOCAL_BLOCK_BYTES, end - start))
    with byte_sources.open_local(place) as file:
        position = start
        while position < end:
            view = memoryview(buffer)[: min(len(buffer), end - position)]
            got = file.pread_into(view, position)
            byte_sources.count(got)
            if got:
                yield Block(position, view[:got])
            if got < len(view):
                return
            position += got


def _remote_blocks(byte_sources: ByteSources, place: Place, start: int, end: int) -> Generator[Block, None, None]:
    ahead: ReadAhead[int] = ReadAhead("stratalog-get", threads=REMOTE_GETS_AT_ONCE, kept_max=REMOTE_GETS_AT_ONCE)

    def ask(at: int) -> Future[Buffer]:
        return ahead.ask(at, lambda: byte_sources.get_range(place, at, min(at + REMOTE_BLOCK_BYTES, end)))

    with closing(ahead):
        for position in range(start, end, REMOTE_BLOCK_BYTES):
            found = ask(position)
            for at in range(position, end, REMOTE_BLOCK_BYTES)[1:REMOTE_GETS_AT_ONCE]:
                ask(at)
            data = found.result()
            size = memoryview(data).nbytes
            byte_sources.count(size)
            if size:
                yield Block(position, data)
            if size < min(REMOTE_BLOCK_BYTES, end - position):
                return
