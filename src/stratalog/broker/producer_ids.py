"""Producer ids for idempotent producers: unique in the cluster forever, even across restarts."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from stratalog.broker.metadata import ProducerIdBlock, ProducerIdSource

if TYPE_CHECKING:
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

#: When this few ids are left, the next block is requested. Source: a tenth of a block in Kafka.
_FEW = 100


class ProducerIds:
    """Allocates producer ids from blocks of `source`. Thread-safe.

    Ids that are left in a block when the broker stops are never used, as in Kafka.
    """

    def __init__(self, source: ProducerIdSource, reserved_max: Callable[[], int] = lambda: -1) -> None:
        """`reserved_max`: the largest id in logs of other clusters, which the blocks of `source` skip."""
        self._source = source
        self._reserved_max = reserved_max
        #: The unused parts of blocks, in order.
        self._left: deque[range] = deque()
        self._lock = threading.Lock()
        self._taking: asyncio.Future[None] | None = None

    def next(self) -> int:
        """Return an unused producer id; may block on disk unless `ready` was awaited. Raises KafkaStorageError."""
        with self._lock:
            if not self._count():
                self._left.append(_ids(self._source.allocate_producer_ids()))
            ids = self._left[0]
            self._left[0] = ids[1:]
            return ids[0]

    async def ready(self, workers: Workers) -> None:
        """Wait until `next` returns an id without blocking, which holds for the caller's next step on the loop.

        Blocks are allocated on a worker, the next one before the last is used up. If that fails, `next` raises the
        error.
        """
        while True:
            with self._lock:
                count = self._count()
            if count > _FEW:
                return
            if self._taking is None or self._taking.done():
                self._taking = workers.submit(self._take_block)
                self._taking.add_done_callback(_say_failure)
            if count:
                return
            taking = self._taking  # another request may have started the next block before the caller resumes
            await asyncio.wait([taking])
            if taking.cancelled() or taking.exception() is not None:
                return

    def _take_block(self) -> None:
        ids = _ids(self._source.allocate_producer_ids())
        with self._lock:
            self._left.append(ids)

    def _count(self) -> int:
        """Return how many ids are left, after dropping reserved ones."""
        reserved_max = self._reserved_max()
        while self._left and (not self._left[0] or self._left[0][0] <= reserved_max):
            self._left.popleft()
        return sum(map(len, self._left))


def _ids(block: ProducerIdBlock) -> range:
    return range(block.first, block.first + block.size)


def _say_failure(taking: asyncio.Future[None]) -> None:
    if not taking.cancelled() and (error := taking.exception()) is not None:
        logger.warning("A block of producer ids cannot be allocated: %s", error)
