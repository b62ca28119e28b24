"""The broker for the tests of others: time that is moved, and surroundings that fail."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from stratalog.log import PartitionLog
from stratalog.records import iter_batches
from stratalog.remote.api import RemoteLogSegmentState
from stratalog.testing.broker import BrokerUnderTest
from stratalog.wire.api_keys import ApiKey
from tests.broker.groups.scenario import join
from tests.support.wire import Wire

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test_with_stratalog.md"
TIERED = {"remote.storage.enable": "true", "segment.ms": "60000", "message.timestamp.type": "LogAppendTime"}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerUnderTest]:
    with BrokerUnderTest({"remote.log.storage.system.enable": True}) as broker:
        yield broker


@pytest.fixture
def own() -> Iterator[BrokerUnderTest]:
    with BrokerUnderTest() as broker:
        yield broker


Send = Callable[..., None]


@pytest.fixture
def send(broker: BrokerUnderTest) -> Send:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})

    def send(topic: str, *values: str, key: str | None = None) -> None:
        for value in values:
            producer.produce(topic, value.encode(), key)
            assert producer.flush(30) == 0

    return send


def offsets(broker: BrokerUnderTest, topic: str) -> tuple[int, int, int]:
    """Return the start of a partition, the start of what of it is on the disk, and its end."""
    log = log_of(broker, topic)
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def log_of(broker: BrokerUnderTest, topic: str) -> PartitionLog:
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    return partition.log


def remote_states(broker: BrokerUnderTest, topic: str) -> list[RemoteLogSegmentState]:
    partition, remote = broker.services.partition(topic, 0), broker.services.logs.remote
    assert partition is not None
    assert remote is not None
    return [segment.state for segment in remote.segments(partition.topic_id_partition)]


# --- time -------------------------------------------------------------------------------------------------------------


def test_records_are_gone_when_their_retention_is_over_and_not_before(broker: BrokerUnderTest, send: Send) -> None:
    broker.create_topic("kept", config={"retention.ms": str(10 * HOUR_MS)})
    send("kept", "a", "b")
    broker.clock.advance(hours=9)
    assert offsets(broker, "kept") == (0, 0, 2)
    broker.clock.advance(hours=2)
    assert offsets(broker, "kept") == (2, 2, 2)


def test_segments_go_to_the_tier_leave_the_disk_and_are_deleted_in_the_tier(
    broker: BrokerUnderTest, send: Send
) -> None:
    config = {"retention.ms": str(100 * HOUR_MS), "local.retention.ms": str(HOUR_MS)}
    broker.create_topic("tiered", config=TIERED | config)
    send("tiered", "a")
    broker.clock.advance(minutes=2)
    send("tiered", "b")
    broker.clock.advance(minutes=2)
    assert remote_states(broker, "tiered") == [RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    assert offsets(broker, "tiered") == (0, 0, 2)
    broker.clock.advance(hours=2)
    assert offsets(broker, "tiered") == (0, 2, 2)
    broker.clock.advance(hours=100)
    assert remote_states(broker, "tiered") == []
    assert offsets(broker, "tiered") == (2, 2, 2)


def test_a_compacted_topic_is_compacted(broker: BrokerUnderTest, send: Send) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "60000", "message.timestamp.type": "LogAppendTime"}
    broker.create_topic("compacted", config=config)
    send("compacted", "1", "2", "3", key="k")
    broker.clock.advance(minutes=2)
    send("compacted", "4", key="k")
    broker.clock.advance(minutes=2)
    log = log_of(broker, "compacted")
    slice_ = log.read(0, 10**6).slice
    assert slice_ is not None
    assert [batch.last_offset for batch in iter_batches(slice_.read())] == [2]


def test_a_member_that_is_silent_leaves_its_group(broker: BrokerUnderTest) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        joined = join(wire, "silent")
        assert joined.error_code in (0, 79)
        if joined.error_code:
            assert join(wire, "silent", joined.member_id).error_code == 0
        assert len(wire.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["silent"]).groups[0].members) == 1
        broker.clock.advance(minutes=30)
        assert wire.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["silent"]).groups[0].members == ()


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_forgotten(broker: BrokerUnderTest) -> None:
    broker.create_topic("paid", config={"retention.ms": "-1"})
    settings = {"transactional.id": "pay", "transaction.timeout.ms": 60_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("paid", b"open")
    assert producer.flush(30) == 0
    log = log_of(broker, "paid")

    broker.clock.advance(seconds=30)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 1)
    broker.clock.advance(minutes=2)
    assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
    with Wire(broker.bootstrap_servers) as wire:
        assert len(active_producers(wire, "paid")) == 1
        broker.clock.advance(days=2)
        assert active_producers(wire, "paid") == ()


def active_producers(wire: Wire, topic: str) -> Any:
    asked = [{"name": topic, "partition_indexes": [0]}]
    return wire.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions[0].active_producers


def test_a_fetch_that_waits_is_answered_when_its_time_is_over(broker: BrokerUnderTest) -> None:
    broker.create_topic("empty")
    with Wire(broker.bootstrap_servers) as wire:
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10**6}
        topics = [{"topic": "empty", "partitions": [wanted]}]
        wire.send(ApiKey.FETCH, 11, max_wait=1_000_000, min_bytes=1, max_bytes=10**6, session_epoch=-1, topics=topics)
        broker.clock.advance(minutes=20)
        answer = wire.receive(ApiKey.FETCH, 11)
        assert (answer.error_code, len(answer.responses[0].partitions[0].records or b"")) == (0, 0)


def test_time_does_not_run_backwards(broker: BrokerUnderTest) -> None:
    with pytest.raises(ValueError, match="backwards"):
        broker.clock.advance(hours=-1)


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["store_down", "store_denied"])
def test_copies_wait_while_the_store_is_away_and_are_made_up_for(
    broker: BrokerUnderTest, send: Send, fault: str
) -> None:
    topic = f"waits-{fault}"
    broker.create_topic(topic, config=TIERED | {"local.retention.ms": str(HOUR_MS)})
    send(topic, "a")
    getattr(broker.faults, fault)()
    broker.clock.advance(minutes=2)
    send(topic, "b")
    broker.clock.advance(hours=3)
    assert RemoteLogSegmentState.COPY_SEGMENT_FINISHED not in remote_states(broker, topic)
    assert offsets(broker, topic) == (0, 0, 2)
    broker.faults.heal()
    broker.clock.advance(hours=1)
    assert RemoteLogSegmentState.COPY_SEGMENT_FINISHED in remote_states(broker, topic)
    assert offsets(broker, topic) == (0, 2, 2)


def test_a_slow_store_is_waited_for(broker: BrokerUnderTest, send: Send) -> None:
    broker.create_topic("slow", config=TIERED)
    send("slow", "a")
    broker.clock.advance(minutes=2)
    send("slow", "b")
    broker.faults.store_slow(0.02)
    broker.clock.advance(minutes=2)
    broker.faults.heal()
    assert remote_states(broker, "slow") == [RemoteLogSegmentState.COPY_SEGMENT_FINISHED]


def test_a_store_that_is_not_there_cannot_fail(own: BrokerUnderTest) -> None:
    with pytest.raises(ValueError, match=r"remote\.log\.storage\.system\.enable"):
        own.faults.store_down()


def test_a_directory_whose_flushes_fail_is_given_up(own: BrokerUnderTest) -> None:
    own.create_topic("orders", config={"flush.ms": "1000"})
    producer = Producer({"bootstrap.servers": own.bootstrap_servers})
    producer.produce("orders", b"a")
    assert producer.flush(30) == 0
    own.faults.fsync_fails()
    own.clock.advance(minutes=1)
    assert own.services.logs.dirs.live == []


# --- the page ---------------------------------------------------------------------------------------------------------


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_examples_of_the_page_do_what_they_say(block: str, request: pytest.FixtureRequest) -> None:
    names: dict[str, Any] = {}
    exec(block, names)
    for name, test in names.items():
        if name.startswith("test_"):
            test(**{fixture: request.getfixturevalue(fixture) for fixture in inspect.signature(test).parameters})
