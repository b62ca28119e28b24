"""kafka-acls on our broker: what it adds, lists and removes is what our own command sees."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.config import STANDARD_AUTHORIZER
from tests.cli.admin_commands import CommandLine
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = pytest.mark.interop

CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
TOOL = "org.apache.kafka.tools.AclCommand"


def test_rules_of_kafka_acls_and_of_ours_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_reference_kafka()
    with stratalog.Broker(data_dir=tmp_path / "data", config=CONFIG) as broker:
        ours = CommandLine(broker.bootstrap_servers, capsys)
        to = ["--bootstrap-server", broker.bootstrap_servers]

        def mine() -> set[tuple[str, ...]]:
            found = ours.good("acls", "list", "--json").json["acls"]
            return {tuple(map(str, each.values())) for each in found}

        line = ["--allow-principal", "User:alice", "--producer", "--idempotent", "--topic", "orders"]
        tool(TOOL, [*to, "--add", *line])
        theirs = mine()
        ours.good("acls", "remove", *line)
        assert mine() == set()
        ours.good("acls", "add", *line)
        assert mine() == theirs
        listed = tool(TOOL, [*to, "--list", "--topic", "orders"])
        assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
        tool(TOOL, [*to, "--remove", "--force", *line])
        assert mine() == set()
