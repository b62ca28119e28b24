"""TxnOffsetCommit: topics by id, members of the consumer protocol by epoch, a partition that is named several times.

The codes are those of Kafka 4.4.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.broker.admin import create
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server import Broker
from stratalog.wire.api_keys import ApiKey

UNKNOWN = UUID(int=99)
TOO_LARGE, UNKNOWN_PARTITION, UNKNOWN_MEMBER, NO_GROUP, UNKNOWN_ID, STALE_EPOCH = 12, 3, 25, 69, 100, 113


def test_a_commit_by_id_is_answered_as_by_kafka(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "one", 2)
        asked = [{"topic_id": None, "name": "one"}]
        topic_id = wire.call(ApiKey.METADATA, 12, topics=asked).topics[0].topic_id
        for kind, key in ((1, "x"), (0, "g")):
            wire.call(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=(key,))
        producer = wire.call(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id="x", transaction_timeout=60_000, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        assert producer.error_code == 0

        def commit(*topics: tuple[UUID, int], group: str = "g", epoch: int = -1, member: str = "") -> list[Any]:
            parts = [
                {"topic_id": each, "partitions": [{"partition_index": number, "committed_offset": 5}]}
                for each, number in topics
            ]
            answer = wire.call(
                ApiKey.TXN_OFFSET_COMMIT, 6, transactional_id="x", group_id=group, producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch, generation_id=epoch, member_id=member, topics=parts,
            )  # fmt: skip
            return [(topic.topic_id, [int(part.error_code) for part in topic.partitions]) for topic in answer.topics]

        assert commit((topic_id, 0)) == [(topic_id, [0])]
        assert commit((topic_id, 0), (UNKNOWN, 0)) == [(UNKNOWN, [UNKNOWN_ID]), (topic_id, [0])]
        assert commit((topic_id, 7)) == [(topic_id, [UNKNOWN_PARTITION])]
        assert commit((topic_id, 0), group="none", epoch=5, member="m") == [(topic_id, [NO_GROUP])]
        joined = wire.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="c", member_id="aaa", member_epoch=0,
            rebalance_timeout=30_000, subscribed_topic_names=("one",), topic_partitions=(),
        )  # fmt: skip
        now = int(joined.member_epoch)
        for epoch, member, code in (
            (now, "aaa", 0),
            (now - 1, "aaa", STALE_EPOCH),
            (now + 1, "aaa", STALE_EPOCH),
            (now, "bbb", UNKNOWN_MEMBER),
        ):
            assert commit((topic_id, 0), group="c", epoch=epoch, member=member) == [(topic_id, [code])], epoch


@pytest.mark.parametrize("version", [3, 6])
def test_each_mention_of_a_partition_has_its_own_error_and_the_last_good_one_is_committed(
    tmp_path: Path, version: int
) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "one", 2)
        topic = wire.call(ApiKey.METADATA, 12, topics=[{"topic_id": None, "name": "one"}]).topics[0]
        for kind, key in ((1, "x"), (0, "g")):
            wire.call(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=(key,))
        producer = wire.call(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id="x", transaction_timeout=60_000, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        of_producer = {
            "transactional_id": "x",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        if version < 5:  # later ones add the group by themselves
            assert wire.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, group_id="g", **of_producer).error_code == 0
        too_long = "m" * 4097
        parts = [
            {"partition_index": number, "committed_offset": offset, "committed_metadata": metadata}
            for number, offset, metadata in (
                (0, 5, ""),
                (0, 6, too_long),
                (9, 7, ""),
                (1, 8, too_long),
                (0, 9, ""),
                (0, 10, too_long),
                (1, 11, ""),
            )
        ]
        said = {"topic_id": topic.topic_id} if version >= 6 else {"name": "one"}
        answer = wire.call(
            ApiKey.TXN_OFFSET_COMMIT, version, group_id="g", generation_id=-1, member_id="",
            topics=[{**said, "partitions": parts}], **of_producer,
        )  # fmt: skip
        found = [(part.partition_index, int(part.error_code)) for part in answer.topics[0].partitions]
        assert found == [
            (0, 0), (0, TOO_LARGE), (9, UNKNOWN_PARTITION), (1, TOO_LARGE), (0, 0), (0, TOO_LARGE), (1, 0),
        ]  # fmt: skip
        assert wire.call(ApiKey.END_TXN, 3, committed=True, **of_producer).error_code == 0

        def committed() -> list[int]:
            asked = {"group_id": "g", "topics": [{"name": "one", "partition_indexes": (0, 1)}]}
            group = wire.call(ApiKey.OFFSET_FETCH, 9, groups=[asked], require_stable=False).groups[0]
            return [part.committed_offset for part in group.topics[0].partitions]

        wait_until(lambda: committed() == [9, 11], "the transaction is committed")
