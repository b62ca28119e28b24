"""Kafka's TransactionsWithTieredStoreTest: what a coordinator has decided holds for what is read from the remote
tier."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.scenarios.tiered_story import VALUE_BYTES, TieredStory, Topic

WAIT_S = 30
_numbers = itertools.count()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredStory]:
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
    }
    with TieredStory(tmp_path_factory.mktemp("transactions"), settings=settings) as reported:
        yield reported


@pytest.fixture
def topics(story: TieredStory) -> tuple[Topic, Topic]:
    """Two tiered topics of which every batch is a segment."""
    number = next(_numbers)
    a, b = (story.create_topic(f"{name}{number}", batches_per_segment=1) for name in "ab")
    return a, b


def client(story: TieredStory, name: str, **config: Any) -> Producer:
    """A transactional producer that has begun."""
    made = Producer(
        {
            "bootstrap.servers": story.address,
            "transactional.id": name,
            "linger.ms": 0,
            "compression.type": "none",
            "log_level": 0,
            **config,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def send(producer: Producer, topic: Topic, key: str, value_bytes: int = VALUE_BYTES) -> None:
    """One record in a batch of its own. KafkaException when it was not taken."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.extend([] if error is None else [error])

    producer.produce(
        topic.name,
        key=key.encode(),
        value=bytes(value_bytes),
        partition=topic.partition,
        on_delivery=delivered,
    )
    producer.flush(WAIT_S)
    if errors:
        raise KafkaException(errors[0])


def consumer(story: TieredStory, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": story.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def committed_keys(topic: Topic) -> list[str]:
    """What a reader of committed records sees once everything decided is remote alone."""
    topic.produce("rolled")
    end = topic.served.log.log_end_offset
    topic.expect_earliest_local_offset(end - 1)
    keys: list[str] = []
    while "rolled" not in keys:
        keys = [key for _, key in topic.consume(0, len(keys) + 1, read_committed=True)]
    return keys[:-1]


# --- fencing ----------------------------------------------------------------------------------------------------------


def _commit(late: Producer, _: Topic) -> None:
    late.commit_transaction(WAIT_S)


def _send_offsets(late: Producer, topic: Topic) -> None:
    reader = consumer(topic.story, "fenced")
    late.send_offsets_to_transaction([TopicPartition(topic.name, 0, 110)], reader.consumer_group_metadata(), WAIT_S)


def _send(late: Producer, topic: Topic) -> None:
    send(late, topic, "too late")


def _begin_again(late: Producer, topic: Topic) -> None:
    late.begin_transaction()
    send(late, topic, "too late")


@pytest.mark.parametrize("step", [_commit, _send_offsets, _send, _begin_again])
def test_a_producer_that_another_one_has_taken_over_from_gets_no_further(
    story: TieredStory, topics: tuple[Topic, Topic], step: Callable[[Producer, Topic], None]
) -> None:
    name = f"fenced-{step.__name__}"
    first = client(story, name)
    first.begin_transaction()
    for topic in topics:
        send(first, topic, "lost")
    if step is _begin_again:
        first.abort_transaction(WAIT_S)
    second = client(story, name)
    second.begin_transaction()
    for topic in topics:
        send(second, topic, "kept")
    with pytest.raises(KafkaException) as caught:
        step(first, topics[0])
    assert caught.value.args[0].code() in (
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )
    second.commit_transaction(WAIT_S)
    assert [committed_keys(topic) for topic in topics] == [["kept"], ["kept"]]


def test_a_transaction_that_took_too_long_is_aborted_and_its_producer_fenced(
    story: TieredStory, topics: tuple[Topic, Topic]
) -> None:
    topic = topics[0]
    slow = client(story, "slow", **{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    send(slow, topic, "1")
    end = topic.served.log.log_end_offset
    deadline = time.monotonic() + WAIT_S
    while topic.served.log.last_stable_offset <= end:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(KafkaException):
        send(slow, topic, "2")
    assert committed_keys(topic) == []
    assert [key for _, key in topic.consume(0, 2)] == ["1", "rolled"]


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_records_are_copied_once_with_the_offsets_that_go_into_their_transactions(
    story: TieredStory, topics: tuple[Topic, Topic]
) -> None:
    """Every second transaction is aborted, and its records are read and copied again."""
    source, target = topics
    keys = [str(number) for number in range(8)]
    source.produce(*keys)
    copier, reader = client(story, "copier"), consumer(story, "copiers")
    here = TopicPartition(source.name, 0)
    at, commits = 0, False
    while at < len(keys):
        reader.assign([TopicPartition(source.name, 0, at)])
        messages = reader.consume(2, WAIT_S)
        copier.begin_transaction()
        commits = not commits
        for message in messages:
            send(copier, target, (message.key() or b"").decode())
        offsets = reader.position([here])
        copier.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), WAIT_S)
        if commits:
            copier.commit_transaction(WAIT_S)
        else:
            copier.abort_transaction(WAIT_S)
        (committed,) = reader.committed([here], WAIT_S)
        assert (committed.offset == offsets[0].offset) is commits
        at = committed.offset
    reader.close()
    assert committed_keys(target) == keys


def test_metadata_that_is_committed_with_an_offset_is_read_back(
    story: TieredStory, topics: tuple[Topic, Topic]
) -> None:
    topic = topics[0]
    producer, reader = client(story, "metadata"), consumer(story, "with-metadata")
    producer.begin_transaction()
    offset = TopicPartition(topic.name, 0, 110, "some metadata", 15)
    producer.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    client(story, "another")
    (found,) = reader.committed([TopicPartition(topic.name, 0)], WAIT_S)
    assert (found.offset, found.metadata, found.leader_epoch) == (110, "some metadata", 15)
    reader.close()


# --- decisions --------------------------------------------------------------------------------------------------------


def test_one_decision_marks_many_partitions(story: TieredStory) -> None:
    """Ten partitions that are tiered and ten that are not, in one aborted transaction and then in a committed one."""
    tiered = story.create_topic("many", partitions=10, batches_per_segment=1)
    local = story.create_topic("many-local", partitions=10, remote_storage_enable="false", local_retention_bytes=-2)
    everywhere = [topic.on(number) for topic in (tiered, local) for number in range(10)]
    producer = client(story, "many")
    for key in ("aborted", "kept"):
        producer.begin_transaction()
        for partition in everywhere:
            send(producer, partition, key, VALUE_BYTES if partition.name == "many" else 10)
        if key == "kept":
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    for partition in everywhere:
        if partition.name == "many":
            partition.expect_earliest_local_offset(2)
        assert partition.consume(0, 1, read_committed=True) == [(2, "kept")]


def test_an_abort_of_nothing_after_a_commit_changes_nothing(story: TieredStory, topics: tuple[Topic, Topic]) -> None:
    producer = client(story, "empty")
    for key in ("first", "second"):
        producer.begin_transaction()
        send(producer, topics[0], key)
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        producer.abort_transaction(WAIT_S)
    assert committed_keys(topics[0]) == ["first", "second"]
