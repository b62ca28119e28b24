"""Make the directories beside this file: what Apache Kafka 4.4.0 wrote, and what its own consumers then read.

    python -m tests.golden.kafka_log_dirs.make

One partition lives through: every codec, an idempotent producer, a committed, an aborted and an open transaction, a restart
of the broker (a new leader epoch), several segments. `stopped/` is the data directory after a clean shutdown, `killed/` after
some more records and a `kill -9`: both hold the partition and the broker's checkpoints. `records.json` lists, for each,
what Kafka's consumers got there, as runs of `some_records`: first offset, count, salt, whether the records are committed.
Ids of producers and topics, and times of append, differ from run to run.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.contents import Seen, consume, some_records
from tests.support.reference_kafka import ReferenceKafka

HERE = Path(__file__).parent
TOPIC = "golden"
TOPIC_CONFIG = {
    "internal.segment.bytes": "40000",
    "index.interval.bytes": "1000",
    "segment.index.bytes": "1200",
    "retention.ms": "-1",
}
CHECKPOINTS = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    ".kafka_cleanshutdown",
)


#: Salt and count of each run that was produced, in order.
produced: list[tuple[int, int]] = []


def produce(producer: Producer, salt: int, count: int = 50) -> None:
    for record in some_records(count, salt):
        headers: list[Any] = list(record.headers)
        producer.produce(TOPIC, record.value, record.key, timestamp=record.timestamp_ms, headers=headers)
    assert producer.flush(60) == 0
    produced.append((salt, count))


def new_producer(kafka: ReferenceKafka, **config: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 100, "log_level": 0, **settings})


def live(kafka: ReferenceKafka, salt: int) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(new_producer(kafka, compression_type=codec), salt)
    produce(new_producer(kafka, enable_idempotence=True), salt)
    for ending in ("commit", "abort"):
        producer = new_producer(kafka, transactional_id=ending)
        producer.init_transactions(60)
        producer.begin_transaction()
        produce(producer, salt)
        if ending == "commit":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def open_transaction(kafka: ReferenceKafka, salt: int) -> Producer:
    """Give the producer, so that its transaction stays open."""
    producer = new_producer(kafka, transactional_id="open", transaction_timeout_ms=900_000)
    producer.init_transactions(60)
    producer.begin_transaction()
    produce(producer, salt, 10)
    return producer


def keep(kafka: ReferenceKafka, name: str) -> None:
    place = HERE / name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(kafka.partition_dir(TOPIC), place / f"{TOPIC}-0")
    for checkpoint in CHECKPOINTS:
        path = kafka.data_dir / checkpoint
        if path.exists():
            shutil.copy(path, place / checkpoint)


def runs(kafka: ReferenceKafka) -> list[dict[str, Any]]:
    """What consumers get, as the runs that were produced (which it must be)."""
    seen = consume(kafka.bootstrap_servers, TOPIC)
    committed = {record.offset for record in consume(kafka.bootstrap_servers, TOPIC, committed_only=True)}
    found = []
    for salt, count in produced:
        records, seen = seen[:count], seen[count:]
        first = records[0].offset
        assert records == as_seen(salt, count, first)
        are_committed = {record.offset in committed for record in records}
        assert len(are_committed) == 1
        found.append({"first_offset": first, "count": count, "salt": salt, "committed": are_committed.pop()})
    assert not seen
    return found


def as_seen(salt: int, count: int, first_offset: int) -> list[Seen]:
    return [
        Seen(first_offset + i, record.timestamp_ms, record.key, record.value, record.headers)
        for i, record in enumerate(some_records(count, salt))
    ]


def main() -> None:
    expected = {}
    with tempfile.TemporaryDirectory() as directory:
        kafka = ReferenceKafka(directory)
        with kafka:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)])[TOPIC].result(60)
            live(kafka, 0)
            kafka.stop()
            kafka.start()
            live(kafka, 1)
            held = open_transaction(kafka, 2)
            expected["stopped"] = runs(kafka)
            kafka.stop()
            keep(kafka, "stopped")
            kafka.start()
            live(kafka, 3)
            expected["killed"] = runs(kafka)
            kafka.kill()
            keep(kafka, "killed")
            del held
    lines = [
        f"{json.dumps(name)}: [\n" + ",\n".join(f"  {json.dumps(run)}" for run in found) + "\n]"
        for name, found in expected.items()
    ]
    (HERE / "records.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


def records(name: str, *, committed_only: bool = False) -> list[Seen]:
    """What Kafka's consumers got of directory `name`."""
    found = json.loads((HERE / "records.json").read_text(encoding="utf-8"))[name]
    return list(
        itertools.chain.from_iterable(
            as_seen(run["salt"], run["count"], run["first_offset"])
            for run in found
            if run["committed"] or not committed_only
        )
    )


if __name__ == "__main__":
    main()
