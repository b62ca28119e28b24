"""librdkafka's own tests in C and C++, against our broker and Kafka's, with groups of the classic protocol.

Tests with groups also run with those of the consumer protocol, against our broker.

The sources come in the package of confluent-kafka-javascript, which builds them. Of the tests those run that need a
broker, at the suite's quick setting, each in a process of its own with a bound.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, OURS, Outcome, Server, run, served
from tests.support.librdkafka import librdkafka
from tests.support.reference_jars import TOOLS_JARS, classpath, java
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(3600)]

TEST_S = 300

#: What the suite gives a cluster of its own.
SETTINGS: Mapping[str, str] = {
    "node.id": "1",
    "super.users": "User:admin",  # rules are to hold for the client, which has no name
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "broker.rack": "RACK1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}

#: The tests that ask for a broker which creates no topic by itself.
NO_AUTO_CREATE = ("0045", "0107", "0111")

#: Scripts of Kafka's release that tests call, with their classes.
COMMANDS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand ",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand ",
    "kafka-run-class.sh": "",
}

#: These run until they are ended, or ask for a server of telemetry; 0184 creates topics again for many minutes.
BY_HAND = ("0184", "0190", "8000", "8001")

#: Tests with groups that pass with the consumer protocol too.
GROUPS = (
    *("0018", "0019", "0022", "0029", "0030", "0033", "0040", "0042", "0045", "0049", "0050", "0056"),
    *("0064", "0069", "0081", "0083", "0089", "0091", "0102", "0103", "0109", "0113", "0118"),
)

#: What fails at both brokers, and why.
EXPLAINED: Mapping[str, str] = {"0111_delay_create_topics": "needs three brokers"}

#: What fails at our broker alone, and why.
EXPLAINED_OURS: Mapping[str, str] = {
    "0077_compaction": "asks for a `segment.ms` below `min.topic.segment.ms` (KIP-760), which Kafka has not",
}


@pytest.fixture(scope="module", params=BROKERS)
def kind(request: pytest.FixtureRequest) -> str:
    require_reference_kafka()  # its tools create topics for some tests
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(kind, tmp_path_factory.mktemp("librdkafka"), SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def frugal_server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It creates no topic that nobody asks for."""
    settings = {**SETTINGS, "auto.create.topics.enable": "false"}
    with served(kind, tmp_path_factory.mktemp("frugal"), settings) as server:
        yield server


def test_the_tests_that_need_a_broker(server: Server, tmp_path: Path) -> None:
    outcome(server, tmp_path).holds(EXPLAINED_OURS if server.name == OURS else {}, at_least=75)


def test_without_topics_that_nobody_created(frugal_server: Server, tmp_path: Path) -> None:
    outcome(frugal_server, tmp_path, NO_AUTO_CREATE, scenario="noautocreate").holds(EXPLAINED, at_least=3)


def test_groups_of_the_consumer_protocol(tmp_path: Path) -> None:
    require_reference_kafka()
    (tmp_path / "broker").mkdir()
    with served(OURS, tmp_path / "broker", SETTINGS) as server:
        outcome(server, tmp_path, GROUPS, protocol="consumer").holds({}, at_least=25)


@dataclass(frozen=True)
class Login:
    """How the tests come in: lines of `test.conf`, and client properties for the commands of Kafka that they call."""

    lines: Mapping[str, str]
    properties: Path


def outcome(
    server: Server,
    directory: Path,
    numbers: tuple[str, ...] = (),
    *,
    scenario: str = "default",
    protocol: str = "classic",
    login: Login | None = None,
) -> Outcome:
    """Of the tests with these numbers, by default all; with a `login` over SASL_SSL."""
    home = librdkafka()
    address = server.address["SASL_SSL"] if login else server.plain
    lines = {"metadata.broker.list": address, "test.topic.random": "true", **(login.lines if login else {})}
    settings = directory / "test.conf"
    settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    distribution = _distribution(directory, login)
    by_state: dict[str, set[str]] = {}
    printed = ""
    for number in numbers or numbers_of(home):
        report = directory / f"{number}.json"
        said = run(
            [str(home / "tests" / "test-runner"), "-L", "-K", "-Q", "-p1", "-s", scenario],
            home / "tests",
            TEST_S,
            TESTS=number,
            TEST_REPORT=str(report),
            RDKAFKA_TEST_CONF=str(settings),
            TEST_KAFKA_VERSION="4.4.0",
            TEST_LEVEL="1",
            CI="1",  # times are three times as long
            TEST_CONSUMER_GROUP_PROTOCOL=protocol,
            KAFKA_PATH=str(distribution),
            BROKERS=address,
            LD_LIBRARY_PATH=f"{home / 'src'}:{home / 'src-cpp'}",
        )
        states = _states(report, number)
        for name, state in states.items():
            by_state.setdefault(state, set()).add(name)
        if set(states.values()) - {"PASSED", "SKIPPED"}:
            printed += said[-2000:]
    passed, skipped = by_state.pop("PASSED", set()), by_state.pop("SKIPPED", set())
    return Outcome(frozenset(passed), frozenset().union(*by_state.values()), frozenset(skipped), printed)


def numbers_of(home: Path) -> list[str]:
    """Of all tests; those that need no broker are left out by the suite itself."""
    table = re.findall(r"^ +_TEST\((\d{4})_", (home / "tests" / "test.c").read_text(), re.MULTILINE)
    return [number for number in dict.fromkeys(table) if number not in BY_HAND]


def _states(report: Path, number: str) -> dict[str, str]:
    """Of each test with this number. A run without a report did not come to its end."""
    if not report.exists():
        return {number: "ENDED"}
    tests = json.loads(report.read_text())["tests"]
    return {name: test["state"] for name, test in tests.items() if name.startswith(number)}


def _distribution(directory: Path, login: Login | None) -> Path:
    """Kafka's tools as its release has them, for the tests that call one."""
    home = directory / "kafka"
    if not home.exists():
        jars = classpath(TOOLS_JARS)
        (home / "bin").mkdir(parents=True)
        (home / "libs").symlink_to(os.path.dirname(jars))
        for name, main in COMMANDS.items():
            script = home / "bin" / name
            config = f" --command-config {login.properties}" if login and main else ""
            script.write_text(f'#!/bin/sh\nexec {java()} -cp "$CLASSPATH:{jars}" {main}"$@"{config}\n')
            script.chmod(0o755)
    return home
