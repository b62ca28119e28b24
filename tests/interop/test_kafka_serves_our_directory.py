"""A Kafka broker takes over a partition directory that we wrote, serves all of it, and goes on writing; then we go on.

A KRaft broker sets directories aside that its metadata does not know. So the topic is made there first, and our
directory, under that topic's id, takes the place of the empty one while the broker is down.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stratalog.log.format.checkpoints import PartitionMetadataFile
from stratalog.log.format.file_names import PARTITION_METADATA
from stratalog.log.partition_log import PartitionLog
from tests.interop.contents import SMALL_SEGMENTS, T0, Seen, Written, consume, read_log, write_partition
from tests.support.reference_kafka import ReferenceKafka

pytestmark = pytest.mark.interop

#: One is opened by Kafka as cleanly shut down, one is recovered by it batch by batch.
CLEAN, RECOVERED = "ours-clean", "ours-recovered"
COMPLAINT = re.compile(r"(?:ERROR|WARN).*ours-|Exception")


def create(kafka: ReferenceKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(60)


def put_in_place(kafka: ReferenceKafka, ours: Path) -> None:
    """`ours` instead of Kafka's directory of the same name, under the topic id that Kafka gave."""
    place = kafka.data_dir / ours.name
    topic_id = PartitionMetadataFile(place / PARTITION_METADATA).read()
    assert topic_id is not None
    shutil.rmtree(place)
    shutil.copytree(ours, place)
    PartitionMetadataFile(place / PARTITION_METADATA).write(topic_id)


@dataclass
class Served:
    """What we wrote, and what Kafka made of it."""

    written: dict[str, Written]
    #: What a consumer got, by topic and whether it asked for committed records only.
    consumed: dict[tuple[str, bool], list[Seen]]
    #: The record that Kafka appended to the clean topic, as its consumer saw it, and that directory then.
    added: list[Seen]
    directory: Path


@pytest.fixture(scope="module")
def served(kafka: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Kafka stops, finds the one directory at its start, appends to it, is killed, and finds the other."""
    home = tmp_path_factory.mktemp("ours")
    written = {topic: write_partition(home / f"{topic}-0") for topic in (CLEAN, RECOVERED)}
    for topic in written:
        create(kafka, topic)
        assert consume(kafka.bootstrap_servers, topic) == []
    with kafka.stopped():
        put_in_place(kafka, home / f"{CLEAN}-0")
    consumed = consume_both_ways(kafka, CLEAN)
    end_offset = written[CLEAN].all[-1].offset + 2  # behind the last record there is its transaction's marker
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd"})
    producer.produce(CLEAN, key=b"theirs", value=b"behind ours", timestamp=T0)
    assert producer.flush(30) == 0
    added = consume(kafka.bootstrap_servers, CLEAN, offset=end_offset)
    kafka.kill()
    shutil.copytree(kafka.partition_dir(CLEAN), home / "then" / f"{CLEAN}-0")
    put_in_place(kafka, home / f"{RECOVERED}-0")
    kafka.start()
    consumed |= consume_both_ways(kafka, RECOVERED)
    return Served(written, consumed, added, home / "then" / f"{CLEAN}-0")


def consume_both_ways(kafka: ReferenceKafka, topic: str) -> dict[tuple[str, bool], list[Seen]]:
    return {(topic, flag): consume(kafka.bootstrap_servers, topic, committed_only=flag) for flag in (False, True)}


@pytest.mark.parametrize("topic", [CLEAN, RECOVERED])
def test_its_consumers_get_every_record(served: Served, topic: str) -> None:
    assert served.consumed[topic, False] == served.written[topic].all
    assert served.consumed[topic, True] == served.written[topic].committed


def test_it_says_nothing_against_them(kafka: ReferenceKafka, served: Served) -> None:
    lines = kafka.log_path.read_text(errors="replace").splitlines()
    assert [line for line in lines if COMPLAINT.search(line)] == []


def test_it_appends_behind_our_records_and_we_open_the_result(served: Served) -> None:
    end_offset = served.written[CLEAN].all[-1].offset + 2
    assert served.added == [Seen(end_offset, T0, b"theirs", b"behind ours", ())]
    log = PartitionLog.open(served.directory, SMALL_SEGMENTS)
    try:
        assert read_log(log) == served.written[CLEAN].all + served.added
    finally:
        log.close()
