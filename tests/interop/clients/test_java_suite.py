"""The integration tests of Kafka's own Java clients, of 4.3.1, run with the clients of 4.4.0 against our broker.

Those of 4.4.0 are not published. They make a cluster within the test's process; a class of the same name as theirs
(`java_suite/RaftClusterInvocationContext.java`) makes it one `stratalog serve`. What cannot be asked of such a cluster
aborts a test, with one of the reasons below; a test that fails is a defect, or explained.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.client_suites import Outcome, build, built, need, run
from tests.support.reference_jars import (
    CLIENT_SUITE_JARS,
    CONFIGS_JARS,
    SHORT_LIVED,
    TOOLS_JARS,
    ReferenceUnavailableError,
    classpath,
    java,
)

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(2700)]

JAVA_CLIENTS = "4.4.0"
CLUSTER = sorted((Path(__file__).parent / "java_suite").glob("*.java"))
CLASS_S = 2400
TEST_S = 120

#: The classes of tests, in packages of `org.apache.kafka.clients`, and how many of their tests pass at the least.
CLASSES: Mapping[str, int] = {
    "MetadataVersionIntegrationTest": 2,
    "TransactionsExpirationTest": 2,
    "TransactionsWithMaxInFlightOneTest": 1,
    "admin.AdminFenceProducersTest": 1,
    "admin.ClientTelemetryTest": 2,
    "admin.ConcurrentListOffsetsRequestTest": 1,
    "admin.DescribeAuthorizedOperationsTest": 1,
    "admin.DescribeProducersWithBrokerIdTest": 1,
    "admin.DynamicGroupConfigIntegrationTest": 1,
    "admin.ListOffsetsIntegrationTest": 1,
    "admin.StaticBrokerConfigTest": 1,
    "consumer.ConsumerBounceTest": 2,
    "consumer.ConsumerIntegrationTest": 5,
    "consumer.ConsumerTopicCreationTest": 1,
    "consumer.PlaintextConsumerAssignTest": 1,
    "consumer.PlaintextConsumerCallbackTest": 19,
    "consumer.PlaintextConsumerCloseTest": 4,
    "consumer.PlaintextConsumerCommitTest": 24,
    "consumer.PlaintextConsumerFetchTest": 18,
    "consumer.PlaintextConsumerPollTest": 24,
    "consumer.PlaintextConsumerSubscriptionTest": 22,
    "consumer.PlaintextConsumerTest": 72,
    "consumer.ShareConsumerTest": 80,
    "producer.ProducerCompressionTest": 1,
    "producer.ProducerFailureHandlingTest": 2,
    "producer.ProducerIdExpirationTest": 2,
    "producer.ProducerIntegrationTest": 3,
    "producer.ProducerSendWhileDeletionTest": 1,
}

_OF_THE_CLIENT = "expects the error that the client of 4.3.1 gives; that of 4.4.0 gives another"

#: What fails, and why.
EXPLAINED: Mapping[str, str] = {
    "ConsumerBounceTest::testAsyncCloseDuringRebalance": "needs a second broker, and aborts with consumers open",
    "ConsumerBounceTest::testClassicCloseDuringRebalance": "needs a second broker, and aborts with consumers open",
    "MetadataVersionIntegrationTest::testDefaultIsLatestVersion": (
        "asks for the newest `metadata.version` of Kafka 4.5, which is not in 4.4"
    ),
    "ProducerSendWhileDeletionTest::testSendWithTopicDeletionMidWay": "needs a second broker",
    **{
        f"ShareConsumerTest::testLeaderRestartWithoutLeadershipChange{how}": _OF_THE_CLIENT
        for how in ("ExplicitAcknowledgementAsync", "ExplicitAcknowledgementSync", "ImplicitAcknowledgement")
    },
}

#: Why a test is not for one broker that runs in a process of its own.
ABORTED = (
    "asks a controller itself",
    "asks for controllers, which are not there",
    "gives the broker a class in Java",
    "looks into the authorizer of Kafka's broker",
    "looks into the classes of Kafka's broker",
    "looks into the classes of Kafka's controller",
    "needs a second broker",
    "ran already: one broker is no other with a controller apart",
    "TLS: the keys are of Kafka's test kit",
)


@pytest.mark.parametrize("name", CLASSES)
def test_the_tests_of_a_class(name: str, tmp_path: Path) -> None:
    explained = {test: why for test, why in EXPLAINED.items() if test.startswith(f"{name.rpartition('.')[2]}::")}
    java_outcome(f"org.apache.kafka.clients.{name}", tmp_path).holds(explained, at_least=CLASSES[name])


def java_outcome(name: str, directory: Path, **properties: str) -> Outcome:
    """Of one class: a test is named `Class::test`, and has failed when one of its invocations has.

    `properties` are those that the class in `java_suite` reads, with `_` for a dot.
    """
    need("javac")
    try:
        jars, older = classpath(CLIENT_SUITE_JARS), classpath(TOOLS_JARS, CONFIGS_JARS)
        program = java()
    except ReferenceUnavailableError as error:
        pytest.skip(str(error))
    version = hashlib.sha256(b"".join(source.read_bytes() for source in CLUSTER)).hexdigest()[:12]

    def compile_cluster(home: Path) -> None:
        build(["javac", "-nowarn", "-cp", jars, "-d", str(home), *map(str, CLUSTER)], home)

    cluster = built(f"java_suite-{version}", compile_cluster)
    brokers, reports = directory / "brokers", directory / "reports"
    brokers.mkdir()
    serve = f"{sys.executable}\t-m\tstratalog\tserve\t--config"
    # behind the clients of 4.4.0 stand those of 4.3.1, for classes that the tests know and that have moved
    command = [program, "-Xmx512m", *SHORT_LIVED, "-cp", os.pathsep.join([str(cluster), jars, older])]
    command += [f"-Dbroker.directory={brokers}", f"-Dbroker.command={serve}"]
    command += [f"-D{key.replace('_', '.')}={value}" for key, value in properties.items()]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "org.junit.platform.console.ConsoleLauncher"]
    command += ["execute", "--select-class", name, "--details=none", "--disable-banner", f"--reports-dir={reports}"]
    command += [f"--config=junit.jupiter.execution.timeout.default={TEST_S}s"]
    command += ["--config=junit.jupiter.extensions.autodetection.enabled=true"]
    printed = run(command, directory, CLASS_S)
    shutil.rmtree(brokers, ignore_errors=True)
    report = reports / "TEST-junit-jupiter.xml"
    assert report.exists(), f"the run did not come to its report:\n{printed[-3000:]}"
    return _outcome(ElementTree.parse(report), printed)


def _outcome(report: ElementTree.ElementTree[ElementTree.Element], printed: str) -> Outcome:
    passed: set[str] = set()
    failed: set[str] = set()
    skipped: set[str] = set()
    for case in report.iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{re.split(r'[({[]', case.get('name', ''))[0]}"
        wrong, left_out = case.find("failure"), case.find("skipped")
        wrong = case.find("error") if wrong is None else wrong
        if wrong is not None:
            failed.add(name)
            printed += f"\n{name}: {wrong.get('message')}"
        elif left_out is not None:
            why = (left_out.text or "").partition("\n")[0].partition("TestAbortedException: ")[2]
            if why not in ABORTED:
                failed.add(name)
                printed += f"\n{name}: left out for a reason of its own: {left_out.text}"
            skipped.add(name)
        else:
            passed.add(name)
    return Outcome(frozenset(passed - failed), frozenset(failed), frozenset(skipped - failed), printed)
