"""A broker of a cluster with an authorizer, and a controller of the test's: who may do what, from the first request on.

The same with Kafka's controllers and brokers is `tests/interop/test_kraft_security.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.kraft_cluster import low_port
from tests.support.model_quorum import Forwarded, ModelQuorum
from tests.support.waiting import wait_until

from stratalog.broker.server import Broker
from stratalog.config import STANDARD_AUTHORIZER
from stratalog.engine.dirs import META_PROPERTIES, format_dir
from stratalog.errors import StratalogError
from stratalog.records import Record, build_batch
from stratalog.util import uuid_from_base64
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError
from stratalog.wire.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
)

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
NODE = 7
TOPIC_ID = UUID(int=77)
FORBIDDEN, CLUSTER_FORBIDDEN, UNKNOWN_TOPIC, INVALID_TOPIC = 29, 31, 3, 17
UNKNOWN_SERVER_ERROR, NOT_CONTROLLER, UNSUPPORTED_VERSION, PRINCIPAL_DESERIALIZATION_FAILURE = -1, 41, 35, 97
WRITE, CREATE, DESCRIBE, TOPIC, CLUSTER = 4, 5, 8, 2, 4
USERS = ("admin", "alice", "bob")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{PLAIN} required username="admin" password="admin-secret" '
        + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
        + ";"
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}


def settings(quorum: ModelQuorum, data_dir: Path, **changes: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": str(NODE),
        "controller.quorum.bootstrap.servers": quorum.address,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENTS://127.0.0.1:{low_port()}",
        "log.dirs": str(data_dir),
        "broker.heartbeat.interval.ms": "50",
        **SECURED,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    format_dir(tmp_path / "data", cluster_id=CLUSTER_ID, node_id=NODE)
    return tmp_path / "data"


@pytest.fixture
def quorum() -> Iterator[ModelQuorum]:
    with ModelQuorum(CLUSTER_ID, authorizer=True, super_users=("User:admin",)) as quorum:
        yield quorum


def add_topic(quorum: ModelQuorum, data_dir: Path) -> None:
    line = next(each for each in (data_dir / META_PROPERTIES).read_text().splitlines() if "directory.id=" in each)
    directory = uuid_from_base64(line.split("=", 1)[1])
    partition = PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0,
        partition_epoch=0, directories=(directory,),
    )  # fmt: skip
    quorum.write(TopicRecord(name="orders", topic_id=TOPIC_ID), partition)


def connect(broker: Broker, user: str) -> Client:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} required username="{user}" password="{user}-secret";',
    }
    host, port = broker.bootstrap_servers.split(":")
    return Client(host, int(port), ConnectionOptions.of(options))


def produce(client: Client) -> int:
    partition = {"index": 0, "records": build_batch([Record(0, 1_000, None, b"value")])}
    reported = client.call(
        ApiKey.PRODUCE,
        (12, 12),
        acks=-1,
        timeout=20_000,
        topic_data=[{"name": "orders", "partition_data": [partition]}],
    )
    return int(reported.responses[0].partition_responses[0].error_code)


def create_rule(client: Client, principal: str) -> int:
    rule = {
        "resource_type": TOPIC, "resource_name": "orders", "resource_pattern_type": 3, "principal": principal,
        "host": "*", "operation": WRITE, "permission_type": 3,
    }  # fmt: skip
    return int(client.call(ApiKey.CREATE_ACLS, (3, 3), creations=[rule]).results[0].error_code)


def test_rules_of_the_metadata_log_decide_and_follow_it(quorum: ModelQuorum, data_dir: Path) -> None:
    add_topic(quorum, data_dir)
    rule = quorum.allow("User:alice", WRITE, TOPIC, "orders")
    with Broker(config=settings(quorum, data_dir)) as broker, contextlib.ExitStack() as connections:
        alice, bob, admin = (connections.enter_context(contextlib.closing(connect(broker, each))) for each in
                             ("alice", "bob", "admin"))  # fmt: skip
        wait_until(lambda: produce(admin) == 0, "the broker leads the partition")
        assert (produce(alice), produce(bob)) == (0, FORBIDDEN)
        # the same frames again: what was decided for the last one is not what decides
        quorum.write(RemoveAccessControlEntryRecord(id=rule))
        wait_until(lambda: produce(alice) == FORBIDDEN, "the rule is gone")
        # made through this broker, in the name of who asks for it
        assert create_rule(bob, "User:bob") == CLUSTER_FORBIDDEN
        assert create_rule(admin, "User:bob") == 0
        wait_until(lambda: produce(bob) == 0, "bob may write")
        assert produce(alice) == FORBIDDEN
    host = bytes((127, 0, 0, 1))
    assert quorum.forwarded == [
        Forwarded(ApiKey.CREATE_ACLS, f"User:{user}", by_token=False, address=host) for user in ("bob", "admin")
    ]


def test_a_restart_has_the_rules_before_the_first_request(quorum: ModelQuorum, data_dir: Path) -> None:
    """Everybody may do everything where no rule is about a topic: a broker without the rules would be open."""
    add_topic(quorum, data_dir)
    config = settings(quorum, data_dir, **{"allow.everyone.if.no.acl.found": "true"})
    with Broker(config=config) as broker, contextlib.closing(connect(broker, "bob")) as bob:
        wait_until(lambda: produce(bob) == 0, "nothing is forbidden yet")
    quorum.allow("User:alice", WRITE, TOPIC, "orders")
    with Broker(config=config) as broker, contextlib.closing(connect(broker, "bob")) as bob:
        assert produce(bob) == FORBIDDEN


# --- requests that go on to the controllers ---------------------------------------------------------------------------


def metadata_code(client: Client, name: str, *, may_create: bool = True) -> int:
    reported = client.call(ApiKey.METADATA, (12, 12), topics=[{"name": name}], allow_auto_topic_creation=may_create)
    return int(reported.topics[0].error_code)


def test_topics_that_clients_name_are_made_in_their_name(quorum: ModelQuorum, data_dir: Path) -> None:
    made: list[Any] = []
    quorum.versions[ApiKey.CREATE_TOPICS] = 7
    quorum.allow("User:alice", CREATE, CLUSTER, "kafka-cluster")
    quorum.allow("User:alice", DESCRIBE, TOPIC, "new")

    def create(request: Any) -> dict[str, Any]:
        made.append(request.topics)
        (topic,) = request.topics
        if topic.name == "new":
            quorum.write(TopicRecord(name="new", topic_id=UUID(int=78)))
            return {"topics": [{"name": "new", "error_code": 0}]}
        return {"topics": [{"name": topic.name, "error_code": 38, "error_message": "no such number of replicas"}]}

    quorum.answers[ApiKey.CREATE_TOPICS] = create
    with Broker(config=settings(quorum, data_dir)) as broker, contextlib.ExitStack() as connections:
        alice, bob, admin = (connections.enter_context(contextlib.closing(connect(broker, each))) for each in
                             ("alice", "bob", "admin"))  # fmt: skip
        assert metadata_code(bob, "new") == FORBIDDEN
        assert metadata_code(alice, "new", may_create=False) == UNKNOWN_TOPIC
        assert metadata_code(admin, "a/b") == INVALID_TOPIC
        assert quorum.forwarded == []
        # as in Kafka: it is on its way, and the client asks again
        assert metadata_code(alice, "new") == UNKNOWN_TOPIC
        wait_until(lambda: metadata_code(alice, "new", may_create=False) == 0, "the topic is created")
        assert metadata_code(admin, "other") == UNKNOWN_TOPIC
        wait_until(lambda: len(made) == 2, "the other topic is asked for")
    host = bytes((127, 0, 0, 1))
    assert quorum.forwarded == [
        Forwarded(ApiKey.CREATE_TOPICS, f"User:{user}", by_token=False, address=host) for user in ("alice", "admin")
    ]
    # what this broker's settings do not say is the controllers' to decide
    assert [(topic.name, topic.num_partitions, topic.replication_factor) for (topic,) in made] == [
        ("new", -1, -1),
        ("other", -1, -1),
    ]


def test_an_envelope_that_fails_is_answered_and_the_connection_goes_on(quorum: ModelQuorum, data_dir: Path) -> None:
    with (
        Broker(config=settings(quorum, data_dir)) as broker,
        contextlib.closing(connect(broker, "admin")) as admin,
    ):
        quorum.envelope_errors.append(PRINCIPAL_DESERIALIZATION_FAILURE)
        assert create_rule(admin, "User:bob") == UNKNOWN_SERVER_ERROR
        quorum.envelope_errors.append(NOT_CONTROLLER)  # asked again, of under any leader then
        assert create_rule(admin, "User:bob") == 0
        quorum.envelope_errors.append(UNSUPPORTED_VERSION)  # another controller: the client has to ask for versions
        with pytest.raises(UnreachableError):
            create_rule(admin, "User:bob")


# --- starts that are refused ------------------------------------------------------------------------------------------


def contents(directory: Path) -> Mapping[str, bytes]:
    """Return what is in a directory, without the copy of the metadata log, which a broker that waits has begun."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"directory"
        for path in directory.rglob("*")
        if not str(path.relative_to(directory)).startswith("__cluster_metadata-0")
    }


