"""Kafka and our broker take the same seeded writes, stop or are killed, and go on with each other's directories.

Neither may notice: every acknowledged record is served by the other, in order, at its offset; what is written then is
served by the first again when the directories go back.
"""

from __future__ import annotations

import random
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.log.format.checkpoints import PartitionMetadataFile
from stratalog.log.format.file_names import PARTITION_METADATA
from tests.interop.contents import T0, Seen, consume
from tests.support.killable_broker import KillableBroker
from tests.support.reference_kafka import ReferenceKafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Segments of the smallest size that topics may have, so that a few megabytes roll them.
TOPIC_CONFIG = {"segment.bytes": str(1024 * 1024), "retention.ms": "-1", "index.interval.bytes": "1024"}


@dataclass(slots=True)
class Workload:
    """Seeded records for one topic; `written` are those that a broker acknowledged, at the offsets it gave."""

    topic: str
    random: random.Random
    written: list[Seen]

    def produce(self, bootstrap_servers: str, records: int) -> None:
        """Some batches of each codec, by idempotent and plain producers."""
        for round_ in range(4):
            idempotent = self.random.random() < 0.5
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "compression.type": self.random.choice(CODECS),
                    "enable.idempotence": idempotent,
                    "linger.ms": self.random.choice((0, 5)),
                    "batch.size": self.random.choice((2_000, 100_000)),
                }
            )
            for number in range(records // 4):
                self._send(producer, number, round_)
            assert producer.flush(60) == 0

    def _send(self, producer: Producer, number: int, round_: int) -> None:
        key = None if number % 7 == 3 else b"key-%d" % self.random.randrange(500)
        value = None if number % 31 == 7 else self.random.randbytes(self.random.choice((0, 40, 900, 4_000)))
        headers = [("trace", b"%d" % number)] if number % 5 == 0 else []
        timestamp = T0 + number * 10 - self.random.choice((0, 0, 3_000)) + round_

        def delivered(error: object, message: object) -> None:
            assert error is None
            offset = message.offset()  # type: ignore[attr-defined]
            self.written.append(Seen(offset, timestamp, key, value, tuple(headers)))

        producer.produce(
            self.topic, key=key, value=value, headers=headers, timestamp=timestamp, partition=0, on_delivery=delivered
        )
        producer.poll(0)

    def assert_served_by(self, bootstrap_servers: str) -> None:
        assert consume(bootstrap_servers, self.topic) == sorted(self.written, key=lambda seen: seen.offset)


def create(bootstrap_servers: str, topic: str) -> None:
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=TOPIC_CONFIG)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([new])[topic].result(60)


def swap(one: Path, other: Path) -> None:
    """Exchange two partition directories; each keeps the topic id of its place."""
    ids = [PartitionMetadataFile(place / PARTITION_METADATA).read() for place in (one, other)]
    aside = one.with_name("aside")
    for source, target in ((one, aside), (other, one), (aside, other)):
        shutil.move(source, target)
    for place, topic_id in zip((one, other), ids, strict=True):
        assert topic_id is not None
        PartitionMetadataFile(place / PARTITION_METADATA).write(topic_id)


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGTERM, id="stopped", marks=pytest.mark.soak), pytest.param(signal.SIGKILL, id="killed")],
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 8))])
def test_each_goes_on_with_what_the_other_wrote(
    kafka: ReferenceKafka, tmp_path: Path, seed: int, how: signal.Signals
) -> None:
    topic = f"swapped-{how.name.lower()}-{seed}"
    with KillableBroker(tmp_path / "ours") as ours:
        addresses = (kafka.bootstrap_servers, ours.address)
        theirs_written, ours_written = (Workload(topic, random.Random(seed), []) for _ in addresses)
        places = kafka.partition_dir(topic), ours.data_dir / f"{topic}-0"
        for address, workload in zip(addresses, (theirs_written, ours_written), strict=True):
            create(address, topic)
            workload.produce(address, 2_000)
        for first, second in ((ours_written, theirs_written), (theirs_written, ours_written)):
            kafka.kill() if how is signal.SIGKILL else kafka.stop()
            ours.end(how)
            swap(*places)
            ours.start()
            kafka.start()
            for address, workload in zip(addresses, (first, second), strict=True):
                workload.assert_served_by(address)
                workload.produce(address, 600)
                workload.assert_served_by(address)
        assert len(list(places[1].glob("*.log"))) > 3
