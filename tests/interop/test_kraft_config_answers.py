"""Changes of configs through a broker of ours in a cluster are answered as through a JVM broker of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import pytest

from stratalog.broker.server import Broker
from stratalog.engine.dirs import format_dir
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions
from tests.support.kraft_cluster import BROKER_CONFIG, KraftCluster, low_port
from tests.support.reference_kafka import require_reference_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

KAFKAS, OURS = 1, 8
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
INCREMENTAL, LEGACY = (ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1)), (ApiKey.ALTER_CONFIGS, (2, 2))
#: Stands for the id of the broker that is asked.
ME: Final = "me"

Part = tuple[str, int, str | None]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Connections to a broker of ours and to a JVM broker of one cluster, which has the topic `orders`."""
    require_reference_kafka()
    data_dir, port = tmp_path_factory.mktemp("ours") / "data", low_port()
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as cluster:
        cluster.start_broker(KAFKAS)
        format_dir(data_dir, cluster_id=cluster.cluster_id, node_id=OURS)
        config = {**cluster.broker_properties(OURS, port, data_dir), **BROKER_CONFIG}
        with Broker(data_dir=data_dir, config=config) as broker:
            options = ConnectionOptions.of({"kafka.bootstrap.servers": f"127.0.0.1:{port}"})
            with (
                closing(Client("127.0.0.1", port, options)) as ours,
                closing(Client("127.0.0.1", cluster.brokers[KAFKAS].port, options)) as kafkas,
            ):
                topic = {"name": "orders", "num_partitions": 1, "replication_factor": 2}
                wait_until(lambda: _create(kafkas, topic) in (0, 36), "both brokers are there and the topic is made")
                wait_until(lambda: broker.services.metadata.topic("orders"), "the topic is known")
                yield ours, kafkas


def _create(client: Client, topic: dict[str, Any]) -> int:
    reported = client.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
    return int(reported.topics[0].error_code)


def change(
    client: Client,
    node_id: int,
    *resources: tuple[int, str, Sequence[Part]],
    api: Any = INCREMENTAL,
    check: bool = True,
) -> list[tuple[int, str | None]]:
    """Return error and message of each resource, with the broker's own id replaced."""
    asked = []
    for type_, name, parts in resources:
        configs: list[dict[str, Any]] = [{"name": name, "value": value} for name, _, value in parts]
        if api is INCREMENTAL:
            for config, (_, operation, _) in zip(configs, parts, strict=True):
                config["config_operation"] = operation
        found = str(node_id) if name == ME else name
        asked.append({"resource_type": type_, "resource_name": found, "configs": configs})
    reported = client.call(*api, resources=asked, validate_only=check)
    return [
        (int(each.error_code), each.error_message and _plain(each.error_message, node_id))
        for each in reported.responses
    ]


def _plain(message: str, node_id: int) -> str:
    """Return a message without the broker's own id, and without the exception that Kafka wraps some in."""
    message = re.sub(rf"(expected|Expected) {node_id}\b", r"\1 N", message)
    wrapped = re.fullmatch(
        r"Invalid value org\.apache\.kafka\.\S+Exception: (.*) for configuration Invalid dynamic configuration", message
    )
    return message if wrapped is None else wrapped[1]


def answers(both: tuple[Client, Client], *resources: tuple[int, str, Sequence[Part]], **how: Any) -> tuple[Any, Any]:
    ours, kafkas = both
    return change(ours, OURS, *resources, **how), change(kafkas, KAFKAS, *resources, **how)


