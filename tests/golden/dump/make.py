"""Make the files beside this one: what Apache Kafka 4.4.0 wrote, and what kafka-dump-log printed for it.

    python -m tests.golden.dump.make [--expect | --metadata]

`--expect` runs the tool only; `--metadata` rewrites `__cluster_metadata` and leaves the other topics.

`<topic>/` holds the files of one partition as the broker left them at a clean shutdown. `expected/` holds the tool's
output; the directory's own path is replaced by `DIR` in it. Timestamps of records are fixed; ids of producers, crcs that depend on
them and times that the broker takes from its clock differ from run to run, which is why the files are kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.support.reference_kafka import ReferenceKafka, dump_log, tool

HERE = Path(__file__).parent
T0 = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEPT = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
METADATA = "__cluster_metadata"

#: name of the expected output -> (topic, suffixes of the files, options)
DUMPS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    **{
        f"{codec}-{name}": (codec, (".log",), options)
        for codec in CODECS
        for name, options in (("shallow", ()), ("deep", ("--deep-iteration",)), ("data", ("--print-data-log",)))
    },
    "append-time-data": ("append-time", (".log",), ("--print-data-log",)),
    "transactions-data": ("transactions", (".log",), ("--print-data-log",)),
    "transactions-rest": ("transactions", (".index", ".timeindex", ".txnindex", ".snapshot"), ()),
    "indexed-shallow": ("indexed", (".log",), ()),
    "indexed-indexes": ("indexed", (".index", ".timeindex"), ()),
    "indexed-verify": ("indexed", (".index", ".timeindex"), ("--verify-index-only",)),
    "indexed-sanity": ("indexed", (".index", ".timeindex"), ("--index-sanity-check",)),
    "skip-metadata": ("none", (".log",), ("--print-data-log", "--skip-record-metadata")),
    "offsets-decoder": ("__consumer_offsets", (".log",), ("--offsets-decoder",)),
    "transaction-log-decoder": ("__transaction_state", (".log",), ("--transaction-log-decoder",)),
    "cluster-metadata-decoder": (METADATA, (".log", ".checkpoint"), ("--cluster-metadata-decoder",)),
    "cluster-metadata-deep": (METADATA, (".log", ".checkpoint"), ("--deep-iteration",)),
    "cluster-metadata-skip": (METADATA, (".checkpoint",), ("--cluster-metadata-decoder", "--skip-record-metadata")),
    "empty": ("empty", (".log", ".index", ".timeindex"), ()),
}


def _produce(kafka: ReferenceKafka, topic: str, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50, **settings})
    for row in rows:
        producer.produce(topic, **row)
    producer.flush(30)


def _rows(count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i in range(count):
        row: dict[str, Any] = {
            "key": f"key-{i}",
            "value": f"value {i} " * (i % 4),
            "timestamp": T0 + i * 1000,
        }
        if i % 5 == 1:
            row["headers"] = [("a", b"1"), ("a", b""), ("größe", None)]
        if i % 7 == 2:
            row["key"] = None
        if i % 7 == 3:
            row["value"] = None
        if i == 8:
            row["key"], row["value"] = (
                "clé".encode(),
                b"\xff\xfe bytes \xed\xa0\x80 that are no text \xe2\x82",
            )
        rows.append(row)
    return rows


def _transactions(kafka: ReferenceKafka, topic: str) -> None:
    from confluent_kafka import Producer

    for name, ends in (("first", "cac"), ("second", "a")):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
        producer.init_transactions(30)
        for number, end in enumerate(ends):
            producer.begin_transaction()
            for i in range(3):
                producer.produce(topic, key=f"{name}-{number}", value=f"{i}", timestamp=T0 + i)
            producer.flush(30)
            (producer.commit_transaction if end == "c" else producer.abort_transaction)(30)


def _commit_offsets(kafka: ReferenceKafka, topic: str) -> None:
    from confluent_kafka import Consumer

    for protocol in ("classic", "consumer"):
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": f"group-{protocol}",
                "group.protocol": protocol,
                "client.id": "client",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        message = None
        for _ in range(60):
            message = consumer.poll(1)
            if message is not None:
                break
        assert message is not None, "nothing to consume"
        consumer.commit(message, asynchronous=False)
        consumer.close()


def fill(kafka: ReferenceKafka) -> None:
    """Write every topic that the goldens need."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    configs = {
        "append-time": {"message.timestamp.type": "LogAppendTime"},
        "indexed": {"index.interval.bytes": "300"},
    }
    names = (*CODECS, "append-time", "transactions", "indexed", "empty")
    topics = [
        NewTopic(name, num_partitions=1, replication_factor=1, config=configs.get(name, {})) for name in names
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in CODECS:
        _produce(kafka, codec, {"compression.type": codec}, _rows(12))
        perf = [
            "--topic",
            codec,
            "--num-records",
            "6",
            "--record-size",
            "20",
            "--throughput",
            "-1",
            "--command-property",
            f"bootstrap.servers={kafka.bootstrap_servers}",
            f"compression.type={codec}",
        ]
        tool("org.apache.kafka.tools.ProducerPerformance", perf)
    _produce(kafka, "append-time", {"compression.type": "lz4"}, _rows(5))
    _transactions(kafka, "transactions")
    for i in range(30):
        _produce(kafka, "indexed", {"enable.idempotence": i % 2 == 0}, _rows(4 + i % 3))
    _commit_offsets(kafka, "none")


def _change_metadata(kafka: ReferenceKafka) -> None:
    """What leaves records of several kinds in the metadata log, and some snapshots."""
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        ResourceType,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(3):
        admin.create_topics([NewTopic(f"t{n}", 2, 1, config={"retention.ms": "5"})])[f"t{n}"].result(30)
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, "t1", incremental_configs=[entry])]
    ).values():
        future.result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("ann", info, b"secret", b"salt")
    admin.alter_user_scram_credentials([upsertion])["ann"].result(30)
    admin.delete_topics(["t2"])["t2"].result(30)


def keep(kafka: ReferenceKafka, target: Path, topics: Collection[str]) -> None:
    for topic in sorted(topics):
        source, copies = kafka.partition_dir(topic), target / topic
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir(parents=True)
        kept = (".log", ".checkpoint") if topic == METADATA else KEPT  # its indexes have their full size still
        for path in sorted(source.iterdir()):
            if path.suffix in kept or path.name in ("leader-epoch-checkpoint", "partition.metadata"):
                shutil.copy2(path, copies)


def expect(target: Path) -> None:
    out = target / "expected"
    out.mkdir(exist_ok=True)
    for name, (topic, suffixes, options) in DUMPS.items():
        files = [path for suffix in suffixes for path in sorted((target / topic).glob(f"*{suffix}"))]
        text = dump_log(["--files", ",".join(map(str, files)), *options])
        (out / f"{name}.txt").write_text(text.replace(str(target), "DIR"))


def main() -> None:
    topics = {topic for topic, _, _ in DUMPS.values()} - {METADATA}
    snapshots = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
    with tempfile.TemporaryDirectory() as directory:
        if not {"--expect", "--metadata"} & set(sys.argv):
            with ReferenceKafka(Path(directory) / "kafka") as kafka:
                fill(kafka)
                kafka.stop()
                keep(kafka, HERE, topics)
        if "--expect" not in sys.argv:
            with ReferenceKafka(Path(directory) / "other", config=snapshots) as kafka:
                _change_metadata(kafka)
                kafka.stop()
                keep(kafka, HERE, {METADATA})
    expect(HERE)


if __name__ == "__main__":
    main()
