"""A follower's queries to its leader: start and end of the leader's log, and the end of an epoch.

Source: `RemoteLeaderEndPoint` of Kafka 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_PENDING_UPLOAD_OFFSET, UnreachableError

if TYPE_CHECKING:
    from stratalog.engine.partition import Partition
    from stratalog.wire.client import Client

_EPOCH_VERSIONS: Final = (3, 4)
#: ListOffsets reports the local log start from version 8 on (KIP-405).
_OFFSET_VERSIONS: Final = (8, 9)
#: It reports the earliest offset to be uploaded from version 11 on (KIP-1023).
_PENDING_UPLOAD_VERSIONS: Final = (11, 11)


@dataclass(frozen=True, slots=True)
class LeaderQuestions:
    """Queries in one leader epoch. An error of the leader is an UnreachableError, retried after the backoff."""

    client: Client
    node_id: int
    partition: Partition
    leader_epoch: int

    def offset(self, timestamp: int) -> tuple[int, int]:
        """Return the offset of a special timestamp, and its leader epoch (-1 if unknown)."""
        wanted = {
            "partition_index": self.partition.partition,
            "current_leader_epoch": self.leader_epoch,
            "timestamp": timestamp,
        }
        response = self.client.call(
            ApiKey.LIST_OFFSETS,
            _PENDING_UPLOAD_VERSIONS if timestamp == EARLIEST_PENDING_UPLOAD_OFFSET else _OFFSET_VERSIONS,
            replica_id=self.node_id,
            isolation_level=0,
            topics=[{"name": self.partition.topic, "partitions": [wanted]}],
        )
        answer = response.topics[0].partitions[0]
        _check("ListOffsets", answer)
        return int(answer.offset), int(answer.leader_epoch)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch of the leader up to `epoch`, and the offset after its last record."""
        wanted = {
            "partition": self.partition.partition,
            "current_leader_epoch": self.leader_epoch,
            "leader_epoch": epoch,
        }
        response = self.client.call(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            _EPOCH_VERSIONS,
            replica_id=self.node_id,
            topics=[{"topic": self.partition.topic, "partitions": [wanted]}],
        )
        answer = response.topics[0].partitions[0]
        _check("OffsetForLeaderEpoch", answer)
        return int(answer.leader_epoch), int(answer.end_offset)


def _check(what: str, answer: Any) -> None:
    if int(answer.error_code):
        raise UnreachableError(f"{what}: {answer.error_code.name.upper()}")
