"""ListOffsets, OffsetForLeaderEpoch, InitProducerId, Metadata and ApiVersions over a real socket, in every version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.apis import load_apis
from stratalog.broker.internal_topics import INTERNAL_TOPICS, internal_topic_settings
from stratalog.broker.server.server import Broker
from stratalog.engine import TopicSpec
from stratalog.engine.partition import Partition
from stratalog.errors import RemoteStorageError
from stratalog.log.format import FoundOffset
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

NOW = 1_700_000_000_000
#: Transactions are begun by appends here, and no one has to be asked.
CONFIG = {"num.partitions": 4, "transaction.partition.verification.enable": "false"}
_topic_number = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=CONFIG) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A fresh topic of two partitions."""
    return broker.services.topics.create(f"t{next(_topic_number)}", 2).name


def partition_of(broker: Broker, topic: str, index: int = 0) -> Partition:
    found = broker.services.partition(topic, index)
    assert found is not None
    return found


def append(broker: Broker, topic: str, *timestamps: int, **options: Any) -> None:
    records = [Record(n, timestamp, None, b"v") for n, timestamp in enumerate(timestamps)]
    partition_of(broker, topic).append(build_batch(records, **options))


# --- ListOffsets ------------------------------------------------------------------------------------------------------


def list_offset(wire: Wire, topic: str, timestamp: int, *, version: int = 9, partition: int = 0, **entry: Any) -> Any:
    entries = [{"partition_index": partition, "timestamp": timestamp, **entry}]
    response = wire.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": entries}])
    return response.topics[0].partitions[0]


def found(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.offset, answer.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_latest_and_times(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    assert found(list_offset(wire, topic, -1, version=version)) == (0, 0, -1)
    assert found(list_offset(wire, topic, NOW, version=version)) == (0, -1, -1)
    append(broker, topic, NOW, NOW + 10)
    append(broker, topic, NOW + 20)
    partition_of(broker, topic).log.increment_log_start_offset(1, "test")
    assert found(list_offset(wire, topic, -2, version=version)) == (0, 1, -1)
    assert found(list_offset(wire, topic, -1, version=version)) == (0, 3, -1)
    assert found(list_offset(wire, topic, NOW + 5, version=version)) == (0, 1, NOW + 10)
    assert found(list_offset(wire, topic, NOW + 20, version=version)) == (0, 2, NOW + 20)
    assert found(list_offset(wire, topic, NOW + 21, version=version)) == (0, -1, -1)
    if version >= 4:
        assert list_offset(wire, topic, NOW + 20, version=version).leader_epoch == 0


def test_the_largest_timestamp_need_not_be_the_last(broker: Broker, wire: Wire, topic: str) -> None:
    assert found(list_offset(wire, topic, -3)) == (0, -1, -1)
    append(broker, topic, NOW, NOW + 50, NOW + 10)
    append(broker, topic, NOW + 20)
    assert found(list_offset(wire, topic, -3)) == (0, 1, NOW + 50)
    partition_of(broker, topic).log.increment_log_start_offset(4, "test")
    answer = list_offset(wire, topic, -3)  # as in Kafka: it is still in the segment, and its batch has the epoch
    assert (*found(answer), answer.leader_epoch) == (0, 1, NOW + 50, 0)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)])
def test_special_times_need_their_version(wire: Wire, topic: str, timestamp: int, since: int) -> None:
    for version in range(1, 12):
        code = list_offset(wire, topic, timestamp, version=version).error_code
        assert code == (0 if version >= since else 35)


def test_without_a_remote_tier_the_local_log_is_the_whole(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, NOW, NOW)
    assert found(list_offset(wire, topic, -4)) == (0, 0, -1)
    assert found(list_offset(wire, topic, -5)) == (0, -1, -1)
    assert found(list_offset(wire, topic, -6, version=11)) == (0, -1, -1)


def test_with_a_remote_tier_its_end_and_the_local_start_are_reported(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker, topic, NOW, NOW + 1, NOW + 2)
    partition = partition_of(broker, topic)
    monkeypatch.setattr(partition, "remote", object())
    assert found(list_offset(wire, topic, -5)) == (0, -1, -1)
    assert found(list_offset(wire, topic, -6, version=11)) == (0, 0, -1)
    partition.log.update_highest_offset_in_remote_storage(1)
    assert found(list_offset(wire, topic, -5)) == (0, 1, -1)
    assert found(list_offset(wire, topic, -6, version=11)) == (0, 2, -1)


