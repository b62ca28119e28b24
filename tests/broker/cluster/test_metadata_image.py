"""Metadata records and the image that they make, without Kafka."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from tests.broker.cluster.metadata_histories import BROKERS, History, any_record, rebuilt

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.image_records import image_records
from stratalog.broker.cluster.local_changes import local_changes
from stratalog.errors import CorruptRecordError
from stratalog.wire.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from stratalog.wire.metadata_records.definitions import RECORDS

TOPIC = UUID(int=77)
VERSIONS = [(cls, version) for cls, newest in RECORDS.values() for version in range(newest + 1)]


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_record_of_any_version_is_read_as_it_was_written(cls: type, version: int) -> None:
    for seed in range(20):
        record = any_record(random.Random(seed), cls, version)
        encoded = encode_metadata_record(record, version)
        read = decode_metadata_record(encoded)
        assert read == (record, version), seed
        assert encode_metadata_record(*read) == encoded, seed


def test_no_cut_record_is_read() -> None:
    encoded = encode_metadata_record(any_record(random.Random(1), RegisterBrokerRecord, 4), 4)
    for size in range(len(encoded)):
        with pytest.raises(CorruptRecordError):
            decode_metadata_record(encoded[:size])
    with pytest.raises(CorruptRecordError, match="value of"):
        decode_metadata_record(encoded + b"\0")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\1\x63\0\0", "type 99"),
        (b"\1\3\x09\0", "PartitionRecord v9; this release knows versions up to 2"),
        (b"\2\x14\0\0", "frame version 2"),
    ],
)
def test_what_a_newer_release_wrote_is_named(value: bytes, words: str) -> None:
    with pytest.raises(CorruptRecordError, match=words):
        decode_metadata_record(value)


def _partition(**changes: object) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    delta.replay(TopicRecord(name="t", topic_id=TOPIC))
    first = PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=3, partition_epoch=5
    )
    delta.replay(first)
    image = delta.apply(2, 1)
    delta = MetadataDelta(image)
    delta.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **changes))  # type: ignore[arg-type]
    assert image.topics[TOPIC].partitions[0].partition_epoch == 5, "the image before is left as it was"
    return delta.apply(3, 1)


def test_a_change_of_the_isr_keeps_the_leader_epoch() -> None:
    partition = _partition(isr=(1,)).topics[TOPIC].partitions[0]
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1,), 3, 6)


@pytest.mark.parametrize("leader", [1, 2, -1])
def test_a_leader_that_is_named_begins_an_epoch_even_when_it_is_the_same(leader: int) -> None:
    partition = _partition(leader=leader).topics[TOPIC].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (leader, 4, 6)


def test_a_topic_that_is_deleted_takes_its_configuration_along() -> None:
    image = _partition(isr=(1,))
    delta = MetadataDelta(image)
    delta.replay(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    image = delta.apply(4, 1)
    assert image.config(2, "t") == {"retention.ms": "1"}
    delta = MetadataDelta(image)
    delta.replay(RemoveTopicRecord(topic_id=TOPIC))
    after = delta.apply(5, 1)
    assert (after.topic("t"), dict(after.config(2, "t")), delta.deleted_topics) == (None, {}, {TOPIC})
    assert image.topic("t") is not None


@pytest.mark.parametrize(
    "record",
    [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1),
        FenceBrokerRecord(id=1, epoch=2),
        RemoveTopicRecord(topic_id=TOPIC),
        BeginTransactionRecord(),
        TopicRecord(name="t", topic_id=None),
    ],
)
def test_a_record_that_does_not_fit_the_image_is_refused(record: object) -> None:
    with pytest.raises(CorruptRecordError):
        MetadataDelta(MetadataImage()).replay(record)


def test_a_record_of_no_meaning_changes_nothing() -> None:
    image = _partition(isr=(1,))
    delta = MetadataDelta(image)
    delta.replay(NoOpRecord())
    assert not delta.changes
    after = delta.apply(9, 2)
    assert (after.offset, after.epoch, after.topics is image.topics) == (9, 2, True)


@pytest.mark.parametrize("seed", range(30))
def test_an_image_is_made_again_by_its_own_records(seed: int) -> None:
    history = History(seed)
    history.go_on(60)
    again = rebuilt(list(image_records(history.image)))
    assert rebuilt([each for delta in history.deltas for each in delta]) == rebuilt(list(image_records(again))) == again


@pytest.mark.parametrize("seed", range(30))
def test_two_images_differ_by_what_their_records_changed(seed: int) -> None:
    history = History(seed)
    history.go_on(30)
    before, known = history.image, len(history.deltas)
    history.go_on(30)
    after = history.image
    replayed = MetadataDelta(before)
    for records in history.deltas[known:]:
        for each in records:
            replayed.replay(each.record)
    found = MetadataDelta.between(before, after)
    assert found.apply(after.offset, after.epoch) == after
    assert found.deleted_topics == replayed.deleted_topics
    assert found.changed_brokers <= replayed.changed_brokers
    assert found.changed_configs <= replayed.changed_configs
    assert found.changes <= replayed.changes
    for broker in BROKERS:
        assert local_changes(found, after, broker) == local_changes(replayed, after, broker)


def test_nothing_differs_between_an_image_and_itself() -> None:
    history = History(1)
    history.go_on(20)
    same = MetadataDelta.between(history.image, rebuilt(list(image_records(history.image))))
    assert not (same.changes)
    assert not (same.changed_partitions)
    assert not (same.changed_configs)
    assert not (same.changed_brokers)