CHANGES: Final[Sequence[tuple[int, str, Sequence[Part]]]] = [
    *(
        (BROKER, level, parts)
        for level in ("", ME)
        for parts in (
            [],
            [("log.retention.ms", SET, "70000")],
            [("log.retention.ms", SET, "no number")],
            [("log.retention.ms", SET, "")],
            [("log.retention.ms", DELETE, None)],
            [("log.retention.ms", SET, None)],
            [("log.retention.ms", APPEND, "1")],
            [("log.retention.ms", 9, "1")],
            [("log.cleanup.policy", APPEND, "compact")],
            [("log.cleanup.policy", SUBTRACT, "delete")],
            [("log.cleanup.policy", SET, "compact")],
            [("log.cleanup.policy", SET, "nothing")],
            [("no.such.key", SET, "1")],
            [("no.such.key", APPEND, "1")],
            [("broker.id", SET, "4")],
            [("log.dirs", SET, "/elsewhere")],
            [("log.cleaner.threads", SET, "2")],
            [("log.cleaner.threads", SET, "3")],
            [("num.io.threads", SET, "1")],
            [("num.io.threads", SET, "8")],
            [("num.network.threads", SET, "0")],
            [("num.replica.fetchers", SET, "3")],
            [("background.threads", SET, "99")],
            [("log.local.retention.ms", SET, "999999999999")],
            [("log.local.retention.ms", SET, "-1")],
            [("log.local.retention.bytes", SET, "9"), ("log.retention.bytes", SET, "8")],
            [("message.max.bytes", SET, "-1")],
            [("compression.type", SET, "best")],
            [("compression.type", SET, "zstd")],
            [("min.insync.replicas", SET, "0")],
            [("unclean.leader.election.enable", SET, "perhaps")],
            [("ssl.keystore.location", SET, "/no/such.jks")],
            [("listener.name.plaintext.ssl.keystore.type", SET, "PEM")],
            [("leader.replication.throttled.rate", SET, "-1")],
            [("follower.replication.throttled.rate", SET, "1000")],
            [("log.message.timestamp.type", SET, "Sometime")],
            [("log.segment.bytes", SET, "1")],
            [("max.connections", SET, "1000")],
            [("follower.fetch.last.tiered.offset.enable", SET, "true")],
            [("follower.fetch.last.tiered.offset.enable", SET, "perhaps")],
            [("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2")],
        )
    ),
    *(
        (BROKER, name, [("log.retention.ms", SET, "70000")])
        for name in ("77", "-1", "x", "1.5", " 8", "1_0", "99999999999")
    ),
    (TOPIC, "orders", [("retention.ms", SET, "70000")]),
    (TOPIC, "orders", [("retention.ms", SET, "no number")]),
    (TOPIC, "orders", [("no.such.key", SET, "1")]),
    (TOPIC, "orders", [("retention.ms", APPEND, "1")]),
    (TOPIC, "missing", [("retention.ms", SET, "70000")]),
    (TOPIC, "", [("retention.ms", SET, "70000")]),
    (TOPIC, "not legal!", [("retention.ms", SET, "70000")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "46000")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")]),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "46000")]),
    (CLIENT_METRICS, "m", [("interval.ms", SET, "1000")]),
    (CLIENT_METRICS, "m", [("interval.ms", SET, "1")]),
    (BROKER_LOGGER, ME, [("root", SET, "LOUD")]),
    (BROKER_LOGGER, "77", [("kafka", SET, "INFO")]),
    (77, "what", [("a", SET, "1")]),
    (0, "what", [("a", SET, "1")]),
]


@pytest.mark.parametrize("api", [INCREMENTAL, LEGACY], ids=["incremental", "legacy"])
def test_a_change_is_answered_as_by_kafka(both: tuple[Client, Client], api: Any) -> None:
    different = []
    for each in CHANGES:
        ours, kafkas = answers(both, each, api=api)
        if ours != kafkas:
            different.append((each, ours, kafkas))
    assert not different, "\n".join(f"{each}\n  ours  {ours}\n  kafka {kafkas}" for each, ours, kafkas in different)


def test_several_resources_are_answered_as_by_kafka(both: tuple[Client, Client]) -> None:
    for chosen in (CHANGES[:3], CHANGES[-14:], [CHANGES[1], CHANGES[1], CHANGES[-5]]):
        ours, kafkas = answers(both, *chosen)
        assert ours == kafkas
    # Kafka does not answer AlterConfigs in which a resource is named twice
    different = [next(each for each in CHANGES if each[0] == type_) for type_ in (TOPIC, BROKER, GROUP, BROKER_LOGGER)]
    ours, kafkas = answers(both, *different, api=LEGACY)
    assert ours == kafkas


def test_no_broker_checks_the_topics_that_inherit_a_value(both: tuple[Client, Client]) -> None:
    own = (TOPIC, "orders", [("min.compaction.lag.ms", SET, "1000")])
    inherited = (BROKER, "", [("log.cleaner.max.compaction.lag.ms", SET, "500")])
    before = (BROKER, "", [("log.cleaner.max.compaction.lag.ms", DELETE, None)])
    assert answers(both, own, check=False) == ([(0, None)], [(0, None)])
    for check in (True, False):
        assert answers(both, inherited, check=check) == ([(0, None)], [(0, None)])
    ours, _ = both
    described = ours.call(
        ApiKey.DESCRIBE_CONFIGS, (4, 4), resources=[{"resource_type": TOPIC, "resource_name": "orders"}]
    )
    assert int(described.results[0].error_code) == 0
    assert answers(both, before, check=False) == ([(0, None)], [(0, None)])
