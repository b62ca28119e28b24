"""TxnOffsetCommit 6: topics by id, members of the consumer protocol by epoch. The codes are those of Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from tests.broker.admin import create
from tests.support.wire import Wire

from stratalog.broker.server import Broker
from stratalog.wire.api_keys import ApiKey

UNKNOWN = UUID(int=99)
UNKNOWN_PARTITION, UNKNOWN_MEMBER, NO_GROUP, UNKNOWN_ID, STALE_EPOCH = 3, 25, 69, 100, 113


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
