"""A broker of ours, and Apache Kafka, for commands that work on both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.cli.admin_commands import CommandLine
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka
from tests.support.waiting import wait_until

from stratalog import Broker

# Clients of librdkafka that earlier tests left behind write to the same stderr. No command uses librdkafka.
LIBRDKAFKA_LOG = re.compile(r"^%\d\|.*\|rdkafka#.*\n", re.MULTILINE)


@pytest.fixture(scope="session", params=["stratalog", pytest.param("kafka", marks=pytest.mark.interop)])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("broker")
    if request.param == "stratalog":
        with Broker(data_dir=directory / "data", config={"group.initial.rebalance.delay.ms": "0"}) as broker:
            yield broker.bootstrap_servers
    else:
        require_reference_kafka()
        with ReferenceKafka(directory / "kafka") as kafka:
            yield kafka.bootstrap_servers


@pytest.fixture
def any_cli(address: str, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    class Text:
        def readouterr(self) -> Any:
            said = capfdbinary.readouterr()
            out, err = (part.decode("utf-8", "surrogateescape") for part in said)
            return type(said)(out, LIBRDKAFKA_LOG.sub("", err))

    monkeypatch.delenv("NO_COLOR", raising=False)
    return CommandLine(address, Text())  # type: ignore[arg-type]


@pytest.fixture
def topic(any_cli: CommandLine) -> str:
    name = f"t-{uuid4().hex[:8]}"
    any_cli.good("topics", "create", name, "--partitions", "3", "--config", "retention.ms=-1")
    # Kafka answers before its broker has the topic from its controller, and leads its partitions.
    wait_until(lambda: any_cli("consume", name, "-e").code == 0, f"topic {name} is led")
    return name
