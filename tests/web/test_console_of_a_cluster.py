"""The console of a broker of a cluster: every page works, or says which broker has what it lacks."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.kraft_cluster import low_port
from tests.support.model_quorum import ModelQuorum
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server import Broker
from stratalog.broker.server.listen_address import ListenAddress
from stratalog.engine.dirs import META_PROPERTIES, format_dir
from stratalog.records import Record, build_batch
from stratalog.util import uuid_from_base64
from stratalog.web.openapi import api_path
from stratalog.web.pages import PAGES
from stratalog.web.server import WebServer
from stratalog.wire import ApiKey
from stratalog.wire.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
HERE, THERE = 7, 8
#: `orders` has a partition here, one on the other broker and one that no one leads; `far` is there alone.
TOPICS = {"orders": (HERE, THERE, -1), "far": (THERE,), "__consumer_offsets": (HERE,)}
TOPIC = 2


class Console:
    """The web address of a broker that changes are allowed at."""

    def __init__(self, web: WebServer, broker: Broker, quorum: ModelQuorum) -> None:
        self._web = web
        self.broker = broker
        self.quorum = quorum

    def get(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self._web.url.rstrip("/") + path))

    def post(self, path: str, **fields: str) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        body = json.dumps(fields).encode()
        status, text = self._ask(urllib.request.Request(self._web.url.rstrip("/") + path, body, headers))
        return status, json.loads(text)

    @staticmethod
    def _ask(request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            return error.code, str(error.read(), "utf-8")


def add_topics(quorum: ModelQuorum, data_dir: Path, port_there: int) -> None:
    line = next(each for each in (data_dir / META_PROPERTIES).read_text().splitlines() if "directory.id=" in each)
    directories = {HERE: uuid_from_base64(line.split("=", 1)[1]), THERE: UUID(int=8)}
    quorum.write(
        RegisterBrokerRecord(
            broker_id=THERE, incarnation_id=UUID(int=1), broker_epoch=1, rack=None, fenced=False, features=(),
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=port_there, security_protocol=0),),
            log_dirs=(directories[THERE],),
        )
    )  # fmt: skip
    for number, (name, leaders) in enumerate(TOPICS.items(), 1):
        topic_id = UUID(int=number)
        quorum.write(TopicRecord(name=name, topic_id=topic_id))
        for partition, leader in enumerate(leaders):
            held = leader if leader >= 0 else THERE
            quorum.write(
                PartitionRecord(
                    partition_id=partition, topic_id=topic_id, replicas=(held,), isr=(held,), leader=leader,
                    leader_epoch=0, partition_epoch=0, directories=(directories[held],),
                )
            )  # fmt: skip
    quorum.write(ConfigRecord(resource_type=TOPIC, resource_name="orders", name="retention.ms", value="1000"))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """What answers at the other broker's address; it has the records of `far`."""
    with Broker(tmp_path_factory.mktemp("there")) as broker:
        broker.services.topics.create("far", 1)
        partition = broker.services.partition("far", 0)
        assert partition is not None
        partition.append(build_batch([Record(at, 1, None, b"far") for at in range(5)]), origin="client")
        yield broker


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, there: Broker) -> Iterator[Console]:
    data_dir = tmp_path_factory.mktemp("cluster") / "data"
    format_dir(data_dir, cluster_id=CLUSTER_ID, node_id=HERE)
    with ModelQuorum(CLUSTER_ID) as quorum:
        quorum.versions |= {ApiKey.CREATE_TOPICS: 7, ApiKey.DELETE_TOPICS: 5, ApiKey.INCREMENTAL_ALTER_CONFIGS: 1}
        quorum.versions |= {ApiKey.DESCRIBE_QUORUM: 1}
        quorum.answers[ApiKey.DESCRIBE_QUORUM] = lambda _: {
            "topics": [
                {
                    "topic_name": "__cluster_metadata",
                    "partitions": [
                        {
                            "leader_id": 100,
                            "current_voters": [{"replica_id": 100, "log_end_offset": 9}],
                        }
                    ],
                }
            ]
        }
        add_topics(quorum, data_dir, int(there.bootstrap_servers.rpartition(":")[2]))
        config = {
            "process.roles": "broker",
            "node.id": str(HERE),
            "controller.quorum.bootstrap.servers": quorum.address,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{low_port()}",
            "log.dirs": str(data_dir),
            "broker.heartbeat.interval.ms": "50",
            "stratalog.web.allow.changes": "true",
        }
        web = WebServer(ListenAddress("127.0.0.1", 0))
        with Broker(config=config) as broker:
            web.start(broker.services)
            wait_until(lambda: broker.services.logs.get("orders", 0) is not None, "the broker has its replica")
            yield Console(web, broker, quorum)
            web.close()


