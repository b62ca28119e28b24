"""`__remote_log_metadata` as a client has it: against a real broker, as another one of the cluster would see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest
from tests.support.waiting import wait_until

from stratalog.config import BrokerConfig
from stratalog.engine.tiering.replicated_metadata_log import ReplicatedMetadataLog
from stratalog.errors import RetriableRemoteStorageError, StratalogError
from stratalog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from stratalog.remote.metadata import TopicBasedRemoteLogMetadataManager
from stratalog.testing.broker import BrokerUnderTest
from stratalog.util import SYSTEM_CLOCK
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions, Sasl

TOPIC = "__remote_log_metadata"
PARTITION = TopicIdPartition(UUID(int=77), "orders", 0)
CONFIG = BrokerConfig.from_properties({"remote.log.metadata.topic.num.partitions": "1"})


class View:
    """A cluster of one broker, that leads everything as long as the test says so."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.at = host, int(port)
        self.connection = ConnectionOptions((self.at,))
        self.leader = 1
        self.made = 0

    def address(self, broker: int) -> tuple[str, int] | None:
        return self.at if broker == 1 else None

    def leader_of(self, topic: str, partition: int) -> int:
        return self.leader

    def topic_id(self, topic: str) -> UUID | None:
        with Cluster(self.connection) as cluster:
            return cluster.topic(topic).topic_id

    def ensure(self, name: str, partition_count: int, configs: Any) -> Any:
        self.made += 1
        if self.made == 1:
            raise StratalogError("too few brokers are alive")
        with Cluster(self.connection) as cluster:
            if not cluster.topics([name]):
                topic = {"name": name, "num_partitions": partition_count, "replication_factor": 1}
                cluster.any.call(ApiKey.CREATE_TOPICS, (5, 7), topics=[topic], timeout=5_000)
        return type("Made", (), {"partition_count": partition_count})


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerUnderTest]:
    with BrokerUnderTest() as running:
        yield running


@pytest.fixture
def view(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> View:
    monkeypatch.setattr("stratalog.engine.tiering.replicated_metadata_log._TOPIC_BACKOFF_S", 0.02)
    monkeypatch.setattr("stratalog.engine.tiering.replicated_metadata_log._BACKOFF_S", 0.02)
    return View(broker)


@pytest.fixture
def logs(view: View) -> Iterator[list[ReplicatedMetadataLog]]:
    made = [ReplicatedMetadataLog(cast("Any", view), CONFIG, view.ensure, SYSTEM_CLOCK) for _ in range(2)]
    yield made
    for each in made:
        each.close()


def segment(first: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate_new(PARTITION),
        start_offset=first,
        end_offset=first + 9,
        max_timestamp_ms=1,
        broker_id=1,
        event_timestamp_ms=2,
        segment_size_bytes=3,
        segment_leader_epochs={0: first},
    )


def finished(of: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(of.segment_id, 3, None, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1)


def test_what_one_broker_stores_another_reads(view: View, logs: list[ReplicatedMetadataLog]) -> None:
    writer, reader = (TopicBasedRemoteLogMetadataManager(each, consume_wait_ms=10_000) for each in logs)
    with pytest.raises(RetriableRemoteStorageError, match="is not known yet"):
        reader.list_remote_log_segments(PARTITION)
    for each in (writer, reader):
        each.on_partition_leadership_changes([PARTITION], [])
        wait_until(partial(each.is_ready, PARTITION), "it is read", every=0.01)
    before = len(writer.list_remote_log_segments(PARTITION))
    first = segment(0)
    writer.add_remote_log_segment_metadata(first).result(60)
    assert [each.segment_id for each in writer.list_remote_log_segments(PARTITION)][before:] == [first.segment_id]
    writer.update_remote_log_segment_metadata(finished(first)).result(60)
    assert writer.highest_offset_for_epoch(PARTITION, 0) == 9
    reader.on_partition_leadership_changes([PARTITION], [])
    wait_until(lambda: reader.is_ready(PARTITION), "it is read", every=0.001)
    assert reader.highest_offset_for_epoch(PARTITION, 0) == 9, "ready means that all is known that was stored before"
    assert view.made > 1, "the topic was asked for again"


def test_without_a_leader_lookups_go_on_and_nothing_is_stored(
    view: View, logs: list[ReplicatedMetadataLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = TopicBasedRemoteLogMetadataManager(logs[0], consume_wait_ms=10_000)
    wait_until(lambda: manager.is_ready(PARTITION), "it is read", every=0.01)
    known = len(manager.list_remote_log_segments(PARTITION))
    monkeypatch.setattr("stratalog.engine.tiering.replicated_metadata_log._APPEND_S", 0)
    view.leader = -1
    assert len(manager.list_remote_log_segments(PARTITION)) == known
    manager.on_partition_leadership_changes([PARTITION], [])
    assert not manager.is_ready(PARTITION), "another leader may have stored something"
    with pytest.raises(RetriableRemoteStorageError):
        logs[0].append(0, b"x", 0)
    view.leader = 1
    wait_until(lambda: manager.is_ready(PARTITION), "it is read", every=0.01)


def test_a_login_that_is_refused_for_now_is_tried_again(
    view: View, logs: list[ReplicatedMetadataLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.engine.tiering.replicated_metadata_log._APPEND_S", 0)
    allowed = view.connection
    view.connection = replace(allowed, sasl=Sasl("PLAIN", "me", "wrong"))
    with pytest.raises(RetriableRemoteStorageError, match="does not let this client in"):
        logs[0].append(0, b"x", 0)
    view.connection = allowed
    manager = TopicBasedRemoteLogMetadataManager(logs[0], consume_wait_ms=10_000)
    manager.on_partition_leadership_changes([PARTITION], [])
    wait_until(lambda: manager.is_ready(PARTITION), "it is read", every=0.01)


def test_an_end_ends_what_waits(view: View, logs: list[ReplicatedMetadataLog]) -> None:
    view.leader = -1
    logs[0].close()
    with pytest.raises(RetriableRemoteStorageError):
        logs[0].append(0, b"x", 0)
