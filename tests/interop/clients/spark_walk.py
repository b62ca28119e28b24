"""Walks Spark's own Kafka connector against one broker: `python spark_walk.py BROKER JARS DIRECTORY`.

JARS are those of the connector, by commas; checkpoints go to DIRECTORY. The topic `shortened` is there, and of its
records a to d the first two are deleted. Prints "ok NAME" or "not ok NAME: WHY" for each part, and ends with "end". It
runs in an environment of its own, which has pyspark and nothing of this project.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

PARTS: list[Callable[[Walk], None]] = []


def part(function: Callable[[Walk], None]) -> Callable[[Walk], None]:
    PARTS.append(function)
    return function


class Walk:
    def __init__(self, broker: str, jars: str, directory: Path) -> None:
        from pyspark.sql import SparkSession

        self.directory = directory
        self._number = 0
        self.options = {"kafka.bootstrap.servers": broker, "fetchOffset.retryIntervalMs": "10"}
        self.spark: Any = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "768m")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")
        self.jvm = cast(Any, self.spark._jvm)
        helpers = self.jvm.org.apache.kafka.clients.admin
        self._new_topic = helpers.NewTopic
        self._admin = helpers.Admin.create(self.java_map({"bootstrap.servers": broker}))

    def java_map(self, values: dict[str, str]) -> Any:
        made = self.jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def java_list(self, value: Any) -> Any:
        made = self.jvm.java.util.ArrayList()
        made.add(value)
        return made

    def topic(self, partitions: int = 1) -> str:
        self._number += 1
        name = f"topic-{self._number}"
        retained = self.java_map({"retention.ms": "-1"})
        asked = self._new_topic(name, partitions, self.jvm.Short.parseShort("1")).configs(retained)
        self._admin.createTopics(self.java_list(asked)).all().get()
        return name

    def grow(self, topic: str, partitions: int) -> None:
        asked = self.jvm.java.util.HashMap()
        asked.put(topic, self.jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions))
        self._admin.createPartitions(asked).all().get()

    def write(self, topic: str, rows: list[tuple[Any, ...]], columns: str, **options: str) -> None:
        frame = self.spark.createDataFrame(rows, columns)
        frame.coalesce(1).write.format("kafka").options(**self.options, **options).option("topic", topic).save()

    def values(self, topic: str, values: list[str], **options: str) -> None:
        self.write(topic, [(value,) for value in values], "value string", **options)

    def read(self, columns: str = "cast(value as string)", **options: str) -> list[Any]:
        frame = self.spark.read.format("kafka").options(**{**self.options, **options}).load()
        return [tuple(row) if len(row) > 1 else row[0] for row in frame.selectExpr(*columns.split("; ")).collect()]

    def refusal(self, **options: str) -> str:
        """What Spark says as it does not read this."""
        try:
            got = self.read(**options)
        except Exception as error:  # whatever Spark raises is the answer
            return str(error)
        raise AssertionError(f"read: {got}")

    def stream(self, name: str, **options: str) -> Any:
        frame = self.spark.readStream.format("kafka").options(**{**self.options, **options}).load()
        return frame.selectExpr("cast(key as string) as key", "value", "headers") if name else frame


@part
def keys_values_and_headers_come_back(walk: Walk) -> None:
    topic = walk.topic()
    headers = [("one", bytearray(b"x")), ("two", None)]
    rows = [("k", "v", headers), (None, "", None), ("gone", None, None)]
    walk.write(
        topic,
        rows,
        "key string, value string, headers array<struct<key: string, value: binary>>",
        includeHeaders="true",
    )
    got = walk.read(
        "cast(key as string); cast(value as string); headers; offset; timestampType",
        subscribe=topic,
        includeHeaders="true",
    )
    plain = [(key, value, [tuple(each) for each in found or []], *rest) for key, value, found, *rest in got]
    assert plain == [("k", "v", headers, 0, 0), (None, "", [], 1, 0), ("gone", None, [], 2, 0)], plain


@part
def the_columns_topic_and_partition_say_where_a_row_goes(walk: Walk) -> None:
    one, other = walk.topic(2), walk.topic(3)
    rows = [(one, 1, "a"), (other, 2, "b"), (other, 0, "c")]
    frame = walk.spark.createDataFrame(rows, "topic string, partition int, value string")
    frame.write.format("kafka").options(**walk.options).save()
    got = walk.read("topic; partition; cast(value as string)", subscribe=f"{one},{other}")
    assert sorted(got) == sorted(rows), got


@part
def every_codec(walk: Walk) -> None:
    topic = walk.topic()
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec} {i}" for i in range(300)]
        walk.values(topic, values, **{"kafka.compression.type": codec, "kafka.linger.ms": "20"})
        sent += values
    assert walk.read(subscribe=topic) == sent


@part
def ranges_of_offsets(walk: Walk) -> None:
    topic = walk.topic()
    walk.values(topic, list("abcdef"))
    ends = {"startingOffsets": json.dumps({topic: {"0": 1}}), "endingOffsets": json.dumps({topic: {"0": 4}})}
    assert walk.read(subscribe=topic, **ends) == list("bcd")
    assert walk.read(assign=json.dumps({topic: [0]}), endingOffsets=json.dumps({topic: {"0": 2}})) == list("ab")
    assert walk.read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": -2}}), minPartitions="3") == list(
        "abcdef"
    )


@part
def ranges_of_times(walk: Walk) -> None:
    topic = walk.topic()
    walk.values(topic, ["early"])
    (first,) = walk.read("unix_millis(timestamp)", subscribe=topic)
    while True:
        walk.values(topic, ["late"])
        times = walk.read("unix_millis(timestamp)", subscribe=topic)
        if times[-1] > first:
            break
    later = str(times[-1])
    assert walk.read(subscribe=topic, startingTimestamp=later) == ["late"]
    assert walk.read(subscribe=topic, endingTimestamp=str(first + 1)) == ["early"]
    by_partition = json.dumps({topic: {"0": times[-1] + 3_600_000}})
    said = walk.refusal(subscribe=topic, startingOffsetsByTimestamp=by_partition)
    assert "No offset matched" in said, said
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert walk.read(subscribe=topic, startingOffsetsByTimestamp=by_partition, **latest) == []


@part
def topics_by_a_pattern(walk: Walk) -> None:
    topics = [walk.topic(), walk.topic()]
    for topic in topics:
        walk.values(topic, [topic])
    assert sorted(walk.read(subscribePattern="|".join(topics))) == sorted(topics)


@part
def a_topic_that_is_not_there(walk: Walk) -> None:
    quick = {"kafka.allow.auto.create.topics": "false", "fetchOffset.numRetries": "1"}
    said = walk.refusal(subscribe="nowhere", **quick)
    assert "UnknownTopicOrPartition" in said or "nowhere" in said, said


@part
def deleted_records_are_a_loss_that_is_reported(walk: Walk) -> None:
    topic = "shortened"
    begun = json.dumps({topic: {"0": 0}})
    assert walk.read(subscribe=topic) == list("cd")
    assert walk.read(subscribe=topic, startingOffsets=begun, failOnDataLoss="false") == list("cd")


@part
def what_is_committed_is_read_and_what_is_aborted_is_not(walk: Walk) -> None:
    topic = walk.topic()
    clients = walk.jvm.org.apache.kafka.clients.producer
    text = "org.apache.kafka.common.serialization.StringSerializer"
    settings = {
        "bootstrap.servers": walk.options["kafka.bootstrap.servers"],
        "transactional.id": f"teller-{topic}",
        "key.serializer": text,
        "value.serializer": text,
    }
    producer = clients.KafkaProducer(walk.java_map(settings))
    producer.initTransactions()
    for value, end in (("aborted", "abortTransaction"), ("committed", "commitTransaction")):
        producer.beginTransaction()
        producer.send(clients.ProducerRecord(topic, value)).get()
        getattr(producer, end)()
    producer.close()
    assert walk.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"}) == ["committed"]
    assert walk.read(subscribe=topic) == ["aborted", "committed"]


@part
def a_stream_copies_and_goes_on_where_it_was(walk: Walk) -> None:
    source, sink = walk.topic(2), walk.topic(2)
    sent = []
    for run in range(3):
        values = [f"{run} {i}" for i in range(50)]
        walk.write(source, [(str(i), value) for i, value in enumerate(values)], "key string, value string")
        sent += values
        frame = walk.stream(
            source, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="30", includeHeaders="true"
        )
        writer = frame.writeStream.format("kafka").options(**walk.options).option("topic", sink)
        writer = writer.option("checkpointLocation", str(walk.directory / f"copy-{source}"))
        query = writer.option("includeHeaders", "true").trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.exception() is None, query.exception()
        ends = json.loads(query.lastProgress["sources"][0]["endOffset"])
        assert sum(ends[source].values()) == len(sent), ends
    assert sorted(walk.read(subscribe=sink)) == sorted(sent)


@part
def a_running_stream_sees_records_and_partitions_that_come(walk: Walk) -> None:
    topic = walk.topic()
    frame = walk.stream("", subscribe=topic, startingOffsets="earliest", **{"kafka.metadata.max.age.ms": "500"})
    name = f"seen_{topic.replace('-', '_')}"
    query = frame.selectExpr("cast(value as string)").writeStream.format("memory").queryName(name).start()
    try:
        for values in ("ab", "cd"):
            walk.values(topic, list(values))
            query.processAllAvailable()
        walk.grow(topic, 2)
        walk.write(topic, [(1, "e")], "partition int, value string")
        for _ in range(120):
            query.processAllAvailable()
            seen = sorted(row[0] for row in walk.spark.sql(f"select value from {name}").collect())
            if len(seen) == 5:
                break
            walk.jvm.java.lang.Thread.sleep(250)
    finally:
        query.stop()
    assert seen == list("abcde"), seen


@part
def a_stream_counts_by_time(walk: Walk) -> None:
    topic = walk.topic()
    walk.write(topic, [(str(i % 3), str(i)) for i in range(60)], "key string, value string")
    frame = walk.stream("", subscribe=topic, startingOffsets="earliest").withWatermark("timestamp", "1 minute")
    name = f"counted_{topic.replace('-', '_')}"
    query = frame.groupBy("key").count().writeStream.format("memory").queryName(name).outputMode("complete")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(row[0] for row in walk.spark.sql(f"select count from {name}").collect()) == [20, 20, 20]


def main() -> None:
    broker, jars, directory = sys.argv[1:]
    walk = Walk(broker, jars, Path(directory))
    for function in PARTS:
        try:
            function(walk)
            print(f"ok {function.__name__}", flush=True)
        except Exception as error:  # whatever Spark raises is the answer
            said = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"not ok {function.__name__}: {said[:600]}", flush=True)
    walk.spark.stop()
    print("end")


if __name__ == "__main__":
    main()
