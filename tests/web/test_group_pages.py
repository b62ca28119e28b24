"""The console's page of share groups (KIP-932) and streams groups (KIP-1071)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.consumer_cases import find_coordinator
from tests.broker.groups.share_cases import ShareTalk, has
from tests.broker.groups.streams_cases import StreamsTalk, flat
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.web.server import WebServer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = {"offsets.topic.num.partitions": 1, "stratalog.web.allow.changes": "true"}
    with Broker(data_dir=tmp_path, config=config) as broker:
        yield broker


@pytest.fixture
def url(broker: Broker) -> Iterator[str]:
    web = WebServer(ListenAddress("127.0.0.1", 0))
    web.start(broker.services)
    yield web.url.rstrip("/")
    web.close()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def reported(url: str) -> Any:
    return json.loads(get(f"{url}/api/group?id=g"))


def test_a_share_group_shows_members_and_where_it_begins_and_can_be_set_elsewhere(broker: Broker, url: str) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        find_coordinator(wire)
        talk = ShareTalk(wire)
        talk.make_topic("in", 2)
        talk.produce("in", 1, 5)
        talk.join("a joins", "g", "a", ["in"])
        talk.until("a has all", "g", "a", 2, has(2))
        (member,) = reported(url)["members"]
        assert (member["memberId"], member["assignment"]) == ("a", [{"topic": "in", "partitions": [0, 1]}])
        assert "in: 0, 1" in get(f"{url}/group?id=g")
        talk.beat("a leaves", "g", "a", -1)
    given = {"id": "g", "reset_topic": "in", "reset_to": "offset", "reset_value": "2", "reset_partition": "1"}
    request = urllib.request.Request(
        f"{url}/api/group/offsets", json.dumps(given).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
    rows = {row["partition"]: (row["committedOffset"], row["lag"]) for row in reported(url)["rows"]}
    assert rows[1] == (2, 3)
    page = get(f"{url}/group?id=g")
    assert "Begins at" in page
    assert "Set offsets" in page


def test_a_streams_group_shows_the_tasks_of_its_members(broker: Broker, url: str) -> None:
    broker.create_topic("in", 2)
    with Wire(broker.bootstrap_servers) as wire:
        find_coordinator(wire)
        talk = StreamsTalk(wire)
        talk.set_group("g", **{"streams.initial.rebalance.delay.ms": "0"})
        epochs = [int(talk.join("a joins", "g", "a", flat("in")).member_epoch)]

        def has_tasks() -> bool:
            answer = talk.beat(f"beat {len(epochs)}", "g", "a", epochs[-1])
            epochs.append(int(answer.member_epoch))
            return bool(reported(url)["members"][0]["assignment"])

        wait_until(has_tasks, "the member to have its tasks")
        (member,) = reported(url)["members"]
    (task,) = member["assignment"]
    assert (task["topic"].partition(" ")[0], task["partitions"]) == ("task", [0, 1])
