"""Beside Spark's own Kafka source, through the same Apache Kafka: the same options give the same rows, or both
refuse."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.support.spark_kafka_source import spark_kafka_source
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stratalog.errors import StratalogError
from stratalog.spark.jvm.java import spark_java_home
from tests.spark.partitions import T0, scan
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka

pytestmark = pytest.mark.interop

_SCRIPT = Path(__file__).parents[1] / "support" / "spark_rows.py"


class SparkKafka:
    """Spark's Kafka source in a process of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        source = spark_kafka_source()
        environment = os.environ | {
            "JAVA_HOME": str(spark_java_home()),
            "PYSPARK_PYTHON": str(source.python),
        }
        self._bootstrap_servers = bootstrap_servers
        self._process = subprocess.Popen(
            [str(source.python), str(_SCRIPT), ",".join(map(str, source.jars))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=_SCRIPT.parent,
        )
        self._answer()

    def rows(self, options: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        # what fails is tried three times
        quick = {"fetchOffset.retryIntervalMs": "10", "kafkaConsumer.pollTimeoutMs": "2000"}
        options = {"kafka.bootstrap.servers": self._bootstrap_servers, **quick, **options}
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the session ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    require_reference_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    config = {
        "log.retention.ms": "-1",
        "log.segment.bytes": str(1024 * 1024),
        "offsets.topic.num.partitions": "1",
    }
    with ReferenceKafka(directory, config=config) as kafka:
        _fill(kafka.bootstrap_servers)
        yield kafka


@pytest.fixture(scope="module")
def theirs(kafka: ReferenceKafka) -> Iterator[SparkKafka]:
    session = SparkKafka(kafka.bootstrap_servers)
    yield session
    session.close()


def _fill(bootstrap_servers: str) -> None:
    """Topics `plain` (3 partitions, the last one empty), `deleted` (begins at offset 40), `money` (transactions)."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic("plain", 3, 1), NewTopic("deleted", 1, 1), NewTopic("money", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": codec, "linger.ms": 50})
        for i in range(40):
            producer.produce(
                "plain",
                key=None if i % 3 == 0 else b"key%d" % i,
                value=None if i % 7 == 0 else codec.encode() * i,
                partition=i % 2,
                timestamp=T0 + 1000 * i,
                headers=[("codec", codec.encode()), ("none", None)] if i % 2 else None,
            )
            if codec == "none":
                producer.produce("deleted", b"%d" % i, partition=0, timestamp=T0 + 1000 * i)
        producer.produce("deleted", codec.encode(), partition=0, timestamp=T0 + 100_000)
        producer.flush(30)
    admin.delete_records([TopicPartition("deleted", 0, 40)])[TopicPartition("deleted", 0)].result(60)
    for n, end in enumerate(("commit", "abort", "commit", "abort", "open")):
        producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"teller-{n}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for i in range(10):
            producer.produce("money", f"{end} {n} {i}".encode(), partition=0, timestamp=T0 + 1000 * i)
        producer.flush(30)
        if end != "open":
            getattr(producer, f"{end}_transaction")(60)
    Producer({"bootstrap.servers": bootstrap_servers}).flush()


PLAIN = {"subscribe": "plain"}
DELETED = {"subscribe": "deleted"}
MONEY = {"subscribe": "money"}

CASES: list[dict[str, str]] = [
    PLAIN,
    PLAIN | {"includeHeaders": "true"},
    {"subscribe": "plain,deleted"},
    {"subscribePattern": "pl.*|del.*"},
    {"subscribePattern": "plai"},
    {"subscribePattern": ".*"},
    {"assign": '{"plain":[1],"deleted":[0]}'},
    {"assign": '{"plain":[7]}'},
    {"subscribe": "nobody"},
    {"subscribe": "plain", "assign": '{"plain":[1]}'},
    {"subscribe": ""},
    {},
    PLAIN | {"startingOffsets": "earliest", "endingOffsets": "latest"},
    PLAIN | {"startingOffsets": "EARLIEST", "endingOffsets": "Latest"},
    PLAIN | {"startingOffsets": "latest"},
    PLAIN | {"endingOffsets": "earliest"},
    PLAIN | {"startingOffsets": '{"plain":{"0":-2,"1":30,"2":0}}'},
    PLAIN | {"startingOffsets": '{"plain":{"0":-1,"1":30,"2":0}}'},
    PLAIN | {"startingOffsets": '{"plain":{"0":-3,"1":30,"2":0}}'},
    PLAIN | {"startingOffsets": '{"plain":{"0":1,"1":30}}'},
    PLAIN | {"startingOffsets": '{"plain":{"0":1,"1":30,"2":0,"3":0}}'},
    PLAIN | {"startingOffsets": "{"},
    PLAIN | {"endingOffsets": '{"plain":{"0":-1,"1":30,"2":0}}'},
    PLAIN | {"endingOffsets": '{"plain":{"0":-2,"1":30,"2":0}}'},
    PLAIN
    | {
        "startingOffsets": '{"plain":{"0":5,"1":5,"2":0}}',
        "endingOffsets": '{"plain":{"0":25,"1":5,"2":0}}',
    },
    PLAIN
    | {
        "startingOffsets": '{"plain":{"0":50,"1":5,"2":0}}',
        "endingOffsets": '{"plain":{"0":25,"1":6,"2":0}}',
    },
    PLAIN | {"startingOffsets": '{"plain":{"0":100,"1":100,"2":0}}'},
    PLAIN | {"startingOffsets": '{"plain":{"0":101,"1":100,"2":0}}'},
    PLAIN | {"startingOffsets": '{"plain":{"0":101,"1":100,"2":0}}', "failOnDataLoss": "false"},
    PLAIN | {"endingOffsets": '{"plain":{"0":120,"1":100,"2":0}}', "kafkaConsumer.pollTimeoutMs": "2000"},
    DELETED,
    DELETED | {"startingOffsets": '{"deleted":{"0":10}}'},
    DELETED | {"startingOffsets": '{"deleted":{"0":10}}', "failOnDataLoss": "false"},
    DELETED | {"startingOffsets": '{"deleted":{"0":10}}', "endingOffsets": '{"deleted":{"0":20}}'},
    DELETED
    | {
        "startingOffsets": '{"deleted":{"0":10}}',
        "endingOffsets": '{"deleted":{"0":42}}',
        "failOnDataLoss": "false",
    },
    DELETED | {"endingOffsets": '{"deleted":{"0":20}}'},
    DELETED | {"startingTimestamp": str(T0)},
    DELETED | {"startingTimestamp": str(T0 + 50_000), "endingTimestamp": str(T0 + 100_000)},
    DELETED | {"startingTimestamp": str(T0 + 200_000)},
    DELETED | {"startingTimestamp": str(T0 + 200_000), "startingOffsetsByTimestampStrategy": "latest"},
    DELETED | {"startingTimestamp": str(T0 + 200_000), "startingOffsetsByTimestampStrategy": "error"},
    DELETED | {"startingTimestamp": str(T0), "startingOffsetsByTimestampStrategy": "earliest"},
    DELETED | {"endingTimestamp": str(T0 + 200_000)},
    DELETED | {"startingTimestamp": "soon"},
    DELETED | {"startingTimestamp": "-5"},
    PLAIN | {"startingOffsetsByTimestamp": json.dumps({"plain": {"0": T0 + 9_500, "1": T0, "2": T0}})},
    PLAIN
    | {
        "startingOffsetsByTimestamp": json.dumps({"plain": {"0": T0 + 9_500, "1": T0, "2": T0}}),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    PLAIN | {"endingOffsetsByTimestamp": json.dumps({"plain": {"0": T0 + 9_500, "1": T0, "2": T0}})},
    PLAIN | {"endingOffsetsByTimestamp": json.dumps({"plain": {"0": T0 + 9_500, "1": T0}})},
    DELETED
    | {
        "startingTimestamp": str(T0 + 100_000),
        "startingOffsetsByTimestamp": json.dumps({"deleted": {"0": T0 + 200_000}}),
        "startingOffsets": '{"deleted":{"0":43}}',
    },
    DELETED
    | {
        "startingOffsetsByTimestamp": json.dumps({"deleted": {"0": T0 + 100_000}}),
        "startingOffsets": '{"deleted":{"0":43}}',
    },
    DELETED | {"startingTimestamp": str(T0 + 100_000), "endingTimestamp": str(T0)},
    PLAIN | {"minPartitions": "7"},
    PLAIN | {"minPartitions": "0"},
    PLAIN | {"minPartitions": "many"},
    PLAIN | {"maxRecordsPerPartition": "9"},
    PLAIN | {"maxRecordsPerPartition": "0"},
    PLAIN | {"failOnDataLoss": "perhaps"},
    PLAIN | {"includeHeaders": "perhaps"},
    MONEY,
    MONEY | {"kafka.isolation.level": "read_committed"},
    MONEY | {"kafka.isolation.level": "read_uncommitted"},
    MONEY | {"kafka.isolation.level": "read_committed", "startingOffsets": '{"money":{"0":15}}'},
    MONEY | {"kafka.isolation.level": "read_committed", "maxRecordsPerPartition": "3"},
    MONEY | {"kafka.isolation.level": "perhaps"},
    MONEY | {"kafka.group.id": "mine"},
    MONEY | {"groupIdPrefix": "mine"},
    MONEY | {"kafka.max.poll.records": "2", "kafka.fetch.max.bytes": "100"},
    MONEY | {"kafka.auto.offset.reset": "earliest"},
    MONEY | {"kafka.key.deserializer": "x"},
    MONEY | {"kafka.value.deserializer": "x"},
    MONEY | {"kafka.enable.auto.commit": "true"},
    MONEY | {"kafka.interceptor.classes": "x"},
    MONEY | {"kafka.bootstrap.servers": "nowhere"},
    MONEY | {"kafka.security.protocol": "PLAIN"},
    MONEY | {"maxOffsetsPerTrigger": "3"},
]


def _ours(options: dict[str, str]) -> dict[str, Any]:
    try:
        found = scan(**options)
    except StratalogError as error:
        return {"error": str(error)}
    return {"rows": _in_order([_plain(row) for row in found.rows])}


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as `spark_rows` prints it."""
    plain = {
        **row,
        "key": _hex(row["key"]),
        "value": _hex(row["value"]),
        "timestamp": int(row["timestamp"].timestamp() * 1000),
    }
    if "headers" in row:
        headers = row["headers"] and [{"key": each["key"], "value": _hex(each["value"])} for each in row["headers"]]
        plain["headers"] = headers and json.dumps(headers, separators=(",", ":"))
    return plain


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex().upper()


@pytest.mark.parametrize("options", CASES, ids=lambda options: json.dumps(options)[:90])
def test_the_same_rows_or_both_refuse(kafka: ReferenceKafka, theirs: SparkKafka, options: dict[str, str]) -> None:
    expected = theirs.rows(options)
    through_broker = _ours({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})
    assert ("error" in through_broker) == ("error" in expected), (through_broker, expected)
    with_files = _ours({"kafka.bootstrap.servers": kafka.bootstrap_servers, "path": str(kafka.data_dir), **options})
    assert ("error" in with_files) == ("error" in expected), (with_files, expected)
    if "rows" in expected:
        rows = _in_order(expected["rows"])
        assert through_broker["rows"] == rows
        assert with_files["rows"] == rows