def pages() -> list[str]:
    found = []
    for page in PAGES:
        for topic, partition in (("orders", 0), ("orders", 1), ("orders", 2), ("far", 0), ("orders", 3)):
            path = page.path.format(topic=topic, partition=partition)
            found.append(path)
    return list(dict.fromkeys(found))


#: What a broker has to say of a replica that it does not have, by how its path begins.
ELSEWHERE = {
    "/topics/orders/partitions/1": "orders-1 has no replica on this broker; broker 8 leads it: look at its console",
    "/topics/orders/partitions/2": "orders-2 has no replica on this broker; no broker leads it now",
    "/topics/orders/partitions/3": "orders has no partition 3 here",
    "/topics/far/partitions/0": "far-0 has no replica on this broker; broker 8 leads it: look at its console",
    "/topics/far/retention": "far-0 has no replica on this broker; broker 8 leads it: look at its console",
    "/group": "the group does not exist, or access is denied",
}


@pytest.mark.parametrize("path", pages())
def test_every_page_works_or_says_where_else_to_look(console: Console, path: str) -> None:
    why = next((why for start, why in ELSEWHERE.items() if path == start or path.startswith(f"{start}/")), None)
    for asked in (path, api_path(path)):
        status, text = console.get(asked)
        assert status == (200 if why is None else 404), text
        assert why is None or why in text


@pytest.mark.parametrize("path", ["/metrics", "/health/live", "/api/tier-status", "/api/openapi.json"])
def test_what_programs_ask_for_works(console: Console, path: str) -> None:
    assert console.get(path)[0] == 200


def test_a_topic_shows_all_its_partitions_and_its_settings(console: Console) -> None:
    reported = json.loads(console.get("/api/topics/orders")[1])
    assert reported["retentionMs"] == 1000
    assert [(each["partition"], each["leader"], each["isHere"]) for each in reported["rows"]] == [
        (0, HERE, True), (1, THERE, False), (2, -1, False),
    ]  # fmt: skip
    assert "broker 8 leads it" in reported["rows"][1]["error"]
    html = console.get("/topics/orders")[1]
    assert html.count(">elsewhere<") == 2


def test_messages_say_which_partitions_are_not_shown(console: Console) -> None:
    reported = json.loads(console.get("/api/topics/orders/messages")[1])
    assert reported["problems"] == ["Partitions 1, 2 of orders have no replica on this broker, and are not shown."]