def test_a_search_by_time_that_needs_the_remote_tier_waits_for_it(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker, topic, NOW, NOW + 1, NOW + 2)
    partition = partition_of(broker, topic)
    monkeypatch.setattr(partition, "remote", object())
    monkeypatch.setattr(partition, "offset_for_timestamp", lambda time_ms: FoundOffset(time_ms + 1, 2, 0))
    assert found(list_offset(wire, topic, NOW)) == (0, 2, NOW + 1)

    def fails(time_ms: int) -> None:
        raise RemoteStorageError("unreachable")

    monkeypatch.setattr(partition, "offset_for_timestamp", fails)
    assert list_offset(wire, topic, NOW).error_code == -1


def test_read_committed_sees_nothing_of_an_open_transaction(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, NOW)
    append(broker, topic, NOW + 1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    for isolation, latest, at_time in ((0, 2, 1), (1, 1, -1)):
        offsets = []
        for timestamp in (-1, NOW + 1):
            entries = [{"partition_index": 0, "timestamp": timestamp}]
            response = wire.call(
                ApiKey.LIST_OFFSETS,
                5,
                replica_id=-1,
                isolation_level=isolation,
                topics=[{"name": topic, "partitions": entries}],
            )
            offsets.append(response.topics[0].partitions[0].offset)
        assert offsets == [latest, at_time]


def test_list_offsets_refuses_what_it_should(broker: Broker, wire: Wire, topic: str) -> None:
    assert list_offset(wire, topic, -1, partition=9).error_code == 3
    assert list_offset(wire, "nobody-knows", -1).error_code == 3
    assert list_offset(wire, topic, -1, current_leader_epoch=7).error_code == 75
    entry = {"partition_index": 0, "timestamp": -1}
    response = wire.call(ApiKey.LIST_OFFSETS, 9, replica_id=-1, topics=[{"name": topic, "partitions": [entry, entry]}])
    assert [answer.error_code for answer in response.topics[0].partitions] == [42]


# --- OffsetForLeaderEpoch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_a_leader_epoch_ended(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    append(broker, topic, NOW, NOW)
    partition_of(broker, topic).become_leader(3)
    append(broker, topic, NOW)

    def ask(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
        entry = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        response = wire.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": topic, "partitions": [entry]}])
        answer = response.topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert ask(0) == (0, 0, 2)
    assert ask(2) == (0, 0, 2)
    assert ask(3) == (0, 3, 3)
    assert ask(4) == (0, -1, -1)
    assert ask(0, current=3) == (0, 0, 2)
    assert ask(0, current=2)[0] == 74
    assert ask(0, current=4)[0] == 75
    assert ask(0, partition=9) == (3, -1, -1)


# --- InitProducerId ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_never_given_twice(wire: Wire, version: int) -> None:
    answers = [wire.call(ApiKey.INIT_PRODUCER_ID, version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {answer.producer_epoch for answer in answers} == {0}


def test_producer_ids_are_not_given_again_after_a_restart(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
            seen += [wire.call(ApiKey.INIT_PRODUCER_ID, 4).producer_id for _ in range(1500)]
    assert len(set(seen)) == len(seen)


# --- Metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
def test_metadata_tells_brokers_and_topics(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    asked: dict[str, Any] = {"topics": [{"name": topic}]}
    response = wire.call(ApiKey.METADATA, version, **asked)
    host, _, port = broker.bootstrap_servers.rpartition(":")
    assert [(entry.node_id, entry.host, entry.port) for entry in response.brokers] == [(1, host, int(port))]
    (described,) = response.topics
    assert (described.error_code, described.name) == (0, topic)
    assert [
        (entry.partition_index, entry.leader_id, entry.replica_nodes, entry.isr_nodes, entry.error_code)
        for entry in described.partitions
    ] == [(0, 1, (1,), (1,), 0), (1, 1, (1,), (1,), 0)]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == broker.services.cluster_id
    if version >= 7:
        assert described.partitions[0].leader_epoch == 0
    known = broker.services.metadata.topic(topic)
    assert known is not None
    if version >= 10:
        assert described.topic_id == known.topic_id
    if version >= 12:
        (by_id,) = wire.call(ApiKey.METADATA, version, topics=[{"name": None, "topic_id": known.topic_id}]).topics
        assert by_id.name == topic
        (unknown,) = wire.call(ApiKey.METADATA, version, topics=[{"name": None, "topic_id": UUID(int=99)}]).topics
        assert unknown.error_code == 100


def test_all_topics_are_asked_for_by_null_or_in_version_0_by_nothing(broker: Broker, wire: Wire, topic: str) -> None:
    everything = {entry.name for entry in broker.services.metadata.topics()}
    assert topic in everything
    assert {entry.name for entry in wire.call(ApiKey.METADATA, 0, topics=[]).topics} == everything
    assert {entry.name for entry in wire.call(ApiKey.METADATA, 12, topics=None).topics} == everything
    assert wire.call(ApiKey.METADATA, 12, topics=[]).topics == ()


def create_by_request(wire: Wire, *names: str) -> list[int]:
    topics = [{"name": name} for name in names]
    answer = wire.call(ApiKey.METADATA, 12, topics=topics, allow_auto_topic_creation=True).topics
    return [topic.error_code for topic in answer]


def exists(broker: Broker, name: str) -> bool:
    return broker.services.metadata.topic(name) is not None


def test_a_requested_topic_is_created_behind_the_answer_where_that_is_allowed(broker: Broker, wire: Wire) -> None:
    (refused,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": "new"}], allow_auto_topic_creation=False).topics
    assert refused.error_code == 3
    assert create_by_request(wire, "new") == [3]
    wait_until(lambda: create_by_request(wire, "new") == [0], "the topic is created")
    (created,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": "new"}]).topics
    assert len(created.partitions) == 4


def test_requested_topics_are_created_once_each_whatever_fails_between_them(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    broker.services.topics.create("one.by.one", 1)
    names = ["several-1", "one_by_one", "several-2", "several-3"]
    with Wire(broker.bootstrap_servers) as other:
        for each in (wire, other, wire):
            each.send(ApiKey.METADATA, 12, topics=[{"name": name} for name in names], allow_auto_topic_creation=True)
        for each in (wire, other, wire):
            answer = each.receive(ApiKey.METADATA, 12)
            assert {topic.error_code for topic in answer.topics} <= {0, 3}
    wait_until(lambda: exists(broker, "several-3"), "the last topic is created")
    wait_until(lambda: "one_by_one was requested but cannot be created" in caplog.text, "the refusal is logged")
    assert not exists(broker, "one_by_one")
    assert "already exists" not in caplog.text


def test_a_requested_topic_has_as_many_replicas_as_topics_have_by_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, one broker cannot create it with two. The topic of the coordinator has a count of its own."""
    with (
        Broker(data_dir=tmp_path, config={"default.replication.factor": "2"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        assert create_by_request(wire, "two-replicas", "__consumer_offsets") == [3, 3]
        refusal = "Topic two-replicas was requested but cannot be created: Unable to replicate the partition 2 time(s)"
        wait_until(lambda: refusal in caplog.text, "the refusal is logged")
        wait_until(lambda: exists(broker, "__consumer_offsets"), "the internal topic is created")
        assert not exists(broker, "two-replicas")


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_a_requested_internal_topic_has_the_settings_of_its_coordinator(tmp_path: Path, name: str) -> None:
    config = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "5", "num.partitions": "2"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        (unknown,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=True).topics
        assert (unknown.error_code, unknown.is_internal) == (3, True)
        wait_until(lambda: create_by_request(wire, name) == [0], "the topic is created")
        (made,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": name}]).topics
        settings = internal_topic_settings(name, broker.services.config)
        assert (len(made.partitions), made.is_internal) == (settings.partition_count, True)
        found = broker.services.metadata.topic(name)
        assert found is not None
        assert found.configs == settings.configs


def test_a_coordinator_whose_topic_cannot_be_created_is_not_available(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("t", 1)
        broker.services.topics.create("__consumer.offsets", 1)  # its metrics would be those of the internal topic
        assert create_by_request(wire, "__consumer_offsets") == [3]
        old = wire.call(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
        assert (old.error_code, old.error_message, old.node_id, old.host, old.port) == (
            *(15, "The coordinator is not available."),
            *(-1, "", -1),
        )
        (new,) = wire.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0).coordinators
        assert (new.error_code, new.error_message, new.node_id) == (15, "", -1)
        asked = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        committed = wire.call(ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=asked)
        assert committed.topics[0].partitions[0].error_code == 15


def test_a_topic_is_shown_when_it_has_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Broker(data_dir=tmp_path) as broker,
        Wire(broker.bootstrap_servers) as wire,
        Wire(broker.bootstrap_servers) as other,
    ):
        known, may_open, opens = broker.services.metadata, Event(), broker.services.logs.create_topic

        def open_late(spec: TopicSpec) -> list[Partition]:
            assert may_open.wait(60)
            return opens(spec)

        monkeypatch.setattr(broker.services.logs, "create_topic", open_late)
        other.send(ApiKey.CREATE_TOPICS, 7, topics=[{"name": "late", "num_partitions": 2, "replication_factor": 1}])
        wait_until(lambda: known.topic("late") is not None, "its creation begins")
        topic = known.topic("late")
        assert topic is not None

        def seen() -> list[Any]:
            by_name = wire.call(ApiKey.METADATA, 13, topics=[{"name": "late"}]).topics
            by_id = wire.call(ApiKey.METADATA, 13, topics=[{"name": None, "topic_id": topic.topic_id}]).topics
            described = wire.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "late"}], cursor=None).topics
            return [
                *(each.error_code for each in (*by_name, *by_id, *described)),
                [each.name for each in wire.call(ApiKey.METADATA, 13, topics=None).topics],
                [each.name for each in wire.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], cursor=None).topics],
            ]

        assert seen() == [3, 100, 3, [], []]
        may_open.set()
        assert [each.error_code for each in other.receive(ApiKey.CREATE_TOPICS, 7).topics] == [0]
        assert seen() == [0, 0, 0, ["late"], ["late"]]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b"])
def test_a_topic_cannot_have_every_name(broker: Broker, wire: Wire, name: str) -> None:
    (refused,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=True).topics
    assert refused.error_code == 17
    assert broker.services.metadata.topic(name) is None


def test_names_that_would_share_a_metric_are_not_created(broker: Broker, wire: Wire) -> None:
    broker.services.topics.create("one.two_three", 1)
    assert create_by_request(wire, "one_two.three", "behind") == [3, 3]
    wait_until(lambda: exists(broker, "behind"), "the topic behind it is created")
    assert not exists(broker, "one_two.three")


def test_topics_are_not_created_when_the_broker_says_no(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path, config={"auto.create.topics.enable": "false"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        (refused,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": "n"}], allow_auto_topic_creation=True).topics
        assert refused.error_code == 3
        assert broker.services.metadata.topics() == []


def test_authorized_operations_are_reported_when_asked_for(wire: Wire, topic: str) -> None:
    plain = wire.call(ApiKey.METADATA, 8, topics=[{"name": topic}])
    assert (plain.cluster_authorized_operations, plain.topics[0].topic_authorized_operations) == (
        -(2**31),
        -(2**31),
    )
    asked = wire.call(
        ApiKey.METADATA,
        8,
        topics=[{"name": topic}],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert (asked.cluster_authorized_operations, asked.topics[0].topic_authorized_operations) == (8096, 3576)


# --- ApiVersions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_api_versions_tells_what_is_registered(wire: Wire, version: int) -> None:
    software = {"client_software_name": "test", "client_software_version": "1.0"} if version >= 3 else {}
    response = wire.call(ApiKey.API_VERSIONS, version, **software)
    assert response.error_code == 0
    reported = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    registered = {key: (api.advertised_min, api.max_version) for key, api in load_apis().items()}
    # Told with a receiver of the metrics only (`stratalog.client.metrics`), as in Kafka.
    del registered[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS], registered[ApiKey.PUSH_TELEMETRY]
    assert reported == registered
    assert reported[ApiKey.PRODUCE] == (0, 13)
    assert reported[ApiKey.FETCH] == (4, 18)
    if version >= 3:
        assert [(entry.name, entry.max_version_level) for entry in response.finalized_features] == [
            ("metadata.version", 31),
            ("group.version", 1),
            ("share.version", 2),
            ("streams.version", 1),
            ("transaction.version", 2),
        ]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "x" * 10 + "\n"])
def test_software_names_that_break_the_rules_are_refused(wire: Wire, name: str) -> None:
    assert wire.call(ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version="1").error_code == 42


def test_a_client_that_expects_another_cluster_or_broker_has_to_bootstrap_again(broker: Broker, wire: Wire) -> None:
    cluster, node = broker.services.cluster_id, broker.services.node_id
    for expected, code in (
        ((cluster, node), 0),
        ((None, -1), 0),
        ((cluster, node + 1), 129),
        (("other", node), 129),
        (("", -2), 129),
        ((cluster, -1), 42),
        ((None, node), 42),
    ):
        answer = wire.call(
            ApiKey.API_VERSIONS,
            5,
            client_software_name="test",
            client_software_version="1.0",
            cluster_id=expected[0],
            node_id=expected[1],
        )
        assert (answer.error_code, bool(answer.api_keys)) == (code, code == 0), expected
