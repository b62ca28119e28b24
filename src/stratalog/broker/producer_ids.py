"""Producer ids for idempotent producers: unique in the cluster for all time, also across restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.broker.metadata import ProducerIdBlock, ProducerIdSource


class ProducerIds:
    """Hands out producer ids from blocks that `source` gives for good. Thread-safe.

    Ids left over in a block when the broker stops are never used, as in Kafka.
    """

    def __init__(self, source: ProducerIdSource, reserved_max: Callable[[], int] = lambda: -1) -> None:
        """`reserved_max`: the largest id that came with logs of other clusters, whose block `source` has passed by."""
        self._source = source
        self._reserved_max = reserved_max
        self._block = ProducerIdBlock(0, 0)
        self._used = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return a producer id that is not in use. Raises KafkaStorageError when a new block cannot be written down."""
        with self._lock:
            if self._used == self._block.size or self._block.first + self._used <= self._reserved_max():
                self._block = self._source.allocate_producer_ids()
                self._used = 0
            self._used += 1
            return self._block.first + self._used - 1
