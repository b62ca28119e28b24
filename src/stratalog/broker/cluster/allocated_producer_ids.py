"""Blocks of producer ids, allocated by the controllers of a cluster (KIP-730)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from stratalog.broker.cluster.forwarding import Forwarder
from stratalog.broker.metadata import ProducerIdBlock
from stratalog.errors import CoordinatorLoadInProgressError, StratalogError
from stratalog.wire import ApiKey

logger = logging.getLogger(__name__)

_VERSIONS: Final = (0, 0)


class AllocatedProducerIds:
    """A non-blocking `ProducerIdSource`: the next block is requested in advance. Thread-safe."""

    def __init__(self, forwarder: Forwarder, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._forwarder = forwarder
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._lock = threading.Lock()
        self._next: ProducerIdBlock | None = None
        self._asking = False
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stratalog-producer-ids")

    def prefetch(self) -> None:
        """Request a block, unless one is available or requested."""
        with self._lock:
            if self._next is None and not self._asking and not self._closed:
                self._asking = True
                self._thread.submit(self._ask)

    def allocate_producer_ids(self) -> ProducerIdBlock:
        """Return the next block. CoordinatorLoadInProgressError, at which clients retry, while there is none."""
        with self._lock:
            block, self._next = self._next, None
        self.prefetch()
        if block is None:
            raise CoordinatorLoadInProgressError("the controller has not allocated producer ids yet")
        return block

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self) -> None:
        block = None
        try:
            answer = self._forwarder.ask(
                ApiKey.ALLOCATE_PRODUCER_IDS, _VERSIONS, broker_id=self._node_id, broker_epoch=self._broker_epoch()
            )
            if int(answer.error_code):
                logger.warning("The controller allocates no producer ids: %s", answer.error_code.name)
            else:
                block = ProducerIdBlock(int(answer.producer_id_start), int(answer.producer_id_len))
        except (StratalogError, OSError) as error:
            logger.warning("The controller allocates no producer ids: %s", error)
        finally:
            with self._lock:
                self._asking = False
                self._next = block or self._next