def commit(console: Console, group: str, offsets: dict[str, dict[int, int]]) -> None:
    """Commit at this broker: a client of the whole cluster would also ask what plays the other one."""
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": at, "committed_offset": done} for at, done in each.items()],
        }
        for name, each in offsets.items()
    ]
    with Wire(console.broker.bootstrap_servers) as wire:
        answer = wire.call(
            ApiKey.OFFSET_COMMIT, 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
    assert {int(each.error_code) for topic in answer.topics for each in topic.partitions} == {0}


def test_a_group_has_the_lag_that_other_leaders_say(console: Console) -> None:
    commit(console, "far", {"far": {0: 2}, "orders": {1: 0, 2: 0}})
    rows = json.loads(console.get("/api/group?id=far")[1])["rows"]
    assert [(row["topic"], row["partition"], row["highWatermark"], row["lag"]) for row in rows] == [
        ("far", 0, 5, 3),
        ("orders", 1, None, None),  # the leader does not say it
        ("orders", 2, None, None),  # nobody leads it
    ]
    (listed,) = json.loads(console.get("/api/groups?q=far")[1])["groups"]
    assert listed["lag"] == 3
    groups = json.loads(console.get("/api/topics/far/consumers")[1])["groups"]
    in_topic = next(each for each in groups if each["id"] == "far")
    assert in_topic["lag"] == 3


def test_the_controllers_and_brokers_are_shown(console: Console) -> None:
    reported = json.loads(console.get("/api/cluster")[1])
    assert [each["id"] for each in reported["brokers"]] == [HERE, THERE]
    assert reported["controllers"] == [{"id": 100, "isLeader": True, "logEndOffset": 9}]
    assert any(each["name"] == "node.id" and each["value"] == str(HERE) for each in reported["settings"])


def test_a_record_is_produced_where_this_broker_leads(console: Console) -> None:
    status, reported = console.post("/api/topics/orders/produce", partition="0", value="hello")
    assert (status, reported["done"]) == (200, "appended to orders-0 at offset 0")
    status, reported = console.post("/api/topics/orders/produce", partition="1", value="hello")
    assert (status, reported["errors"]) == (
        400,
        {"partition": "broker 8 leads orders-1: produce there, or use a client"},
    )


def test_changes_are_made_by_the_controllers(console: Console) -> None:
    console.quorum.answers[ApiKey.CREATE_TOPICS] = lambda request: {
        "topics": [{"name": request.topics[0].name, "error_code": 0}]
    }
    assert console.post("/api/topics", new_topic="made") == (200, {"done": "topic made is created"})
    console.quorum.answers[ApiKey.CREATE_TOPICS] = lambda request: {
        "topics": [{"name": request.topics[0].name, "error_code": 36, "error_message": "it is there"}]
    }
    assert console.post("/api/topics", new_topic="orders") == (400, {"errors": {"new_topic": "it is there"}})
    changed = []

    def alter(request: Any) -> dict[str, Any]:
        changed.append((request.resources[0].resource_name, request.resources[0].configs[0].value))
        name = request.resources[0].resource_name
        return {"responses": [{"error_code": 0, "error_message": "", "resource_type": TOPIC, "resource_name": name}]}

    console.quorum.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = alter
    given = {"key": "retention.ms", "value": "2000", "was": "1000", "act": "set"}
    status, reported = console.post("/api/topics/orders/settings", **given)
    assert (status, reported) == (200, {"done": "retention.ms of orders is now 2000"})
    assert changed == [("orders", "2000")]
    assert {each.principal for each in console.quorum.forwarded} == {"User:ANONYMOUS"}


def test_what_controllers_do_not_take_is_said(console: Console) -> None:
    status, reported = console.post("/api/security/users", user="alice", password="secret")
    assert status == 409
    assert reported["error"].startswith("neither this broker nor its controllers support AlterUserScramCredentials")


def test_offsets_are_set_only_where_this_broker_knows_the_ends(console: Console) -> None:
    commit(console, "readers", {"orders": {0: 1, 1: 5}})
    reported = json.loads(console.get("/api/group?id=readers")[1])
    assert [(each["partition"], each["lag"] is None) for each in reported["rows"]] == [(0, False), (1, True)]
    assert "broker 8 leads it" in reported["rows"][1]["note"]
    path = "/api/group/offsets?" + urllib.parse.urlencode({"id": "readers"})
    given = {"id": "readers", "reset_topic": "orders", "reset_to": "earliest"}
    status, refused = console.post(path, **given)
    assert (status, refused["errors"].keys()) == (400, {"reset_topic"})
    assert "broker 8 leads it" in refused["errors"]["reset_topic"]
    assert console.post(path, reset_partition="0", **given)[0] == 200
