"""Blocks of producer ids, which the controllers of a cluster hand out (KIP-730)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stratalog.broker.cluster.forwarding import Forwarder
from stratalog.broker.metadata import ProducerIdBlock
from stratalog.errors import CoordinatorLoadInProgressError
from stratalog.wire import ApiKey

_VERSIONS: Final = (0, 0)


class AllocatedProducerIds:
    """A `ProducerIdSource`. Thread-safe."""

    def __init__(self, forwarder: Forwarder, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._forwarder = forwarder
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    def allocate_producer_ids(self) -> ProducerIdBlock:
        """Raise CoordinatorLoadInProgressError, at which clients ask again, when the controller gives none."""
        answer = self._forwarder.ask(
            ApiKey.ALLOCATE_PRODUCER_IDS, _VERSIONS, broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        if int(answer.error_code):
            raise CoordinatorLoadInProgressError(f"the controller gives no producer ids: {answer.error_code.name}")
        return ProducerIdBlock(int(answer.producer_id_start), int(answer.producer_id_len))
