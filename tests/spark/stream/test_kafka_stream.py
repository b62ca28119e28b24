"""Beside Spark's own Kafka source, through the same Apache Kafka: the same options give batches with the same
offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.stream.driving import Query
from tests.spark.test_kafka_source import SparkKafka
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka

pytestmark = pytest.mark.interop

#: Records by partition of the topic `lags`.
LAGS = (1000, 10, 1, 0)
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    require_reference_kafka()
    with ReferenceKafka(tmp_path_factory.mktemp("kafka"), config={"log.retention.ms": "-1"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        topics = [NewTopic("lags", len(LAGS), 1), NewTopic("lagoon", 1, 1), NewTopic("grows", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result(60)
        for partition, count in enumerate(LAGS):
            send(kafka, "lags", partition, count)
        send(kafka, "lagoon", 0, 70)
        send(kafka, "grows", 0, 50)
        yield kafka


def send(kafka: ReferenceKafka, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 20})
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=partition, timestamp=T0 + 1000 * i)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def theirs(kafka: ReferenceKafka) -> Iterator[SparkKafka]:
    session = SparkKafka(kafka.bootstrap_servers)
    yield session
    session.close()


def ours(kafka: ReferenceKafka, options: dict[str, str]) -> Query:
    return Query({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})


def run(query: Query) -> list[dict[str, dict[str, int]]]:
    query.follower.fix_end()
    query.run_until_idle(100)
    query.close()
    return [json.loads(text) for text in query.logged]


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "lags", "startingOffsets": "earliest"},
        {"subscribe": "lags", "startingOffsets": "latest", "maxOffsetsPerTrigger": "5"},
        {"subscribe": "lags", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"},
        {"subscribe": "lags", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "101"},
        {"subscribePattern": "lag.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "333"},
        {"assign": '{"lags":[0,2]}', "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"},
        {
            "subscribe": "lags",
            "startingOffsets": '{"lags":{"0":990,"1":-2,"2":-1,"3":0}}',
            "maxOffsetsPerTrigger": "7",
        },
        {
            "subscribe": "lags",
            "startingTimestamp": str(T0 + 5_000),
            "startingOffsetsByTimestampStrategy": "latest",
            "maxOffsetsPerTrigger": "500",
        },
    ],
    ids=str,
)
def test_batches_end_at_the_same_offsets(
    kafka: ReferenceKafka, theirs: SparkKafka, tmp_path: Path, options: dict[str, str]
) -> None:
    assert run(ours(kafka, options)) == theirs.rows(options | {"checkpoint": str(tmp_path)})["offsets"]


def test_a_checkpoint_of_theirs_is_taken_over(kafka: ReferenceKafka, theirs: SparkKafka, tmp_path: Path) -> None:
    options = {"subscribe": "grows", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    done = theirs.rows(options | {"checkpoint": str(tmp_path)})["offsets"]
    send(kafka, "grows", 0, 100)
    query = ours(kafka, options)
    query.logged, query.finished = [json.dumps(each) for each in done], len(done)
    assert run(query) == theirs.rows(options | {"checkpoint": str(tmp_path)})["offsets"]
    assert [offset for _, _, offset in query.records] == list(range(50, 150))
