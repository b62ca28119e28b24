"""Requests that a broker sends on to the controllers, each with several parts, in every version that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from stratalog.broker.cluster.forwarding import FORWARDED
from stratalog.wire import ApiKey, build_message, request_class, write_message

_CONFIGS: Final = [{"name": "retention.ms", "value": "1", "config_operation": 0}]
_RESOURCES: Final = {
    "resources": [
        {"resource_type": 2, "resource_name": "orders", "configs": _CONFIGS},
        {"resource_type": 4, "resource_name": "1", "configs": _CONFIGS},
    ],
    "validate_only": False,
}
_RULE: Final = {
    "resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
_FILTER: Final = {
    "resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 3, "principal_filter": None,
    "host_filter": None, "operation": 3, "permission_type": 3,
}  # fmt: skip

REQUESTS: Final[Mapping[ApiKey, dict[str, Any]]] = {
    ApiKey.CREATE_TOPICS: {
        "topics": [
            {"name": name, "num_partitions": 3, "replication_factor": 2, "assignments": [], "configs": []}
            for name in ("orders", "payments")
        ],
        "timeout": 1000,
        "validate_only": False,
    },
    ApiKey.DELETE_TOPICS: {
        "topics": [{"name": "orders", "topic_id": None}, {"name": None, "topic_id": UUID(int=7)}],
        "topic_names": ["orders", "payments"],
        "timeout": 1000,
    },
    ApiKey.CREATE_ACLS: {"creations": [_RULE, _RULE]},
    ApiKey.DELETE_ACLS: {"filters": [_FILTER, _FILTER]},
    ApiKey.ALTER_CONFIGS: _RESOURCES,
    ApiKey.CREATE_PARTITIONS: {
        "topics": [{"name": name, "count": 3, "assignments": None} for name in ("orders", "payments")],
        "timeout": 1000,
        "validate_only": False,
    },
    ApiKey.CREATE_DELEGATION_TOKEN: {"renewers": [], "max_lifetime": 1000},
    ApiKey.RENEW_DELEGATION_TOKEN: {"hmac": b"abc", "renew_period": 1000},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"hmac": b"abc", "expiry_time_period": 1000},
    ApiKey.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "orders", "partitions": [0, 2]}, {"topic": "payments", "partitions": [1]}],
        "timeout": 1000,
    },
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "timeout": 1000,
        "topics": [
            {
                "name": "orders",
                "partitions": [
                    {"partition_index": 0, "replicas": [1, 2]},
                    {"partition_index": 1, "replicas": None},
                ],
            }
        ],
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {
        "timeout": 1000,
        "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
    },
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": name}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
            }
            for name in ("alice", None)
        ],
        "validate_only": False,
    },
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "alice", "mechanism": 1}],
        "upsertions": [
            {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
            for name in ("alice", "bob")
        ],
    },
    ApiKey.DESCRIBE_QUORUM: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.UPDATE_FEATURES: {
        "timeout": 1000,
        "feature_updates": [
            {"feature": name, "max_version_level": 1, "allow_downgrade": False, "upgrade_type": 1}
            for name in ("group.version", "share.version")
        ],
        "validate_only": False,
    },
    ApiKey.UNREGISTER_BROKER: {"broker_id": 1},
}
#: In which versions Kafka 4.4.0 takes them.
VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.CREATE_TOPICS: (2, 7), ApiKey.DELETE_TOPICS: (1, 6), ApiKey.CREATE_ACLS: (1, 3), ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.ALTER_CONFIGS: (0, 2), ApiKey.CREATE_PARTITIONS: (0, 3), ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2), ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2), ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1), ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0), ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0), ApiKey.DESCRIBE_QUORUM: (0, 2), ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
}  # fmt: skip


def cases() -> Iterator[tuple[str, ApiKey, int, bytes]]:
    """Yield a name, the API, its version, and the message of a request."""
    assert FORWARDED == REQUESTS.keys() == VERSIONS.keys()
    for key, (low, high) in VERSIONS.items():
        for version in range(low, high + 1):
            message = build_message(request_class(key, version), REQUESTS[key])
            yield f"{key.name.lower()} {version}", key, version, write_message(message)
