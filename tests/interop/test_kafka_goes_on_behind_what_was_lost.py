"""Kafka opens a log that has lost its last records and got an empty segment behind them, and gives no offset again."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from stratalog.cli.main import run
from stratalog.jobs.fsck.run import fsck as check
from stratalog.log.format.checkpoints import RECOVERY_POINTS, OffsetCheckpoint
from stratalog.log.format.file_names import log_file
from stratalog.records.batch import iter_batches
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.interop.contents import consume, write_partition
from tests.interop.test_kafka_opens_what_we_repaired import flip
from tests.interop.test_kafka_serves_our_directory import COMPLAINT, create, put_in_place
from tests.support.reference_kafka import ReferenceKafka

pytestmark = pytest.mark.interop

TOPIC = "ours-lost-tail"


def test_kafka_serves_what_is_left_and_goes_on_behind_what_is_lost(kafka: ReferenceKafka, tmp_path: Path) -> None:
    """Who reads up to the gap waits there, as in Kafka, until a record is behind it: so one is written first."""
    ours = tmp_path / f"{TOPIC}-0"
    written = write_partition(ours, rounds=16)
    create(kafka, TOPIC)
    with kafka.stopped() as data:
        put_in_place(kafka, ours)
        known_end = check([ours], REAL_FILESYSTEM).partitions[0].log_end_offset
        checkpoint = OffsetCheckpoint(data / RECOVERY_POINTS)
        checkpoint.write(checkpoint.read() | {(TOPIC, 0): known_end})
        last = max((data / ours.name).glob("*.log"))
        *_, lost = iter_batches(last.read_bytes())
        flip(last, lost.start + 16)
        assert run(["fsck", str(data)]) == 1
        assert run(["fsck", str(data), "--repair", "--yes", "--accept-loss"]) == 1  # a gap is left, as a warning
        assert (data / ours.name / log_file(known_end)).stat().st_size == 0
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(TOPIC, b"more", partition=0, on_delivery=lambda _, message: delivered.append(message))
    assert producer.flush(30) == 0
    assert [message.offset() for message in delivered] == [known_end]
    consumed = consume(kafka.bootstrap_servers, TOPIC, committed_only=False)
    kept = [seen for seen in written.all if seen.offset < lost.base_offset]
    assert consumed[:-1] == kept
    assert (consumed[-1].offset, consumed[-1].value) == (known_end, b"more")
    lines = kafka.log_path.read_text(errors="replace").splitlines()
    assert [line for line in lines if TOPIC in line and COMPLAINT.search(line)] == []
