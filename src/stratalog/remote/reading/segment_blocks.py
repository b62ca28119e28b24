"""Records of remote segments in blocks: fetched in large ranges, read ahead, and cached briefly.

Consumers read a segment in small pieces, one after the other; stores are fast only for large concurrent ranges. So
ranges are fetched in blocks of `BLOCK_BYTES`, sequential reads prefetch the next blocks, and the last blocks stay in
memory up to a limit.

The prefetch depth adapts to the reader of each partition: it doubles when the reader has to wait for a block, and
decreases by one when all blocks were ready. Most consumers are slower than a store, and a burst of fetches takes CPU
time from everything else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteStorageManager, TopicIdPartition, fetch_records
from stratalog.util import ReadAhead

BLOCK_BYTES = 4 * 1024 * 1024
BLOCKS_AHEAD = 4
CAPACITY_BYTES = 128 * 1024 * 1024
#: Partitions whose prefetch depth is remembered.
_PACES_MAX: Final = 4096

_Key = tuple[bytes, int]


class SegmentBlocks:
    """Blocks of segments through `rsm`. Thread-safe; concurrent readers of a block share one fetch."""

    def __init__(
        self,
        rsm: RemoteStorageManager,
        *,
        block_bytes: int = BLOCK_BYTES,
        blocks_ahead: int = BLOCKS_AHEAD,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self._rsm = rsm
        self._block_bytes = block_bytes
        self._ahead_max = blocks_ahead
        self._ahead: OrderedDict[TopicIdPartition, int] = OrderedDict()
        kept_max = max(capacity_bytes // block_bytes, blocks_ahead + 2)
        self._blocks: ReadAhead[_Key] = ReadAhead("remote-read-ahead", threads=blocks_ahead, kept_max=kept_max)
        self._lock = threading.Lock()

    def read(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> list[memoryview]:
        """Return the bytes [start, end) of a segment, as pieces in order. Fewer only at the end of the segment.

        Raises RemoteStorageError.
        """
        end = min(end, metadata.segment_size_bytes)
        if start >= end:
            return []
        size = self._block_bytes
        first, last = start // size, (end - 1) // size
        has_to_wait = self._is_done(metadata, first) is False
        futures = [self._block(metadata, number) for number in range(first, last + 1)]
        if self._was_read(metadata, first - 1) or last > first:
            self._read_ahead(metadata, last + 1, has_to_wait=has_to_wait)
        pieces = []
        for number, future in zip(range(first, last + 1), futures, strict=True):
            block = self._result(metadata, number, future)
            at = number * size
            pieces.append(block[max(start - at, 0) : end - at])
        return pieces

    def forget(self, segment_id: bytes) -> None:
        self._blocks.forget(lambda key: key[0] == segment_id)

    def close(self) -> None:
        """Stop fetching, and wait for fetches in progress. Close the storage manager first."""
        self._blocks.close()

    def _was_read(self, metadata: RemoteLogSegmentMetadata, number: int) -> bool:
        return number < 0 or self._is_done(metadata, number) is not None

    def _is_done(self, metadata: RemoteLogSegmentMetadata, number: int) -> bool | None:
        """Return whether a block is ready, or None if it was never requested."""
        return self._blocks.is_done(_key(metadata, number))

    def _read_ahead(self, metadata: RemoteLogSegmentMetadata, first: int, *, has_to_wait: bool) -> None:
        behind = -(-metadata.segment_size_bytes // self._block_bytes)
        count = self._count_ahead(metadata, first, behind, has_to_wait=has_to_wait)
        for number in range(first, min(first + count, behind)):
            self._block(metadata, number)

    def _count_ahead(self, metadata: RemoteLogSegmentMetadata, first: int, behind: int, *, has_to_wait: bool) -> int:
        partition = metadata.topic_id_partition
        with self._lock:
            count = self._ahead.pop(partition, 1)
            if has_to_wait:
                count = min(2 * count, self._ahead_max)
            elif all(self._is_done(metadata, number) for number in range(first, min(first + count, behind))):
                count = max(count - 1, 1)
            self._ahead[partition] = count
            if len(self._ahead) > _PACES_MAX:
                self._ahead.popitem(last=False)
            return count

    def _block(self, metadata: RemoteLogSegmentMetadata, number: int) -> Future[Buffer]:
        """Return the future of a block, fetching it if needed."""
        try:
            return self._blocks.ask(_key(metadata, number), partial(self._fetch, metadata, number))
        except CancelledError as error:
            raise RetriableRemoteStorageError("the remote tier is being closed") from error

    def _result(self, metadata: RemoteLogSegmentMetadata, number: int, block: Future[Buffer]) -> memoryview:
        try:
            return memoryview(self._blocks.result(_key(metadata, number), block))
        except CancelledError as error:
            raise RetriableRemoteStorageError("the remote tier is being closed") from error

    def _fetch(self, metadata: RemoteLogSegmentMetadata, number: int) -> memoryview:
        start = number * self._block_bytes
        end = min(start + self._block_bytes, metadata.segment_size_bytes)
        return fetch_records(self._rsm, metadata, start, end)


def _key(metadata: RemoteLogSegmentMetadata, number: int) -> _Key:
    return metadata.segment_id.id.bytes, number
