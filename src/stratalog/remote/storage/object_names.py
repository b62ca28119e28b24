"""Keys of the objects of remote segments in the store.

    <topic>-<topic id>/<partition>/<start offset, 20 digits>-<segment id>.<suffix>

below the path of the store's URL; for example in s3://bucket/tiered

    flights-dfcT2RzVTaa2kKZb1VMYtg/3/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.log

Ids are spelled as in Kafka: 22 characters of URL-safe base64, which may contain '-' and '_' like topic names; their
fixed length makes keys parsable. Listing a partition's directory returns its segments in offset order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from stratalog.remote.api import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from stratalog.util import uuid_from_base64, uuid_to_base64

#: Directory of the owning broker's metadata copy (`stratalog metadata`).
METADATA_DIRECTORY = "_metadata"
METADATA_COPY = f"{METADATA_DIRECTORY}/cluster.json"


class ObjectKind(Enum):
    """Kinds of objects of a segment, by suffix of the key."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    MANIFEST = "manifest.json"
    #: The manifest of a replaced segment (`remote.transactions`).
    REPLACED = "replaced.json"


#: Kinds with contents of a segment, in order of a copy.
CONTENTS: tuple[ObjectKind, ...] = tuple(
    kind for kind in ObjectKind if kind not in (ObjectKind.MANIFEST, ObjectKind.REPLACED)
)
#: In order of deletion: no reader sees a partly deleted segment; what a replaced one was is kept to the last.
DELETION_ORDER = (ObjectKind.MANIFEST, *CONTENTS, ObjectKind.REPLACED)


KIND_OF_INDEX = {
    IndexType.OFFSET: ObjectKind.OFFSET_INDEX,
    IndexType.TIMESTAMP: ObjectKind.TIME_INDEX,
    IndexType.TRANSACTION: ObjectKind.TXN_INDEX,
    IndexType.PRODUCER_SNAPSHOT: ObjectKind.PRODUCER_SNAPSHOT,
    IndexType.LEADER_EPOCH: ObjectKind.LEADER_EPOCHS,
}

_ID = r"[A-Za-z0-9_-]{22}"
_DIRECTORY = re.compile(rf"(?P<topic>[a-zA-Z0-9._-]+)-(?P<topic_id>{_ID})")
_KEY = re.compile(
    rf"{_DIRECTORY.pattern}/(?P<partition>0|[1-9]\d*)/(?P<start>\d{{20}})-(?P<id>{_ID})\.(?P<suffix>[a-z.-]+)"
)
_KINDS = {kind.value: kind for kind in ObjectKind}


@dataclass(frozen=True, slots=True)
class ObjectKey:
    segment_id: RemoteLogSegmentId
    start_offset: int
    kind: ObjectKind

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata, kind: ObjectKind) -> ObjectKey:
        return cls(metadata.segment_id, metadata.start_offset, kind)

    def __str__(self) -> str:
        directory = partition_directory(self.segment_id.topic_id_partition)
        return f"{directory}/{self.start_offset:020d}-{uuid_to_base64(self.segment_id.id)}.{self.kind.value}"

    @classmethod
    def parse(cls, key: str) -> ObjectKey | None:
        """Return the parts of `key`, or None unless it is the key of a segment's object."""
        match = _KEY.fullmatch(key)
        if match is None or match["suffix"] not in _KINDS:
            return None
        try:
            topic_id, segment_id = uuid_from_base64(match["topic_id"]), uuid_from_base64(match["id"])
        except ValueError:
            return None
        partition = TopicIdPartition(topic_id, match["topic"], int(match["partition"]))
        return cls(RemoteLogSegmentId(partition, segment_id), int(match["start"]), _KINDS[match["suffix"]])


def topic_directory(partition: TopicIdPartition) -> str:
    """Return the directory of a topic's partitions, without a trailing slash."""
    return f"{partition.topic}-{uuid_to_base64(partition.topic_id)}"


def partition_directory(partition: TopicIdPartition) -> str:
    """Return the directory of a partition's segments, without a trailing slash."""
    return f"{topic_directory(partition)}/{partition.partition}"


def parse_topic_directory(name: str) -> str | None:
    """Return the topic of a directory `<topic>-<topic id>`, or None for another name."""
    match = _DIRECTORY.fullmatch(name)
    return None if match is None else match["topic"]