def refused(quorum: ModelQuorum, data_dir: Path, **changes: str) -> str:
    """Return the line with which a start ends; nothing is changed on disk, and a clean stop stays one."""
    (data_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":44}')
    (data_dir / "orders-0").mkdir()
    (data_dir / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    before = contents(data_dir)
    with pytest.raises(StratalogError) as error:
        Broker(config=settings(quorum, data_dir, **{"initial.broker.registration.timeout.ms": "300", **changes}))
    after = contents(data_dir)
    assert {name: after.get(name) for name in before} == before
    assert set(after) - set(before) <= {".lock"}
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_an_authorizer_no_cluster_is_joined_that_has_one(quorum: ModelQuorum, data_dir: Path) -> None:
    line = refused(quorum, data_dir, **{"authorizer.class.name": ""})
    assert "controllers have an authorizer (0 ACLs), without an authorizer of its own" in line
    assert "Set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer" in line


def test_a_super_user_without_a_type_is_named_before_the_broker_registers(quorum: ModelQuorum, data_dir: Path) -> None:
    line = refused(quorum, data_dir, **{"super.users": "User:admin;alice"})
    assert "User:admin;alice for configuration super.users: a list as User:admin;User:other" in line


def test_an_unknown_authorizer_is_named(quorum: ModelQuorum, data_dir: Path) -> None:
    assert "authorizer.class.name" in (line := refused(quorum, data_dir, **{"authorizer.class.name": "org.acme.Own"}))
    assert "org.acme.Own" in line


@pytest.mark.parametrize(("key", "value"), [("ssl.enabled.protocols", "TLSv1.1"), ("ssl.cipher.suites", "TLS_OWN")])
def test_limits_of_tls_towards_controllers_that_cannot_be_kept_are_named(
    quorum: ModelQuorum, data_dir: Path, key: str, value: str
) -> None:
    protocols = "CONTROLLER:SSL,CLIENTS:SASL_PLAINTEXT"
    limits = {"listener.security.protocol.map": protocols, f"listener.name.controller.{key}": value}
    assert f"listener.name.controller.{key}={value}: {value} is not" in refused(quorum, data_dir, **limits)


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.BROKER_REGISTRATION])
def test_a_principal_that_may_do_nothing_is_reported_what_it_needs(
    quorum: ModelQuorum, data_dir: Path, key: ApiKey
) -> None:
    quorum.refuses[key] = CLUSTER_FORBIDDEN
    assert "put it among super.users of the controllers and brokers" in refused(quorum, data_dir)


