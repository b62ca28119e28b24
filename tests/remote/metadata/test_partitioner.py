from __future__ import annotations

from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.partitioner import metadata_partition
from tests.remote.goldens import GOLDENS
from tests.remote.values import PARTITION


def test_partitions_map_as_kafkas_partitioner_maps_them() -> None:
    for count, expected in GOLDENS["partitions"].items():
        found = [
            metadata_partition(TopicIdPartition(PARTITION.topic_id, "flights", number), int(count))
            for number in range(len(expected))
        ]
        assert found == expected
