"""kafka-configs on our broker: quotas that it sets, lists and removes are what our own command sees."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from tests.cli.admin_commands import CommandLine
from tests.support.reference_jars import BROKER_JARS, CONFIGS_JARS, TOOLS_JARS
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = pytest.mark.interop

JARS = (CONFIGS_JARS, TOOLS_JARS, BROKER_JARS)


def test_quotas_of_kafka_configs_and_of_ours_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_reference_kafka(*JARS)
    with stratalog.Broker(data_dir=tmp_path / "data") as broker:
        ours = CommandLine(broker.bootstrap_servers, capsys)

        def configs(*args: str) -> str:
            line = ["--bootstrap-server", broker.bootstrap_servers, *args]
            return tool("kafka.admin.ConfigCommand", line, jars=JARS)

        def mine() -> list[tuple[dict[str, str | None], str, float]]:
            found = ours.good("quotas", "list", "--json").json["quotas"]
            return [(each["entity"], each["quota"], each["value"]) for each in found]

        both = ("--entity-type", "users", "--entity-name", "al ice", "--entity-type", "clients", "--entity-default")
        configs("--alter", *both, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
        configs("--alter", "--ip", "10.0.0.7", "--add-config", "connection_creation_rate=5")
        entity = {"client-id": None, "user": "al ice"}
        assert mine() == [
            (entity, "producer_byte_rate", 1024.0),
            (entity, "request_percentage", 12.5),
            ({"ip": "10.0.0.7"}, "connection_creation_rate", 5.0),
        ]
        ours.good("quotas", "set", "--client", "c", "consumer_byte_rate=7")
        assert "consumer_byte_rate=7.0" in configs("--describe", "--entity-type", "clients")
        configs("--alter", "--client", "c", "--delete-config", "consumer_byte_rate")
        configs("--alter", "--ip", "10.0.0.7", "--delete-config", "connection_creation_rate")
        ours.good("quotas", "remove", "--user", "al ice", "--client-defaults")
        assert mine() == []