def test_the_wrong_cluster_is_named(data_dir: Path) -> None:
    with ModelQuorum("QlVyk3RvQ9-abcdefghijA", authorizer=True) as other:
        assert f"the controllers are of another cluster than {CLUSTER_ID}" in refused(other, data_dir)


def test_a_directory_of_another_node_is_named(quorum: ModelQuorum, data_dir: Path) -> None:
    assert "node.id is 7, expected 8" in refused(quorum, data_dir, **{"node.id": "8"})


def test_an_id_in_use_is_named(quorum: ModelQuorum, data_dir: Path) -> None:
    quorum.refuses[ApiKey.BROKER_REGISTRATION] = 101
    assert f"broker {NODE} is running already: another process is registered" in refused(quorum, data_dir)


def test_controllers_that_no_one_reaches_are_named(quorum: ModelQuorum, data_dir: Path) -> None:
    nowhere = f"127.0.0.1:{low_port()}"
    line = refused(quorum, data_dir, **{"controller.quorum.bootstrap.servers": nowhere})
    assert f"no controller has sent the metadata of the cluster; asked were {nowhere}: cannot reach" in line


@pytest.mark.parametrize(
    ("feature", "level"), [("share.version", 3), ("metadata.version", 99), ("group.version", 9), ("new.version", 1)]
)
def test_features_that_are_lacking_are_named(quorum: ModelQuorum, data_dir: Path, feature: str, level: int) -> None:
    quorum.write(FeatureLevelRecord(name=feature, feature_level=level))
    assert f"has finalized {feature} at {level}" in refused(quorum, data_dir)


def test_controllers_of_a_newer_release_are_named(quorum: ModelQuorum, data_dir: Path) -> None:
    quorum.write_raw(b"\x01\x63\x00\x00")
    line = refused(quorum, data_dir)
    assert "a metadata record of type 99, which this release does not know: the controllers are of a newer" in line


def test_controllers_that_speak_newer_requests_are_named(quorum: ModelQuorum, data_dir: Path) -> None:
    quorum.versions[ApiKey.BROKER_REGISTRATION] = 99
    assert f"{quorum.address} does not speak BrokerRegistration in versions 1 to 4" in refused(quorum, data_dir)
