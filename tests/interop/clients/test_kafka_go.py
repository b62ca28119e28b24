"""kafka-go's (segmentio) own tests, as its module carries them, against our broker.

They ask for a broker at `localhost:9092`, with SASL at 9093: in a copy those ports are the ones of the broker at hand.
Each test is a process of its own, with a bound: one that panics, or waits for ever, does not end the others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.client_suites import (
    OURS,
    Outcome,
    Server,
    build,
    go_module,
    go_outcome,
    run,
    served,
    suites_home,
)
from tests.support.reference_kafka import free_port

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1800)]

KAFKA_GO = "v0.4.51"

#: The packages whose tests ask a broker something.
PACKAGES = (".", "compress", "sasl", "topics")

TEST_S = 90

PLAIN = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SETTINGS: Mapping[str, str] = {
    "node.id": "1",
    "message.max.bytes": "200000000",
    "group.min.session.timeout.ms": "6000",  # a test counts on the default
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    PLAIN: 'org.apache.kafka.common.security.plain.PlainLoginModule required user_adminplain="admin-secret";',
    **{
        f"listener.name.sasl_plaintext.scram-sha-{bits}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for bits in (256, 512)
    },
}
USERS = [f"SCRAM-SHA-{bits}=[name=adminscram{bits},password=admin-secret-{bits}]" for bits in (256, 512)]

#: These fail at both brokers, and end those beside them: a helper of theirs calls a function that is not set,
#: and panics.
SKIPPED = "^TestReaderConsumerGroup$/commit"

#: These fail now and then at both brokers: the topic that their reader requests is created behind the answer, and a
#: reader that finds it between its assignment and its watch for changes gets no partition.
RACES = (
    "TestConsumerGroupWithTopic",
    "TestConsumerGroupWithGroupTopicsSingle",
    "TestConsumerGroupWithGroupTopicsMultiple",
)

#: What fails at both brokers, and why.
EXPLAINED: Mapping[str, str] = {
    "TestConn/test_delete_topics": "asks for metadata of the topics that it deleted, which creates them again",
    "TestReaderConsumerGroup/consumer_group_rebalance": "counts on two partitions, and its topic has three",
    "TestRebalanceTooManyConsumers": "counts on a topic that the first request for it creates before the answer",
    "TestReaderReadCompactedMessage": "asks for segments of 200 bytes; Kafka 4 takes at least 1 MiB",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    address = {protocol: f"127.0.0.1:{free_port()}" for protocol in ("PLAINTEXT", "SASL_PLAINTEXT")}
    told = "localhost:" + address["PLAINTEXT"].rpartition(":")[2]
    directory = tmp_path_factory.mktemp("kafka_go")
    with served(OURS, directory, SETTINGS, address=address, advertised=told, users=USERS) as server:
        yield server


def test_the_tests_of_its_packages(server: Server, tmp_path: Path) -> None:
    """Not against Kafka: many of its tests wait a second at the longest, in which a JVM on a busy machine does not
    always answer."""
    kafka_go_outcome(server, tmp_path).holds(EXPLAINED, at_least=550)


def kafka_go_outcome(server: Server, directory: Path) -> Outcome:
    source = _at_the_ports_of(server, directory / "source")
    printed = ""
    for package in PACKAGES:
        program = directory / "a.test"
        build(["go", "test", "-c", "-o", str(program), f"./{package}"], source, GOFLAGS="-p=1 -mod=mod")
        listed = run([str(program), "-test.list", "^Test"], source / package, TEST_S)
        for name in re.findall(r"^Test\w+$", listed, re.MULTILINE):
            if name in RACES:
                continue
            command = [
                str(program),
                "-test.v",
                f"-test.run=^{name}$",
                f"-test.skip={SKIPPED}",
                f"-test.timeout={TEST_S}s",
            ]
            printed += run(command, source / package, TEST_S + 30, KAFKA_VERSION="4.4.0", KAFKA_SKIP_NETTEST="1")
    return go_outcome(printed, subtests=True)


def _at_the_ports_of(server: Server, source: Path) -> Path:
    """A copy, made for each broker, because the ports stand in its text."""
    suites_home().mkdir(parents=True, exist_ok=True)
    shutil.copytree(go_module("github.com/segmentio/kafka-go", KAFKA_GO), source, copy_function=shutil.copyfile)
    build(["chmod", "-R", "u+w", str(source)], source)
    ports = {"9092": server.plain, "9093": server.address["SASL_PLAINTEXT"]}
    for path in source.rglob("*.go"):
        text = path.read_text()
        fitted = re.sub(r"\b909[23]\b", lambda found: ports[found[0]].rpartition(":")[2], text)
        if fitted != text:
            path.write_text(fitted)
    return source
