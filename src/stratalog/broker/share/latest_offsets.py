"""End offsets of partitions on any broker, to compute the lag of share groups.

Source: `NetworkPartitionMetadataClient` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.broker.batched_requests import BatchedRequests
from stratalog.errors import StratalogError
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices

_VERSIONS: Final = (4, 7)
_LATEST: Final = -1
_CONSUMER: Final = -1


class _Place(NamedTuple):
    topic: str
    partition: int


class LatestOffsets:
    """End offsets for one request. Belongs to the loop's thread."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._requests: BatchedRequests[int, _Place, int | None] = BatchedRequests(self._send, lambda place: place)

    async def of(self, topic: str, partition: int) -> int | None:
        """Return the high watermark of a partition; None if it is unavailable."""
        found = self._broker.logs.get(topic, partition)
        if found is not None and found.leader_epoch >= 0:
            return found.log.high_watermark
        cluster = self._broker.cluster
        leader = None if cluster is None else cluster.leader(topic, partition)
        if leader is None or leader[0] < 0:
            return None
        try:
            return await self._requests.ask(leader[0], _Place(topic, partition))
        except (StratalogError, OSError):  # no response of the leader
            return None

    async def _send(self, broker: int, places: Sequence[_Place]) -> list[int | None]:
        assert self._broker.cluster is not None
        topics: dict[str, list[dict[str, int]]] = {}
        for place in places:
            asked = {"partition_index": place.partition, "current_leader_epoch": -1, "timestamp": _LATEST}
            topics.setdefault(place.topic, []).append(asked)
        answer = await self._broker.cluster.ask(
            broker,
            ApiKey.LIST_OFFSETS,
            _VERSIONS,
            replica_id=_CONSUMER,
            isolation_level=0,
            topics=[{"name": name, "partitions": asked} for name, asked in topics.items()],
        )
        found = {
            _Place(topic.name, each.partition_index): int(each.offset)
            for topic in answer.topics
            for each in topic.partitions
            if not int(each.error_code)
        }
        return [found.get(place) for place in places]
