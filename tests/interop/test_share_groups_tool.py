"""kafka-share-groups, unmodified, says of our share groups what it says of Kafka's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stratalog
from tests.broker.groups.consumer_cases import find_coordinator
from tests.broker.groups.share_cases import CONFIG, ShareTalk, has, switch_on
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka, tool
from tests.support.wire import Wire

pytestmark = [pytest.mark.interop, pytest.mark.soak]

COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STEPS = {
    "list": ["--list"],
    "describe offsets": ["--describe", "--group", "g", "--offsets", "--verbose"],
    "describe members": ["--describe", "--group", "g", "--members", "--verbose"],
    "describe state": ["--describe", "--group", "g", "--state", "--verbose"],
    "reset with members": ["--reset-offsets", "--group", "g", "--topic", "in", "--to-earliest", "--execute"],
    "delete with members": ["--delete", "--group", "g"],
    "leave": [],
    "reset": ["--reset-offsets", "--group", "g", "--topic", "in", "--to-latest", "--execute"],
    "offsets then": ["--describe", "--group", "g", "--offsets"],
    "delete offsets": ["--delete-offsets", "--group", "g", "--topic", "in"],
    "delete": ["--delete", "--group", "g"],
    "list nothing": ["--list"],
}


def said(bootstrap_servers: str) -> dict[str, list[str]]:
    """What the command prints, without the order of lines and the width of columns."""
    reported: dict[str, list[str]] = {}
    with Wire(bootstrap_servers, client_id="share") as wire:
        switch_on(wire)
        find_coordinator(wire)
        talk = ShareTalk(wire)
        talk.make_topic("in", 2)
        talk.produce("in", 1, 5)
        talk.join("a joins", "g", "a", ["in"])
        talk.until("a has all", "g", "a", 2, has(2))
        for step, arguments in STEPS.items():
            if not arguments:
                talk.beat("a leaves", "g", "a", -1)
                continue
            printed = tool(COMMAND, ["--bootstrap-server", bootstrap_servers, *arguments], check=False)
            lines = [re.sub(r"\s+", " ", line).strip() for line in printed.splitlines()]
            reported[step] = sorted(line.replace(bootstrap_servers, "HOST") for line in lines if line)
    return reported


def test_the_command_says_of_ours_what_it_says_of_kafkas(tmp_path: Path) -> None:
    require_reference_kafka()
    with ReferenceKafka(str(tmp_path), config=CONFIG) as kafka:
        theirs = said(kafka.bootstrap_servers)
    with stratalog.Broker(config=CONFIG) as broker:
        ours = said(broker.bootstrap_servers)
    port = re.compile(r":\d+")
    for step, lines in theirs.items():
        assert [port.sub(":PORT", line) for line in ours[step]] == [port.sub(":PORT", line) for line in lines], step
