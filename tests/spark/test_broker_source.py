"""A Spark session over a running broker: one word changed, a bucket besides, and nothing of it that tells a secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F

from stratalog.broker.server.server import Broker
from stratalog.spark.options.read_options import ReadOptions
from tests.spark.partitions import scan

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "50",
}
RECORDS = 300
NOW = int(time.time() * 1000)
SECRET = "hunter2"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{tmp_path_factory.mktemp('bucket')}"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data_dir: Path, bucket: str) -> Iterator[Broker]:
    """`flights`, of two partitions, tiered: what is old is in the bucket alone, the newest on the disk alone."""
    with Broker(data_dir, config=SETTINGS | {"stratalog.remote.url": bucket}) as broker:
        config = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "1"}
        broker.services.topics.create("flights", 2, config)
        for part in range(3):
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            for i in range(part * RECORDS // 3, (part + 1) * RECORDS // 3):
                producer.produce("flights", b"%d" % i, b"key%d" % i, partition=i % 2, timestamp=NOW + 1000 * i)
            producer.flush(30)
            if part < 2:
                for number in range(2):
                    partition = broker.services.partition("flights", number)
                    assert partition is not None
                    partition.log.roll()
        for number in range(2):
            _tier(broker, number)
        yield broker


def _tier(broker: Broker, number: int) -> None:
    """Wait until the sealed segments are in the bucket, and delete them from the disk."""
    partition = broker.services.partition("flights", number)
    assert partition is not None
    while partition.log.highest_offset_in_remote_storage < RECORDS // 3 - 1:
        time.sleep(0.02)
    assert len(partition.log.delete_old_segments()) == 2


def test_files_bucket_and_broker_are_one_log(broker: Broker, bucket: str, data_dir: Path) -> None:
    servers = {"kafka__bootstrap__servers": broker.bootstrap_servers}
    for where in (
        servers,
        servers | {"remote": bucket},
        servers | {"path": str(data_dir)},
        servers | {"path": str(data_dir), "remote": bucket},
    ):
        found = scan(subscribe="flights", **where)
        values = sorted(int(row["value"]) for row in found.rows)
        assert values == list(range(RECORDS)), where
        assert [row["offset"] for row in found.rows if row["partition"] == 1] == list(range(RECORDS // 2))


def test_one_word_changed(spark: SparkSession, broker: Broker) -> None:
    frame = (
        spark.read.format("stratalog")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "flights")
        .option("startingOffsets", '{"flights":{"0":100,"1":-2}}')
        .load()
    )
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    found = frame.where("offset >= 120 or partition = 1").agg(
        F.count("*"), F.sum(F.expr("cast(cast(value as string) as int)"))
    )
    expected = [i for i in range(RECORDS) if i % 2 or i // 2 >= 120]
    assert tuple(found.collect()[0]) == (len(expected), sum(expected))


def test_nothing_shows_a_secret(
    spark: SparkSession, broker: Broker, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.ssl.key.password": SECRET,
        "kafka.sasl.jaas.config": f'PlainLoginModule required username="me" password="{SECRET}";',
        "remote": bucket,
        "subscribe": "flights",
    }
    frame = spark.read.format("stratalog").options(**options).load().where("offset > 3").select("value")
    frame.explain(True)
    frame.explain("formatted")
    assert frame.count() == RECORDS - 8
    plan = frame._jdf.queryExecution().toString()
    shown = capsys.readouterr()
    for text in (shown.out, shown.err, plan, str(ReadOptions.parse(options))):
        assert SECRET not in text
    assert "BatchScan" in plan
    unreachable = {
        "remote": "s3://bucket/tiered",
        "remote.endpoint": "http://127.0.0.1:1",
        "remote.access_key_id": "me",
        "remote.secret_access_key": SECRET,
        "remote.max_retries": "0",
    }
    for wrong in (
        {"kafka.security.protocol": "SASL_PLAINTEXT"},
        {"remote.secret_access_key": SECRET},
        unreachable,
    ):
        with pytest.raises(PySparkException) as raised:
            spark.read.format("stratalog").options(**{**options, **wrong}).load().count()
        assert SECRET not in str(raised.value)


def test_a_broker_that_is_away_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
    frame = (
        spark.read.format("stratalog").option("kafka.bootstrap.servers", servers).option("subscribe", "flights").load()
    )
    with pytest.raises(PySparkException, match=f"cannot reach a broker at {servers}: Connection refused"):
        frame.count()
