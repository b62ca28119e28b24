"""Sarama's own functional tests, as its module carries them, against our broker and Kafka's, through a toxiproxy.

They are written for five brokers. Here each of the five proxies leads to the one broker, and topics that ask for
three replicas are given one: both by changes in a copy of one file. What needs more is explained by name.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.client_suites import BROKERS, OURS, Server, build, built, go_module, go_outcome, need, run, served
from tests.support.reference_kafka import free_port

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1500)]

SARAMA = "v1.61.1"
TOXIPROXY = "v2.12.0"

#: What of the tests' file does not fit one broker at a free port, and what stands there instead.
ONE_BROKER = {
    "ReplicationFactor: 3,": "ReplicationFactor: 1,",
    'fmt.Sprintf("127.0.0.1:%d", 29090+i))': "proxy.ListenAddr)",
}

#: What fails at both brokers, and why.
EXPLAINED: dict[str, str] = {
    "TestFuncAdminAlterPartitionReassignments": "needs a second broker",
    "TestFuncAdminDescribeLogDirs": "needs five brokers",
    "TestFuncAdminListConsumerGroupOffsets": "stops a broker by docker",
    "TestFuncIdempotentBufferedSequence": "reads a broker's log by docker",
    "TestFuncTxnProduceWithBrokerFailure": "stops a broker by docker",
}

#: What fails at our broker alone, and why.
EXPLAINED_OURS: dict[str, str] = {
    "TestFuncAdminAlterConfig": "asks for a `segment.ms` below `min.topic.segment.ms` (KIP-760), which Kafka has not",
}


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its one address is that of the first proxy, which clients get too."""
    proxied, behind = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {"auto.create.topics.enable": "false", "node.id": "1"}
    directory = tmp_path_factory.mktemp("sarama")
    with (
        served(request.param, directory, settings, address={"PLAINTEXT": behind}, advertised=proxied),
        toxiproxy(proxied, behind) as api,
    ):
        yield Server(request.param, {"PLAINTEXT": proxied, "toxiproxy": api})


def test_the_functional_tests(server: Server) -> None:
    package = go_module("github.com/IBM/sarama", SARAMA)
    home = built(f"sarama-{SARAMA}", lambda home: _compile(package, home))
    command = [str(home / "sarama.test"), "-test.v", "-test.run=^TestFunc", "-test.timeout=10m"]
    printed = run(command, home / "source", 660, TOXIPROXY_ADDR=server.address["toxiproxy"], KAFKA_VERSION="4.4.0")
    go_outcome(printed).holds(EXPLAINED | (EXPLAINED_OURS if server.name == OURS else {}), at_least=50)


@contextmanager
def toxiproxy(first: str, upstream: str) -> Iterator[str]:
    """Five proxies before the broker; gives the address of their control."""
    need("go")
    home = built(f"toxiproxy-{TOXIPROXY}", _install_toxiproxy)
    port = free_port()
    process = subprocess.Popen(
        [str(home / "server"), "-host", "127.0.0.1", "-port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"LOG_LEVEL": "error"},
    )
    try:
        api = f"http://127.0.0.1:{port}"
        _until_it_answers(f"{api}/version")
        for number in range(1, 6):
            listen = first if number == 1 else f"127.0.0.1:{free_port()}"
            made = {"name": f"kafka{number}", "listen": listen, "upstream": upstream, "enabled": True}
            request = urllib.request.Request(f"{api}/proxies", json.dumps(made).encode(), method="POST")
            urllib.request.urlopen(request, timeout=10).close()
        yield api
    finally:
        process.terminate()
        process.wait(30)


def _until_it_answers(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.05)


def _install_toxiproxy(home: Path) -> None:
    build(["go", "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@{TOXIPROXY}"], home, GOBIN=str(home))


def _compile(package: Path, home: Path) -> None:
    """From a copy, because Go lets nothing stand in for a file of its cache."""
    source = home / "source"
    shutil.copytree(package, source, copy_function=shutil.copyfile)
    build(["chmod", "-R", "u+w", str(source)], home)
    fitted = (source / "functional_test.go").read_text()
    for there, here in ONE_BROKER.items():
        assert there in fitted, there
        fitted = fitted.replace(there, here)
    (source / "functional_test.go").write_text(fitted)
    build(["go", "test", "-tags=functional", "-c", "-o", str(home / "sarama.test"), "."], source)
