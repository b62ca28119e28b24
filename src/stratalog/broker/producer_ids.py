"""Producer ids for idempotent producers: unique in the cluster for all time, also across restarts."""

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

#: With no more ids than that left, the next block is asked for. Source: a tenth of a block in Kafka.
_FEW = 100


class ProducerIds:
    """Hands out producer ids from blocks that `source` gives for good. Thread-safe.

    Ids left over in a block when the broker stops are never used, as in Kafka.
    """

    def __init__(self, source: ProducerIdSource, reserved_max: Callable[[], int] = lambda: -1) -> None:
        """`reserved_max`: the largest id that came with logs of other clusters, whose block `source` has passed by."""
        self._source = source
        self._reserved_max = reserved_max
        #: What is left of blocks, in order.
        self._left: deque[range] = deque()
        self._lock = threading.Lock()
        self._taking: asyncio.Future[None] | None = None

    def next(self) -> int:
        """Return a producer id that is not in use; may block on disk where `ready` was not awaited before.

        Raises KafkaStorageError when a new block cannot be written down.
        """
        with self._lock:
            if not self._count():
                self._left.append(_ids(self._source.allocate_producer_ids()))
            ids = self._left[0]
            self._left[0] = ids[1:]
            return ids[0]

    async def ready(self, workers: Workers) -> None:
        """Return once `next` gives an id without a wait, which holds for the caller's next step on the loop.

        Blocks are taken on a worker, the next one before the last is used up. When none can be had, `next` says why.
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
            taking = self._taking  # by the time that the caller goes on, another may have begun the next block
            await asyncio.wait([taking])
            if taking.cancelled() or taking.exception() is not None:
                return

    def _take_block(self) -> None:
        ids = _ids(self._source.allocate_producer_ids())
        with self._lock:
            self._left.append(ids)

    def _count(self) -> int:
        """Return how many ids are left, after letting go of those that may not be used."""
        reserved_max = self._reserved_max()
        while self._left and (not self._left[0] or self._left[0][0] <= reserved_max):
            self._left.popleft()
        return sum(map(len, self._left))


def _ids(block: ProducerIdBlock) -> range:
    return range(block.first, block.first + block.size)


def _say_failure(taking: asyncio.Future[None]) -> None:
    if not taking.cancelled() and (error := taking.exception()) is not None:
        logger.warning("A block of producer ids cannot be taken: %s", error)
