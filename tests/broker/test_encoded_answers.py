"""Answers whose parts are encoded once and put together are what the message library writes for the same message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.support.wire import Wire, build

from stratalog.broker import encoded_topics
from stratalog.broker.apis import k03_metadata
from stratalog.broker.encoded_topics import EncodedTopics
from stratalog.broker.metadata import Topic, config_entries
from stratalog.broker.server.dispatch import REGISTRY, RequestContext
from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import (
    EncodedResponse,
    read_message,
    request_class,
    response_class,
    with_parts,
    write_message,
)

SET = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "compression.type": "zstd"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(
        data_dir=tmp_path_factory.mktemp("data"),
        config={"log.retention.hours": "5", "broker.rack": "r1", "auto.create.topics.enable": "false"},
    ) as broker:
        broker.services.topics.create("plain", 2)
        broker.services.topics.create("tuned", 3, SET)
        broker.services.settings.set(None, {"log.segment.bytes": "20000000"}, broker.services.topics)
        yield broker


def answered(broker: Broker, key: ApiKey, version: int, **values: Any) -> tuple[Any, int]:
    """The answer to a request, read back; and how often the handler let others have their turn."""
    request = build(request_class(key, version), values)
    handler = REGISTRY[key].handler
    assert handler is not None
    turns = 0

    async def run() -> Any:
        nonlocal turns
        coroutine = handler(RequestContext(broker.services, key, version), request)
        if not asyncio.iscoroutine(coroutine):
            return coroutine
        while True:
            try:
                waited_for = coroutine.send(None)
            except StopIteration as stop:
                return stop.value
            turns += 1
            if waited_for is not None:
                await asyncio.wait([waited_for])

    answer = asyncio.run_coroutine_threadsafe(run(), broker.services.loop).result(60)
    assert isinstance(answer, EncodedResponse)
    message, size = read_message(response_class(key, version), answer.body)
    assert size == len(answer.body)
    assert write_message(message) == answer.body
    assert answer.is_flexible == type(message).__flexible__
    return message, turns


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("synonyms", [False, True])
def test_configs_are_described_as_by_the_message_library(broker: Broker, version: int, synonyms: bool) -> None:
    resources = [
        {"resource_type": type_, "resource_name": name, "configuration_keys": keys}
        for type_, name, keys in (
            (2, "plain", None),
            (2, "tuned", None),
            (2, "plain", ("retention.ms", "no.such.key")),
            (2, "missing", None),
            (4, "", None),
            (4, str(broker.services.node_id), ("log.segment.bytes",)),
        )
    ]
    documented = {"include_documentation": True} if version >= 3 else {}
    message, _ = answered(
        broker, ApiKey.DESCRIBE_CONFIGS, version, resources=resources, include_synonyms=synonyms, **documented
    )
    plain, tuned, picked, missing, cluster, own = message.results
    values = {entry.name: entry.value for entry in plain.configs}
    changed = {entry.name: entry.value for entry in tuned.configs}
    assert values.keys() == changed.keys()
    assert {name: changed[name] for name in SET} == SET
    assert {name for name in values if values[name] != changed[name]} == SET.keys()
    assert values["retention.ms"] == "18000000"
    assert values["segment.bytes"] == "20000000"
    assert [entry.name for entry in picked.configs] == ["retention.ms"]
    assert [entry.name for entry in cluster.configs] == ["log.segment.bytes"] == [e.name for e in own.configs]
    assert (int(missing.error_code), missing.configs) == (3, ())
    assert {bool(entry.synonyms) for entry in tuned.configs if entry.name in SET} == {synonyms}


def test_a_type_of_resource_that_does_not_exist_refuses_the_whole_request(broker: Broker) -> None:
    resources = [{"resource_type": type_, "resource_name": "plain", "configuration_keys": None} for type_ in (2, 9)]
    with Wire(broker.bootstrap_servers) as wire:
        results = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources).results
    assert [(int(each.error_code), each.configs) for each in results] == [(42, ()), (42, ())]


@pytest.mark.parametrize("version", range(2, 8))
def test_created_topics_are_answered_as_by_the_message_library(broker: Broker, version: int) -> None:
    topics = [
        {
            "name": "new",
            "num_partitions": 3,
            "replication_factor": 1,
            "configs": [{"name": name, "value": value} for name, value in SET.items()],
        },
        {"name": "plain", "num_partitions": 1, "replication_factor": 1},
    ]
    message, _ = answered(broker, ApiKey.CREATE_TOPICS, version, topics=topics, timeout=30_000, validate_only=True)
    new, plain = message.topics
    assert (int(new.error_code), int(plain.error_code)) == (0, 36)
    if version >= 5:
        configs = {entry.name: entry.value for entry in new.configs}
        assert list(configs) == sorted(configs)
        assert {name: configs[name] for name in SET} == SET
        assert (new.num_partitions, plain.num_partitions, plain.configs) == (3, -1, ())


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("operations", [False, True])
def test_topics_and_partitions_are_listed_as_by_the_message_library(
    broker: Broker, version: int, operations: bool
) -> None:
    partition = broker.services.partition("tuned", 1)
    assert partition is not None
    partition.become_leader(5)
    tuned = broker.services.metadata.topic("tuned")
    assert tuned is not None
    wanted: dict[str, Any] = {}
    if version >= 8:
        wanted["include_topic_authorized_operations"] = operations
    if 8 <= version <= 10:
        wanted["include_cluster_authorized_operations"] = operations
    everything, _ = answered(broker, ApiKey.METADATA, version, topics=None if version else (), **wanted)
    by_name = {topic.name: topic for topic in everything.topics}
    assert list(by_name) == sorted(by_name)
    asked = [{"name": name} for name in ("tuned", "missing", "plain", "__transaction_state")]
    if version >= 4:
        wanted["allow_auto_topic_creation"] = False
    picked, _ = answered(broker, ApiKey.METADATA, version, topics=asked, **wanted)
    if version >= 4:
        assert [int(topic.error_code) for topic in picked.topics] == [0, 3, 0, 3]
    assert picked.topics[0] == by_name["tuned"]
    found = picked.topics[0]
    node_id = broker.services.node_id
    assert [part.partition_index for part in found.partitions] == [0, 1, 2]
    for part in found.partitions:
        assert (int(part.error_code), part.leader_id) == (0, node_id)
        assert part.replica_nodes == part.isr_nodes == (node_id,)
    if version >= 7:
        assert [part.leader_epoch for part in found.partitions] == [0, 5, 0]
    if version >= 10:
        assert found.topic_id == tuned.topic_id
    if version >= 8:
        assert (found.topic_authorized_operations > 0) is operations
    if 8 <= version <= 10:
        assert (everything.cluster_authorized_operations > 0) is operations
    assert everything.brokers[0].port == broker.services.listener.port


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_are_answered_as_by_the_message_library(broker: Broker, version: int) -> None:
    tuned = broker.services.metadata.topic("tuned")
    assert tuned is not None
    names: list[dict[str, Any]] = [{"name": "tuned"}, {"name": "missing"}]
    if version >= 10:
        names = [{"topic_id": tuned.topic_id}, {"topic_id": UUID(int=5)}]
    partitions = [
        {"partition_index": index, "committed_offset": 7, "committed_metadata": "m" * length}
        for index, length in ((2, 0), (9, 0), (0, 5_000), (1, 9))
    ]
    message, _ = answered(
        broker,
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=f"g{version}",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{**name, "partitions": partitions} for name in names],
    )
    known, missing = message.topics
    codes = [(each.partition_index, int(each.error_code)) for each in known.partitions]
    assert codes == [(2, 0), (9, 3), (0, 12), (1, 0)]
    assert {int(each.error_code) for each in missing.partitions} == {100 if version >= 10 else 3}
    stored = broker.services.groups.commits.committed.of_group(f"g{version}")
    assert {key.partition: commit.metadata for key, commit in stored.items()} == {2: "", 1: "m" * 9}
    assert len({commit.record_offset for commit in stored.values()} - {-1}) == 2


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_pages_of_partitions_are_as_by_the_message_library(broker: Broker, limit: int) -> None:
    found: list[tuple[str, int]] = []
    cursor: dict[str, Any] | None = None
    asked = [{"name": name} for name in ("plain", "tuned", "unknown")]
    while True:
        message, _ = answered(
            broker,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=asked,
            response_partition_limit=limit,
            cursor=cursor,
        )
        for topic in message.topics:
            assert int(topic.error_code) == (3 if topic.name == "unknown" else 0)
            assert topic.topic_authorized_operations > 0
            for part in topic.partitions:
                assert (int(part.error_code), part.leader_id) == (0, broker.services.node_id)
                assert part.replica_nodes == part.isr_nodes == (broker.services.node_id,)
                assert part.eligible_leader_replicas == part.last_known_elr == part.offline_replicas == ()
            found += [(topic.name, part.partition_index) for part in topic.partitions]
        if message.next_cursor is None:
            break
        cursor = {
            "topic_name": message.next_cursor.topic_name,
            "partition_index": message.next_cursor.partition_index,
        }
    assert found == [("plain", 0), ("plain", 1), ("tuned", 0), ("tuned", 1), ("tuned", 2)]


def test_a_partition_is_encoded_once_for_all_of_them(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []

    def counted(message: Any) -> bytes:
        encoded.append(message)
        return write_message(message)

    monkeypatch.setattr(encoded_topics, "write_message", counted)
    broker.services.encoded_topics._shapes.clear()
    for _ in range(2):
        message, _ = answered(broker, ApiKey.METADATA, 12, topics=None)
    assert sum(len(topic.partitions) for topic in message.topics) >= 5
    assert [type(each).__name__ for each in encoded] == ["MetadataResponsePartition"]


def test_topics_are_encoded_once_and_again_when_they_or_their_leaders_have_changed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = EncodedTopics._encode

    def counted(self: EncodedTopics, topic: Topic, epochs: tuple[int, ...]) -> bytes:
        encoded.append(topic.name)
        return encode(self, topic, epochs)

    monkeypatch.setattr(EncodedTopics, "_encode", counted)
    services = broker.services
    services.topics.create("moving", 2)
    services.encoded_topics._shapes.clear()

    def seen() -> tuple[list[str], dict[str, list[int]]]:
        """Return what was encoded for an answer, and the epochs in it."""
        encoded.clear()
        message, _ = answered(broker, ApiKey.METADATA, 12, topics=None)
        names = [name for name in encoded if not name.startswith("__")]
        return names, {topic.name: [part.leader_epoch for part in topic.partitions] for topic in message.topics}

    assert seen()[0] == ["moving", "plain", "tuned"]
    assert seen()[0] == []
    moving = services.partition("moving", 1)
    assert moving is not None
    moving.become_leader(9)
    assert seen() == (["moving"], seen()[1])
    assert seen()[1]["moving"] == [0, 9]
    moving.resign()
    assert seen()[1]["moving"] == [0, -1]
    services.topics.add_partitions("moving", 3)
    assert (seen()[1]["moving"], encoded) == ([0, -1, 0], ["moving"])
    first = services.metadata.topic("moving")
    services.topics.delete("moving")
    assert "moving" not in seen()[1]
    assert all("moving" not in shape._known for shape in services.encoded_topics._shapes.values())
    again = services.topics.create("moving", 1)
    assert first is not None
    message, _ = answered(broker, ApiKey.METADATA, 12, topics=[{"name": "moving"}])
    assert message.topics[0].topic_id == again.topic_id != first.topic_id
    services.topics.delete("moving")


def test_what_is_kept_of_topics_has_a_bound_for_any_requests(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_topics, "_KNOWN_MAX", 3)
    encodings = broker.services.encoded_topics
    encodings._shapes.clear()
    for number in range(10):
        broker.services.topics.create("passing", 1)
        answered(broker, ApiKey.METADATA, 12, topics=[{"name": "passing"}, {"name": ("plain", "tuned")[number % 2]}])
        broker.services.topics.delete("passing")
    for version in range(1, 14):
        answered(broker, ApiKey.METADATA, version, topics=None)
    assert len(encodings._shapes) == 4
    assert all(len(shape._known) <= 3 for shape in encodings._shapes.values())
    encodings._shapes.clear()


def test_others_have_their_turn_while_many_topics_are_listed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    _, turns = answered(broker, ApiKey.METADATA, 12, topics=None)
    assert turns == 0
    monkeypatch.setattr(k03_metadata, "_PIECE", 4)
    message, turns = answered(broker, ApiKey.METADATA, 12, topics=None)
    internal, (plain, tuned) = message.topics[:-2], message.topics[-2:]
    assert (len(plain.partitions), len(tuned.partitions)) == (2, 3)
    assert turns == len(internal) + 1


def test_what_topics_do_not_set_is_looked_up_once_and_others_have_their_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    found = config_entries._synonyms

    def counted(name: str, levels: config_entries.BrokerLevels) -> Any:
        looked_up.append(name)
        return found(name, levels)

    monkeypatch.setattr(config_entries, "_synonyms", counted)
    resource = {"resource_type": 2, "resource_name": "plain", "configuration_keys": None}
    asked = {"include_synonyms": True, "include_documentation": False}
    answered(broker, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], **asked)
    for_one = len(looked_up)
    assert for_one > 20
    looked_up.clear()
    message, turns = answered(broker, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource] * 200, **asked)
    assert len(message.results) == 200
    assert len(looked_up) == for_one
    assert turns == 8


def test_an_array_is_put_in_only_where_there_is_an_empty_one() -> None:
    assert with_parts(b"\7\0\0\0\0", [b"ab", b"c"], flexible=False) == b"\7\0\0\0\2abc"
    assert with_parts(b"\7\1\0", [b"ab"], flexible=True) == b"\7\2ab\0"
    assert with_parts(b"\7\1\5\6\0", [b"ab"] * 200, flexible=True, behind=2) == (b"\7\xc9\1" + b"ab" * 200 + b"\5\6\0")
    with pytest.raises(ValueError, match="no empty array 1 bytes before the end"):
        with_parts(b"\7\0\0\0\0\1\1", [], flexible=False, behind=1)
