"""Spark's own Kafka connector reads, writes and streams, against our broker and Kafka's, as a program asks it to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.support.spark_kafka_source import PYSPARK_VERSION, spark_kafka_source
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.spark.jvm.java import spark_java_home
from tests.support.client_suites import BROKERS, Outcome, Server, run, served

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(900)]

SPARK = PYSPARK_VERSION
WALK = Path(__file__).with_name("spark_walk.py")
PARTS = len(re.findall(r"^@part$", WALK.read_text(), re.MULTILINE))


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(request.param, tmp_path_factory.mktemp("spark"), {"auto.create.topics.enable": "false"}) as server:
        yield server


def test_a_walk_of_its_options(server: Server, tmp_path: Path) -> None:
    spark_walk(server.plain, tmp_path).holds({}, at_least=PARTS)


def spark_walk(broker: str, directory: Path) -> Outcome:
    _shorten(broker)
    try:
        source = spark_kafka_source()
    except RuntimeError as error:
        pytest.skip(f"Spark's connector cannot be had: {error}")
    printed = run(
        [str(source.python), str(WALK), broker, ",".join(map(str, source.jars)), str(directory)],
        directory,
        600,
        JAVA_HOME=str(spark_java_home()),
        PYSPARK_PYTHON=str(source.python),
    )
    passed = re.findall(r"^ok (\w+)$", printed, re.MULTILINE)
    failed = re.findall(r"^not ok (\w+):", printed, re.MULTILINE)
    ended = [] if printed.endswith("end\n") else ["the walk itself"]
    return Outcome(frozenset(passed), frozenset([*failed, *ended]), frozenset(), printed)


def _shorten(broker: str) -> None:
    """The topic whose first records are gone."""
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic("shortened", 1, 1)])["shortened"].result(60)
    producer = Producer({"bootstrap.servers": broker})
    for value in "abcd":
        producer.produce("shortened", value)
    assert producer.flush(60) == 0
    first_kept = TopicPartition("shortened", 0, 2)
    admin.delete_records([first_kept])[first_kept].result(60)
