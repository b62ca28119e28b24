"""Real clients with names and passwords may do what the rules say, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.support.reference_kafka import free_port

from stratalog.broker.server import Broker
from stratalog.config import STANDARD_AUTHORIZER

USERS = ("admin", "alice", "bob", "eve")
TIMEOUT_S = 60


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    jaas = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    config = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {jaas};"
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with Broker(tmp_path / "data", config=config) as broker:
        admin = AdminClient(login(broker.bootstrap_servers, "admin"))
        for made in admin.create_topics([NewTopic("orders", 1), NewTopic("secret", 1)]).values():
            made.result(TIMEOUT_S)
        rules = [
            rule("alice", ResourceType.TOPIC, "orders", AclOperation.WRITE),
            rule("bob", ResourceType.TOPIC, "ord", AclOperation.READ, ResourcePatternType.PREFIXED),
            rule("bob", ResourceType.GROUP, "billing", AclOperation.READ),
        ]
        for created in admin.create_acls(rules).values():
            created.result(TIMEOUT_S)
        yield broker.bootstrap_servers


def login(address: str, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        **more,
    }


def rule(
    user: str,
    resource_type: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def produce(address: str, user: str, topic: str) -> int:
    """The code with which the record was answered; 0 when it is there."""
    codes: list[int] = []
    producer = Producer(login(address, user, **{"message.timeout.ms": TIMEOUT_S * 1000}))
    producer.produce(topic, b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(TIMEOUT_S)
    (code,) = codes
    return code


def test_each_user_may_do_what_the_rules_say(address: str) -> None:
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce(address, "alice", "orders") == 0
    assert [produce(address, user, "orders") for user in ("bob", "eve")] == [denied, denied]
    assert produce(address, "alice", "secret") == denied
    assert produce(address, "alice", "no-such-topic") == denied
    assert produce(address, "admin", "secret") == 0


def read_one(address: str, user: str, topic: str, group: str) -> bytes | int:
    """The first value of a topic, or the code with which the consumer was refused."""
    consumer = Consumer(login(address, user, **{"group.id": group, "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "neither a record nor a refusal"
        error = message.error()
        return int(error.code()) if error is not None else bytes(message.value())
    finally:
        consumer.close()


def test_a_consumer_needs_its_topic_and_its_group(address: str) -> None:
    assert produce(address, "alice", "orders") == 0
    assert read_one(address, "bob", "orders", "billing") == b"value"
    assert read_one(address, "bob", "orders", "other") == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert read_one(address, "bob", "secret", "billing") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_who_may_describe_nothing_sees_nothing(address: str) -> None:
    seen = {user: set(AdminClient(login(address, user)).list_topics(timeout=TIMEOUT_S).topics) for user in USERS}
    assert {user: names & {"orders", "secret"} for user, names in seen.items()} == {
        "admin": {"orders", "secret"},
        "alice": {"orders"},
        "bob": {"orders"},
        "eve": set(),
    }
    eve = AdminClient(login(address, "eve"))
    with pytest.raises(KafkaException) as refused:
        eve.create_topics([NewTopic("mine", 1)])["mine"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
