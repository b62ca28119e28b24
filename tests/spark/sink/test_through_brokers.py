"""Writes through brokers: what readers of committed records see is each batch once, whatever dies when."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import stratalog
from stratalog.errors import MessageTooLargeError, UsageError
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.spark.sink.batch_marks import BatchMark, TaskTransaction, encode_mark
from stratalog.spark.sink.broker import BrokerStreamWriter, BrokerTaskResult, BrokerWriter, ProducingWrite
from stratalog.spark.sink.broker_options import BrokerSinkOptions
from stratalog.spark.sink.errors import FencedWriterError, LostTransactionError, RefusedRecordsError
from stratalog.spark.sink.partitioner import Partitioner
from stratalog.wire.client import Cluster
from stratalog.wire.client.transactions import Coordinators
from tests.support.waiting import wait_until

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", StringType())])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stratalog.Broker]:
    with stratalog.Broker(
        data_dir=tmp_path_factory.mktemp("broker"), config={"auto.create.topics.enable": "false"}
    ) as running:
        yield running


@pytest.fixture
def topic(broker: stratalog.Broker, request: pytest.FixtureRequest) -> str:
    name = f"t-{hashlib.sha256(request.node.name.encode()).hexdigest()[:16]}"
    broker.services.topics.create(name, 3)
    return name


def options(broker: stratalog.Broker, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **more}


def write_of(broker: stratalog.Broker, topic: str, **more: str) -> ProducingWrite:
    return ProducingWrite(BrokerSinkOptions.parse(options(broker, topic, **more)), SCHEMA)


def rows(*values: str) -> list[pa.RecordBatch]:
    keys = pa.array([value.encode() for value in values], pa.binary())
    return [pa.RecordBatch.from_arrays([keys, pa.array(values, pa.string())], names=["key", "value"])]


def seen(broker: stratalog.Broker, topic: str, *, committed: bool = True) -> list[str]:
    """Values that a consumer sees, in order within each partition; the last stable offset bounds it."""
    found = []
    with Cluster(broker.bootstrap_servers) as cluster:
        for partition in cluster.topics([topic])[topic].partitions:
            found += _of_partition(cluster, topic, partition, committed)
    return found


def _of_partition(cluster: Cluster, topic: str, partition: int, committed: bool) -> list[str]:
    values: list[str] = []
    offset = 0
    while True:
        got = cluster.fetch(topic, partition, offset, 1 << 20, read_committed=committed, max_wait_ms=0)
        batches: list[RecordBatch] = list(iter_batches(got.records))
        if not batches:
            return values
        begins = {each.producer_id: each.first_offset for each in reversed(got.aborted or ())}
        for batch in batches:
            offset = batch.next_offset
            if batch.is_control:
                begins = {
                    each.producer_id: each.first_offset
                    for each in reversed(got.aborted or ())
                    if each.first_offset >= offset or each.producer_id != batch.producer_id
                }
                continue
            first = begins.get(batch.producer_id)
            if not committed or first is None or batch.base_offset < first:
                values += [(record.value or b"").decode() for record in batch.records()]


def task(write: ProducingWrite, *values: str) -> BrokerTaskResult:
    return write.run(rows(*values))


# --- one write --------------------------------------------------------------------------------------------------------


def test_a_dataframe_is_written_once_to_the_partitions_of_its_keys(
    spark: SparkSession, broker: stratalog.Broker, topic: str
) -> None:
    frame = spark.range(500).selectExpr("concat('k', id) as key", "concat('v', id) as value").repartition(4)
    _save(frame, broker, topic, codec="zstd", batchBytes="2k")
    assert sorted(seen(broker, topic)) == sorted(f"v{n}" for n in range(500))
    read = (
        spark.read.format("stratalog")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("isolationLevel", "read_committed")
        .load()
        .selectExpr("cast(key as string) key", "partition")
        .collect()
    )
    keys = pa.array([row.key.encode() for row in read], pa.binary())
    expected = Partitioner(3, 0).partitions(keys, None, len(keys)).tolist()
    assert [row.partition for row in read] == expected


def _save(frame: DataFrame, broker: stratalog.Broker, topic: str, **more: str) -> None:
    frame.write.format("stratalog").mode("append").options(**options(broker, topic, **more)).save()


def test_a_job_that_fails_shows_nothing_and_leaves_nothing_open(
    spark: SparkSession, broker: stratalog.Broker, topic: str
) -> None:
    frame = (
        spark.range(200)
        .repartition(2)
        .selectExpr(
            "cast(id as string) as key", "if(id = 77, raise_error('no such flight'), cast(id as string)) as value"
        )
    )
    with pytest.raises(PySparkException, match="no such flight"):
        _save(frame, broker, topic, transactionTimeout="5s")
    assert seen(broker, topic) == []
    with Cluster(broker.bootstrap_servers) as cluster:
        coordinators = Coordinators(cluster)
        # Spark stops the other task only after the abort of the job: the transaction that it may begin then times out.
        wait_until(lambda: not coordinators.ongoing("stratalog-sink-"), "no transaction of the job is open")
    assert seen(broker, topic) == []


def test_at_least_once_needs_no_transactions(broker: stratalog.Broker, topic: str) -> None:
    write = write_of(broker, topic, delivery="atLeastOnce")
    reported = task(write, "a", "b")
    assert reported.transaction is None
    assert (reported.records, sorted(seen(broker, topic))) == (2, ["a", "b"])
    write.commit([reported], None)


def test_a_task_without_rows_begins_nothing(broker: stratalog.Broker, topic: str) -> None:
    write = write_of(broker, topic)
    assert write.run([]).transaction is None
    write.commit([write.run([]), None], None)
    assert seen(broker, topic) == []


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_second_attempt_of_a_task_takes_the_place_of_the_first(broker: stratalog.Broker, topic: str) -> None:
    write = write_of(broker, topic)
    first = task(write, "a", "b")
    second = task(write, "a", "b")
    write.commit([second], None)
    assert sorted(seen(broker, topic)) == ["a", "b"]
    assert sorted(seen(broker, topic, committed=False)) == ["a", "a", "b", "b"]
    with pytest.raises(FencedWriterError, match="another run of the query"):
        write.commit([first], None)


def test_a_batch_that_the_topic_does_not_take_is_named(broker: stratalog.Broker, topic: str) -> None:
    write = write_of(broker, topic, batchBytes="4m")
    with pytest.raises(RefusedRecordsError, match="lower option batchBytes") as raised:
        task(write, "x" * 2_000_000)
    assert isinstance(raised.value.__cause__, MessageTooLargeError)
    write.abort()
    assert seen(broker, topic) == []


# --- numbered batches -------------------------------------------------------------------------------------------------


def test_a_numbered_batch_is_written_once_however_often_it_is_tried(broker: stratalog.Broker, topic: str) -> None:
    for batch, values in ((0, "a"), (0, "a"), (1, "b"), (0, "a"), (1, "b")):
        write = write_of(broker, topic, queryId=topic)
        write.commit([task(write, values)], batch)
    assert sorted(seen(broker, topic)) == ["a", "b"]


def test_what_was_not_decided_is_aborted_by_the_next_run(broker: stratalog.Broker, topic: str) -> None:
    task(write_of(broker, topic, queryId=topic), "lost")
    assert seen(broker, topic) == []
    write = write_of(broker, topic, queryId=topic)
    write.commit([task(write, "kept")], 0)
    assert seen(broker, topic) == ["kept"]


class _DiesAt(Coordinators):
    """Ends the process, as it were, at the n-th call that changes something."""

    left = 0

    def _step(self) -> None:
        type(self).left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def end(self, *args: Any, **how: Any) -> None:
        self._step()
        super().end(*args, **how)

    def commit_offsets(self, *args: Any) -> None:
        self._step()
        super().commit_offsets(*args)


@pytest.mark.parametrize("steps", range(5))
def test_a_driver_that_dies_at_any_step_of_a_commit_has_written_the_batch_once_when_it_runs_again(
    broker: stratalog.Broker, topic: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_of(broker, topic, queryId=topic)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: _Task(0))
    reported = [task(first, "a", "b")]
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: _Task(1))
    reported.append(task(first, "c"))
    with monkeypatch.context() as patch:
        patch.setattr(_DiesAt, "left", steps)
        patch.setattr("stratalog.spark.sink.broker.Coordinators", _DiesAt)
        if steps < 4:  # decided, two ends, done
            with pytest.raises(KeyboardInterrupt):
                first.commit(reported, 0)
        else:
            first.commit(reported, 0)
    again = write_of(broker, topic, queryId=topic)
    again.commit([task(again, "a", "b", "c")], 0)
    assert sorted(seen(broker, topic)) == ["a", "b", "c"]
    again.commit([task(again, "d")], 1)
    assert sorted(seen(broker, topic)) == ["a", "b", "c", "d"]


class _Task:
    def __init__(self, number: int) -> None:
        self._number = number

    def partitionId(self) -> int:  # noqa: N802
        return self._number

    def getLocalProperty(self, _name: str) -> None:  # noqa: N802
        return None


def test_a_decided_batch_whose_transaction_is_gone_stops_the_query(broker: stratalog.Broker, topic: str) -> None:
    write = write_of(broker, topic, queryId=topic)
    reported = task(write, "a")
    assert reported.transaction is not None
    mark = BatchMark(3, "", False, (TaskTransaction(0, reported.transaction.producer_id, 0),))
    task(write, "b")  # takes the transactional id over
    with Cluster(broker.bootstrap_servers) as cluster:
        Coordinators(cluster).commit_offsets(write._name, encode_mark(mark, topic, 3))
    with pytest.raises(LostTransactionError, match=r"batch 3 .* written in part"):
        task(write_of(broker, topic, queryId=topic), "c")


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, broker: stratalog.Broker, topic: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for round_ in range(3):
        values = spark.range(round_ * 50, round_ * 50 + 50).selectExpr(
            "cast(id as string) key", "cast(id as string) value"
        )
        values.write.mode("append").parquet(str(source))
        query = (
            spark.readStream.schema("key string, value string")
            .parquet(str(source))
            .writeStream.format("stratalog")
            .options(**options(broker, topic))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert sorted(map(int, seen(broker, topic))) == list(range(150))


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"path": "/data"}, "a write goes to one place"),
        ({"remote": "s3://bucket/x"}, "a write goes to one place"),
        ({"kafka.acks": "1"}, "kafka.acks is not supported"),
        ({"kafka.transactional.id": "x"}, "queryId says by what"),
        ({"delivery": "twice"}, "option delivery=twice: expected exactlyOnce or atLeastOnce"),
        ({"kafka.compression.type": "rar"}, "expected none, gzip"),
        ({"batchId": "1"}, "queryId has to say"),
        ({"partitions": "3"}, "option partitions=3 is unknown"),
    ],
)
def test_wrong_options_are_named(broker: stratalog.Broker, more: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BrokerSinkOptions.parse(options(broker, "t", **more))


def test_a_topic_that_is_not_there_is_named_before_any_task(broker: stratalog.Broker) -> None:
    with pytest.raises(UsageError, match="topic nowhere does not exist: create it"):
        write_of(broker, "nowhere")


def test_overwriting_is_refused(broker: stratalog.Broker, topic: str) -> None:
    with pytest.raises(UsageError, match="overwrite is not supported"):
        BrokerWriter(BrokerSinkOptions.parse(options(broker, topic)), SCHEMA, overwrite=True)


def test_a_stream_without_a_name_is_refused(broker: stratalog.Broker, topic: str) -> None:
    with pytest.raises(UsageError, match="checkpointLocation"):
        BrokerStreamWriter(BrokerSinkOptions.parse(options(broker, topic)), SCHEMA)


def test_a_timeout_that_brokers_do_not_allow_is_named(broker: stratalog.Broker, topic: str) -> None:
    write = write_of(broker, topic, transactionTimeout="10h")
    with pytest.raises(UsageError, match="option transactionTimeout=36000000ms: the brokers allow less"):
        task(write, "a")
