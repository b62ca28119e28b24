"""A tiered topic is compacted while our broker serves it and a consumer reads it, on a real S3 server."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark.sql import SparkSession

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.compaction.result import CompactResult
from stratalog.jobs.compaction.run import compact_bucket
from stratalog.jobs.ledger import State
from stratalog.spark.executor import SparkExecutor
from tests.scenarios.tiered_story import TieredStory
from tests.support.s3_server import S3Server, require_s3_server
from tests.support.waiting import wait_until

RECORDS, KEYS = 4_000, 150
#: Segments of 1 MiB that are full.
CLOSED = 4
TOPIC = "prices"


def produce(address: str, first: int, count: int) -> dict[bytes, bytes]:
    """Records of about 1 KB; the newest value of each key."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    newest = {}
    for number in range(first, first + count):
        key, value = b"key-%d" % (number % KEYS), b"%08d" % number + b"x" * 1000
        producer.produce(TOPIC, value, key=key)
        newest[key] = value
    producer.flush(60)
    return newest


class Reader(threading.Thread):
    """Reads the topic from its start to its end, again and again, and notes what it did not find."""

    def __init__(self, address: str, newest: dict[bytes, bytes]) -> None:
        super().__init__()
        self.address, self.newest = address, newest
        self.ended = threading.Event()
        self.faults: list[str] = []
        self.rounds = 0

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                found, offsets = self.read()
            except KafkaException as error:
                self.faults.append(str(error))
                continue
            if found != self.newest:
                self.faults.append(f"{len(found)} keys, last offset {offsets[-1:]}")
            if offsets != sorted(set(offsets)):
                self.faults.append("offsets do not ascend")
            self.rounds += 1

    def end(self) -> None:
        self.ended.set()
        self.join()

    def read(self) -> tuple[dict[bytes, bytes], list[int]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.message.max.bytes": 200_000,
            }
        )
        found: dict[bytes, bytes] = {}
        offsets: list[int] = []
        try:
            start, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 30)
            consumer.assign([TopicPartition(TOPIC, 0, start)])
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                message = consumer.poll(10)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.name() == "_PARTITION_EOF":
                        break
                    raise KafkaException(error)
                key, value, offset = message.key(), message.value(), message.offset()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                assert offset is not None
                found[key] = value
                offsets.append(offset)
        finally:
            consumer.close()
        return found, offsets


def compact(spark: SparkSession, story: TieredStory, s3: S3Server, state: State) -> CompactResult:
    return compact_bucket(
        story.store.url,
        topics=[TOPIC],
        options=s3.options,
        kafka={"kafka.bootstrap.servers": story.address},
        state=state,
        grace_seconds=2,
        executor=SparkExecutor(spark),
    )


def story_end(address: str) -> int:
    """The offset behind the newest record."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 30)[1])
    finally:
        consumer.close()


@pytest.mark.soak  # a minute; each of its parts has a test of its own
@pytest.mark.spark
def test_a_consumer_reads_on_while_its_topic_is_compacted(tmp_path: Path, spark: SparkSession) -> None:
    require_s3_server()
    with S3Server(tmp_path / "s3") as s3, TieredStory(tmp_path / "home", s3=s3) as story:
        story.store.put("made", b"")  # buckets of this server appear at the first put
        story.store.delete(["made"])
        story.create_topic(TOPIC, batches_per_segment=1)
        newest = produce(story.address, 0, RECORDS)
        wait_until(lambda: len(list_remote_segments(story.store)) == CLOSED)
        before = list_remote_segments(story.store)
        state = State(tmp_path / "state")
        reader = Reader(story.address, newest)
        reader.start()
        try:
            wait_until(lambda: reader.rounds or reader.faults)
            (first,) = compact(spark, story, s3, state).partitions
            rounds = reader.rounds
            wait_until(lambda: reader.rounds > rounds + 1 or reader.faults)
        finally:
            reader.end()
        assert reader.faults == []

        # More comes, and is copied; what is newest is still local.
        newest = produce(story.address, RECORDS, RECORDS // 2)
        wait_until(lambda: list_remote_segments(story.store)[-1].end_offset > before[-1].end_offset + 1_000)
        reader = Reader(story.address, newest)
        reader.start()
        try:
            wait_until(lambda: reader.rounds or reader.faults)
            (second,) = compact(spark, story, s3, state).partitions
            (third,) = compact(spark, story, s3, state).partitions
            rounds = reader.rounds
            wait_until(lambda: reader.rounds > rounds + 1 or reader.faults)
        finally:
            reader.end()
        assert reader.faults == []
        assert (first.records_out, second.records_out) == (KEYS, KEYS)
        assert KEYS < second.records_in < first.records_in, "what was clean is not looked at record by record again"
        assert third.bytes_in == third.bytes_out, "the third run finds everything clean"
        after = list_remote_segments(story.store)
        assert after[-1].end_offset < story_end(story.address) - 1, "the newest part is local"
        assert {each.segment_id for each in after}.isdisjoint(each.segment_id for each in before)
        assert sum(each.segment_size_in_bytes for each in after) < 400_000
        assert after[0].base_offset == before[0].base_offset
        story.bounce()
        found, _ = Reader(story.address, newest).read()
        assert found == newest
        audited = audit_bucket(story.store, AuditOptions(now_ms=2**60, grace_ms=0, deep=True))
        assert audited.segments == len(after)
        assert audited.findings == []
