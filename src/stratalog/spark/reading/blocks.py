"""The bytes of a piece in blocks, read ahead on other threads.

Local blocks are read into buffers that are used again: a consumer is done with a block when it asks for the next one.
Remote blocks are ranged gets, several under way at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.spark.byte_sources import ByteSources
from stratalog.spark.model import Place, PlaceTier

LOCAL_BLOCK_BYTES: Final = 8 * 1024 * 1024
REMOTE_BLOCK_BYTES: Final = 8 * 1024 * 1024
REMOTE_GETS_AT_ONCE: Final = 3


class Block(NamedTuple):
    """Bytes of a file or object from `position` on. Valid until the next block is asked for."""

    position: int
    data: Buffer


def read_blocks(byte_sources: ByteSources, place: Place, start: int, end: int) -> Iterator[Block]:
    """Bytes [start, end) in order; ends early where the file or object does.

    Raises PlaceMissingError before the first block if there is no such file or object; OSError, RemoteStorageError.
    """
    return (_local_blocks if place.tier is PlaceTier.LOCAL else _remote_blocks)(byte_sources, place, start, end)


def _local_blocks(byte_sources: ByteSources, place: Place, start: int, end: int) -> Iterator[Block]:
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


def _remote_blocks(byte_sources: ByteSources, place: Place, start: int, end: int) -> Iterator[Block]:
    starts = iter(range(start, end, REMOTE_BLOCK_BYTES))
    under_way: deque[tuple[int, int, Future[Buffer]]] = deque()
    with ThreadPoolExecutor(REMOTE_GETS_AT_ONCE, thread_name_prefix="stratalog-get") as pool:
        try:
            while True:
                while len(under_way) < REMOTE_GETS_AT_ONCE and (at := next(starts, None)) is not None:
                    stop = min(at + REMOTE_BLOCK_BYTES, end)
                    under_way.append((at, stop, pool.submit(byte_sources.get_range, place, at, stop)))
                if not under_way:
                    return
                position, stop, future = under_way.popleft()
                data = future.result()
                size = memoryview(data).nbytes
                byte_sources.count(size)
                if size:
                    yield Block(position, data)
                if size < stop - position:
                    return
        finally:
            for _, _, future in under_way:
                future.cancel()
