"""A disk that is full while metadata change: each request gets an error, nothing is half done, and it goes on after.

A record that cannot be written is another matter: it takes its directory offline, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.small_disk import full, small_disk
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

NONE, KAFKA_STORAGE_ERROR = 0, 56
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as disk:
        yield disk


def codes(found: Any) -> list[int]:
    """Return all error codes of an answer."""
    if isinstance(found, tuple):
        return [code for each in found for code in codes(each)]
    if not hasattr(found, "__dataclass_fields__"):
        return []
    own = [getattr(found, name).value for name in found.__dataclass_fields__ if name == "error_code"]
    return own + [code for name in found.__dataclass_fields__ for code in codes(getattr(found, name))]


def topic(name: str, partitions: int = 1) -> dict[str, object]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def changes(number: int) -> dict[str, Callable[[Wire], Any]]:
    """Requests that write metadata, each other ones for another `number`."""
    name = f"topic-{number}"
    config = [{"name": "retention.ms", "config_operation": 0, "value": str(1000 + number)}]
    quota = {
        "entity": [{"entity_type": "client-id", "entity_name": name}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
    }
    user = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt" * 8, "salted_password": b"p" * 32}
    rule = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3, "principal": "User:a", "host": "*"}
    chosen = {"resource_type_filter": 2, "resource_name_filter": f"doomed-{number}", "pattern_type_filter": 3}
    return {
        "topic": lambda wire: wire.call(ApiKey.CREATE_TOPICS, 5, topics=[topic(name)], timeout=10_000),
        "partitions": lambda wire: wire.call(
            ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": "grown", "count": 2 + number}], timeout=10_000
        ),
        "config": lambda wire: wire.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[{"resource_type": 2, "resource_name": "kept", "configs": config}],
        ),
        "quota": lambda wire: wire.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]),
        "user": lambda wire: wire.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[user]),
        "rule": lambda wire: wire.call(
            ApiKey.CREATE_ACLS, 2, creations=[{**rule, "operation": 3, "permission_type": 3}]
        ),
        "rule's deletion": lambda wire: wire.call(
            ApiKey.DELETE_ACLS, 2, filters=[{**chosen, "operation": 1, "permission_type": 1}]
        ),
        "deletion": lambda wire: wire.call(ApiKey.DELETE_TOPICS, 4, topic_names=(f"doomed-{number}",), timeout=10_000),
    }


def state(wire: Wire) -> Any:
    """Return what is known of topics, settings, quotas and users."""
    topics = wire.call(ApiKey.METADATA, 12, topics=None).topics
    resources = [{"resource_type": 2, "resource_name": "kept", "configuration_keys": ("retention.ms",)}]
    configs = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources).results[0].configs
    return (
        sorted((each.name, len(each.partitions)) for each in topics),
        [each.value for each in configs],
        wire.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=(), strict=False).entries,
        wire.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None).results,
        wire.call(
            ApiKey.DESCRIBE_ACLS,
            2,
            resource_type_filter=1,
            pattern_type_filter=1,
            operation=1,
            permission_type=1,
        ).resources,
    )


def test_what_the_full_disk_refuses_is_an_error_and_is_not_there(disk: Path) -> None:
    data = disk / "data"
    with Broker(data_dir=data, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        for name in ("kept", "grown", "doomed-1", "doomed-2"):
            broker.create_topic(name, 2 if name == "grown" else 1)
        for number in (1, 2):
            rule = {"resource_type": 2, "resource_name": f"doomed-{number}", "resource_pattern_type": 3}
            who = {"principal": "User:b", "host": "*", "operation": 3, "permission_type": 3}
            assert codes(wire.call(ApiKey.CREATE_ACLS, 2, creations=[{**rule, **who}])) == [NONE]
        for change in changes(1).values():
            assert not any(codes(change(wire)))
        before = state(wire)
        with full(disk):
            for what, change in changes(2).items():
                found = codes(change(wire))
                assert found == [KAFKA_STORAGE_ERROR], what
                assert state(wire) == before, what
        assert state(wire) == before
        for what, change in changes(2).items():
            assert not any(codes(change(wire))), what
        after = state(wire)
        assert after != before
    with Broker(data_dir=data, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        assert state(wire) == after
