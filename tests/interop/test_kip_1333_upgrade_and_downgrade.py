"""KIP-1333's manual tests of upgrade and downgrade, against Kafka 4.4.0 itself and before the feature is finalized.

Kafka writes 3000 records in three segments; we open its directory, serve all of it, and append; Kafka starts on the
result, serves all of it, and appends. Until somebody finalizes the feature indexes keep their entries of 8 bytes, so
that the way back is always open.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer

from stratalog.log.format.offset_index_format import LEGACY
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.log.scan import scan_headers
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.interop.contents import T0, consume
from tests.interop.test_swapped_directories import create, swap
from tests.support.killable_broker import KillableBroker
from tests.support.reference_kafka import ReferenceKafka, dump_log

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "kip-1333"
VALUE_BYTES = 950
COMPLAINT = re.compile(rf"(?:ERROR|WARN).*{TOPIC}-0|Corrupt.*{TOPIC}")


@dataclass
class Records:
    """Numbered ones; `count` of them are in the log by now."""

    count: int = 0
    values: list[bytes] = field(default_factory=list)

    def produce(self, bootstrap_servers: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "batch.size": 16_000, "linger.ms": 5})
        for number in range(self.count, self.count + count):
            value = (b"%06d" % number).ljust(VALUE_BYTES, b"x")
            self.values.append(value)
            producer.produce(TOPIC, value, partition=0, timestamp=T0 + number)
            producer.poll(0)
        assert producer.flush(60) == 0
        self.count += count

    def expect_all(self, bootstrap_servers: str) -> None:
        """From the beginning, and from offsets in the middle of every segment, which indexes are for."""
        seen = consume(bootstrap_servers, TOPIC)
        assert [each.value for each in seen] == self.values
        for offset in range(500, self.count, 500):
            assert [each.value for each in consume(bootstrap_servers, TOPIC, offset=offset)] == self.values[offset:]


def test_old_broker_new_broker_old_broker(kafka: ReferenceKafka, tmp_path: Path) -> None:
    records = Records()
    create(kafka.bootstrap_servers, TOPIC)
    records.produce(kafka.bootstrap_servers, 3000)
    theirs = kafka.partition_dir(TOPIC)
    assert len(segments(theirs)) == 3
    with KillableBroker(tmp_path / "ours") as ours:
        create(ours.address, TOPIC)
        place = ours.data_dir / f"{TOPIC}-0"

        kafka.stop()
        ours.end(signal.SIGTERM)
        swap(theirs, place)
        ours.start()  # the upgrade
        records.expect_all(ours.address)
        records.produce(ours.address, 1200)
        records.expect_all(ours.address)
        ours.end(signal.SIGTERM)
        assert len(segments(place)) > 3
        expect_entries_of_eight_bytes(place)

        swap(theirs, place)
        kafka.start()  # the downgrade
        records.expect_all(kafka.bootstrap_servers)
        records.produce(kafka.bootstrap_servers, 800)
        records.expect_all(kafka.bootstrap_servers)
        kafka.stop()
        expect_entries_of_eight_bytes(theirs)
        complaints = [
            line for line in kafka.log_path.read_text(errors="replace").splitlines() if COMPLAINT.search(line)
        ]
        kafka.start()
        assert complaints == []


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def expect_entries_of_eight_bytes(directory: Path) -> None:
    """Every index, read so, points at batches of its log; Kafka's own tool finds nothing wrong with it."""
    for path in segments(directory):
        with REAL_FILESYSTEM.open(path) as log:
            batches = {position: batch.last_offset for position, batch in scan_headers(log)}
        index_path = path.with_suffix(".index")
        with OffsetIndex(index_path, int(path.stem), max_size=0, writable=False, entry_size=LEGACY.entry_size) as index:
            index.sanity_check()
            assert index.length % LEGACY.entry_size == 0
            assert all(batches.get(entry.position) == entry.offset for entry in index)
            assert path == segments(directory)[-1] or index.entries > 50
    indexes = ",".join(str(path.with_suffix(".index")) for path in segments(directory))
    printed = dump_log(["--files", indexes, "--verify-index-only"])
    assert "Mismatch" not in printed
    assert "Found" not in printed
