"""A Kafka broker takes over a partition directory that we wrote, serves all of it, and goes on writing; then we go on.

A KRaft broker sets directories aside that its metadata does not know. So the topic is made there first, and our directory,
under that topic's id, takes the place of the empty one while the broker is down.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stratalog.log.checkpoints import PartitionMetadataFile
from stratalog.log.file_names import PARTITION_METADATA
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


@pytest.fixture(scope="module")
def served(kafka: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Both topics, once the broker is up again with our directories in it. One is put in after a kill."""
    written = {}
    for topic in (CLEAN, RECOVERED):
        create(kafka, topic)
        consume(kafka.bootstrap_servers, topic)
        ours = tmp_path_factory.mktemp("ours") / f"{topic}-0"
        written[topic] = write_partition(ours)
        if topic == CLEAN:
            kafka.stop()
        else:
            kafka.kill()
        put_in_place(kafka, ours)
        kafka.start()
    return written


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize("topic", [CLEAN, RECOVERED])
def test_its_consumers_get_every_record(
    kafka: ReferenceKafka, served: dict[str, Written], topic: str, committed_only: bool
) -> None:
    expected = served[topic].committed if committed_only else served[topic].all
    assert consume(kafka.bootstrap_servers, topic, committed_only=committed_only) == expected


def test_it_says_nothing_against_them(kafka: ReferenceKafka, served: dict[str, Written]) -> None:
    lines = kafka.log_path.read_text(errors="replace").splitlines()
    assert [line for line in lines if COMPLAINT.search(line)] == []


def test_it_appends_behind_our_records_and_we_open_the_result(
    kafka: ReferenceKafka, served: dict[str, Written], tmp_path: Path
) -> None:
    end_offset = (
        served[CLEAN].all[-1].offset + 2
    )  # the marker of the last transaction stands behind the last record
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd"})
    producer.produce(CLEAN, key=b"theirs", value=b"behind ours", timestamp=T0)
    assert producer.flush(30) == 0
    added = Seen(end_offset, T0, b"theirs", b"behind ours", ())
    assert consume(kafka.bootstrap_servers, CLEAN, offset=end_offset) == [added]

    with kafka.stopped() as data_dir:
        shutil.copytree(data_dir / f"{CLEAN}-0", tmp_path / f"{CLEAN}-0")
    log = PartitionLog.open(tmp_path / f"{CLEAN}-0", SMALL_SEGMENTS, clean_shutdown=True)
    try:
        assert read_log(log) == [*served[CLEAN].all, added]
    finally:
        log.close()
