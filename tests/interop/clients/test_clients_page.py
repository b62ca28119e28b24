"""The page of clients says what the tests of the clients' suites say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.interop.clients import (
    test_confluent_kafka_javascript,
    test_franz_go,
    test_java_suite,
    test_kafka_go,
    test_kafka_python_suite,
    test_kafkajs,
    test_librdkafka,
    test_rdkafka_rust,
    test_sarama,
    test_spark_connector,
)
from tests.support.librdkafka import LIBRDKAFKA

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "clients.md"

SUITES = {
    "test_confluent_kafka_javascript.py": test_confluent_kafka_javascript.CONFLUENT_KAFKA_JAVASCRIPT,
    "test_franz_go.py": test_franz_go.FRANZ_GO,
    "test_java_suite.py": test_java_suite.JAVA_CLIENTS,
    "test_kafka_go.py": test_kafka_go.KAFKA_GO,
    "test_kafka_python_suite.py": test_kafka_python_suite.KAFKA_PYTHON,
    "test_kafkajs.py": test_kafkajs.KAFKAJS,
    "test_librdkafka.py": LIBRDKAFKA,
    "test_rdkafka_rust.py": test_rdkafka_rust.RDKAFKA,
    "test_sarama.py": test_sarama.SARAMA,
    "test_spark_connector.py": test_spark_connector.SPARK,
}


def test_each_suite_is_on_the_page_with_its_version() -> None:
    rows = re.findall(r"^\| \[[^]]+\]\(\S+/(\w+\.py)\) \| (\S+) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == SUITES


def test_what_is_explained_is_on_the_page_with_its_reason() -> None:
    rows = re.findall(r"^\| \S+ `([\w/]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    explained = {
        **test_java_suite.EXPLAINED,
        **test_kafka_go.EXPLAINED,
        **test_kafka_python_suite.EXPLAINED_OURS,
        **test_librdkafka.EXPLAINED,
        **test_librdkafka.EXPLAINED_OURS,
        **test_rdkafka_rust.EXPLAINED,
        **test_sarama.EXPLAINED,
        **test_sarama.EXPLAINED_OURS,
    }
    assert dict(rows) == {name.rpartition("::")[2]: reason for name, reason in explained.items()}
