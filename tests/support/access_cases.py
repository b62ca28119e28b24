"""Each API asked by clients with one right each, so that Kafka's answers and ours can be compared.

All clients are User:ANONYMOUS; what one may do goes by the address that it comes from, 127.0.1.1 and up. Only 127.0.0.1
may do everything.
"""

from __future__ import annotations

import dataclasses
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stratalog.broker.access import AclOperation, ResourceType
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util import uuid_to_base64
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import message_module, request_class
from tests.support.wire import TIMEOUT_S, Wire

LITERAL, ALLOW = 3, 3
TOPIC, GROUP, CLUSTER, TXN_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
#: An operation, a type and a name.
Right = tuple[AclOperation, ResourceType, str]

_SINGLE: dict[ResourceType, tuple[AclOperation, ...]] = {
    TOPIC: (
        Op.DESCRIBE, Op.READ, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
    ),
    GROUP: (Op.DESCRIBE, Op.READ, Op.DELETE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
    CLUSTER: (
        Op.DESCRIBE, Op.CREATE, Op.DELETE, Op.ALTER, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
        Op.IDEMPOTENT_WRITE,
    ),
    TXN_ID: (Op.DESCRIBE, Op.WRITE),
}  # fmt: skip

#: What each client may do, by the client's name.
RIGHTS: dict[str, tuple[Right, ...]] = {
    "nothing": (),
    **{
        f"{operation.name} {type_.name}": ((operation, type_, "kafka-cluster" if type_ is CLUSTER else "*"),)
        for type_, operations in _SINGLE.items()
        for operation in operations
    },
    "DESCRIBE open": ((Op.DESCRIBE, TOPIC, "open"),),
    "READ open and GROUP": ((Op.READ, TOPIC, "open"), (Op.READ, GROUP, "*")),
    "WRITE open and TXN_ID": ((Op.WRITE, TOPIC, "open"), (Op.WRITE, TXN_ID, "*")),
    "READ open and GROUP, WRITE TXN_ID": (
        (Op.READ, TOPIC, "open"), (Op.READ, GROUP, "*"), (Op.WRITE, TXN_ID, "*"),
    ),
    "READ open, DELETE GROUP": ((Op.READ, TOPIC, "open"), (Op.DELETE, GROUP, "*")),
    "CREATE and DESCRIBE_CONFIGS open": ((Op.CREATE, TOPIC, "*"), (Op.DESCRIBE_CONFIGS, TOPIC, "*")),
    "DELETE missing": ((Op.DELETE, TOPIC, "missing"),),
}  # fmt: skip


def address_of(client: str) -> str:
    return f"127.0.1.{1 + list(RIGHTS).index(client)}"


class WireFrom(Wire):
    """A connection that comes from a certain address of this machine."""

    def __init__(self, bootstrap_servers: str, address: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.client_id = "wire"
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S, source_address=(address, 0))
        self._correlation_id = 0


@dataclass(frozen=True)
class AccessCase:
    key: ApiKey
    versions: tuple[int, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def requests(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        for version in self.versions:
            yield f"{self.key.name} v{version} {self.name}".strip(), version, _fitting(self.key, version, self.fields)


def _fitting(key: ApiKey, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Those fields that a version has, all the way down."""
    kinds = [each for each in vars(message_module(key, version, "request")).values() if dataclasses.is_dataclass(each)]
    known = {each.name for kind in kinds for each in dataclasses.fields(kind)}

    def fitting(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fitting(part) for name, part in value.items() if name in known}
        return [fitting(part) for part in value] if isinstance(value, list) else value

    top = {each.name for each in dataclasses.fields(request_class(key, version))}
    return {name: fitting(value) for name, value in fields.items() if name in top}


def _topics(**more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in ("open", "secret", "missing")]


def cases(ids: dict[str, uuid.UUID]) -> list[AccessCase]:
    """The requests; `ids` are those of the topics open and secret."""
    records = build_batch([Record(0, time.time_ns() // 1_000_000, b"k", b"v")])
    by_name = [
        {"name": name, "partition_data": [{"index": 0, "records": records}]} for name in ("open", "secret", "missing")
    ]
    unknown_id = uuid.UUID("7f5d3c6e-0000-4000-8000-000000000001")
    every_id = [*ids.values(), unknown_id]
    there = [ids["open"], ids["secret"]]  # with another one in a share request Kafka's authorizer fails at its name
    by_id = [{"topic_id": id_, "partition_data": [{"index": 0, "records": records}]} for id_ in every_id]
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
    fetch_fields: dict[str, Any] = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_id": 0}
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    member = {"generation_id": 1, "member_id": "nobody"}
    bounds = {"timeout": 5000}
    resources: list[dict[str, Any]] = [
        *({"resource_type": 2, "resource_name": name} for name in ("open", "secret", "missing")),
        {"resource_type": 4, "resource_name": "1"},
    ]
    acl = {"resource_type": 2, "resource_name": "x", "resource_pattern_type": 3, "principal": "User:x", "host": "*",
           "operation": 3, "permission_type": 3}  # fmt: skip
    any_acl = {"resource_type_filter": 2, "resource_name_filter": "x", "pattern_type_filter": 3, "operation": 3,
               "principal_filter": "User:nobody", "host_filter": None, "permission_type": 3}  # fmt: skip
    entity = [{"entity_type": "user", "entity_name": "x"}]
    return [
        AccessCase(ApiKey.PRODUCE, (9, 12), {"acks": 1, "timeout": 1000, "topic_data": by_name}),
        AccessCase(ApiKey.PRODUCE, (13,), {"acks": 1, "timeout": 1000, "topic_data": by_id}),
        AccessCase(ApiKey.FETCH, (4, 12), {
            **fetch_fields,
            "topics": [{"topic": name, "partitions": [partition]} for name in ("open", "secret", "missing")],
        }, name="by name"),
        AccessCase(ApiKey.FETCH, (13, 17), {
            **fetch_fields,
            "topics": [{"topic_id": id_, "partitions": [partition]} for id_ in every_id],
        }, name="by id"),
        AccessCase(ApiKey.LIST_OFFSETS, (1, 9), {
            "replica_id": -1, "topics": _topics(partitions=[{"partition_index": 0, "timestamp": -1}]),
        }),
        AccessCase(ApiKey.METADATA, (0, 1, 12), {
            "topics": [{"name": name} for name in ("open", "secret")],
            "include_topic_authorized_operations": True,
        }),
        AccessCase(ApiKey.METADATA, (4, 9), {
            "topics": [{"name": name} for name in ("open", "secret", "missing")], "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True,
        }, name="missing"),
        AccessCase(ApiKey.METADATA, (9, 12), {"topics": None}, name="all"),
        AccessCase(ApiKey.METADATA, (0,), {"topics": []}, name="all"),
        AccessCase(ApiKey.METADATA, (12, 13), {
            "topics": [{"topic_id": id_, "name": None} for id_ in every_id],
        }, name="by id"),
        AccessCase(ApiKey.OFFSET_COMMIT, (2, 9), {
            "group_id": "seen", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": _topics(partitions=[commit]),
        }),
        AccessCase(ApiKey.OFFSET_COMMIT, (10,), {
            "group_id": "seen", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"topic_id": id_, "partitions": [commit]} for id_ in every_id],
        }),
        AccessCase(ApiKey.OFFSET_FETCH, (1, 5), {"group_id": "seen", "topics": _topics(partition_indexes=[0])}),
        AccessCase(ApiKey.OFFSET_FETCH, (2,), {"group_id": "seen", "topics": None}, name="all"),
        AccessCase(ApiKey.OFFSET_FETCH, (8, 9), {"groups": [
            {"group_id": "seen", "topics": _topics(partition_indexes=[0])}, {"group_id": "other", "topics": None},
        ]}),
        AccessCase(ApiKey.OFFSET_FETCH, (10,), {"groups": [
            {"group_id": "seen", "topics": [{"topic_id": id_, "partition_indexes": [0]} for id_ in every_id]},
            {"group_id": "other", "topics": None},
        ]}),
        AccessCase(ApiKey.FIND_COORDINATOR, (0, 3), {"key": "seen", "key_type": 0}),
        AccessCase(ApiKey.FIND_COORDINATOR, (4, 6), {"key_type": 0, "coordinator_keys": ["seen", "other"]}),
        AccessCase(ApiKey.FIND_COORDINATOR, (1, 6), {
            "key_type": 1, "key": "txn", "coordinator_keys": ["txn"],
        }, name="transaction"),
        AccessCase(ApiKey.JOIN_GROUP, (0, 9), {
            "group_id": "joined", "session_timeout": 1, "rebalance_timeout": 1, "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }),
        AccessCase(ApiKey.HEARTBEAT, (0, 4), {"group_id": "seen", **member}),
        AccessCase(ApiKey.LEAVE_GROUP, (0,), {"group_id": "seen", "member_id": "nobody"}),
        AccessCase(ApiKey.LEAVE_GROUP, (5,), {"group_id": "seen", "members": [{"member_id": "nobody"}]}),
        AccessCase(ApiKey.SYNC_GROUP, (0, 5), {
            "group_id": "seen", **member, "protocol_type": "consumer", "protocol_name": "range",
        }),
        AccessCase(ApiKey.DESCRIBE_GROUPS, (0, 5), {
            "groups": ["seen"], "include_authorized_operations": True,
        }),
        AccessCase(ApiKey.LIST_GROUPS, (0, 4)),
        AccessCase(ApiKey.CREATE_TOPICS, (2, 5, 7), {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}], **bounds, "validate_only": True,
        }),
        AccessCase(ApiKey.DELETE_TOPICS, (1, 5), {"topic_names": ["missing"], **bounds}),
        AccessCase(ApiKey.DELETE_TOPICS, (6,), {
            "topics": [{"name": "missing"}, {"name": None, "topic_id": unknown_id}], **bounds,
        }),
        AccessCase(ApiKey.DELETE_TOPICS, (6,), {
            "topics": [{"name": None, "topic_id": ids["kept"]}], **bounds,
        }, name="by id"),
        AccessCase(ApiKey.DELETE_RECORDS, (0, 2), {
            "topics": _topics(partitions=[{"partition_index": 0, "offset": 0}]), **bounds,
        }),
        AccessCase(ApiKey.INIT_PRODUCER_ID, (0, 4), {"transactional_id": None, "transaction_timeout": 60_000}),
        AccessCase(ApiKey.INIT_PRODUCER_ID, (1, 5), {
            "transactional_id": "txn", "transaction_timeout": 60_000,
        }, name="transaction"),
        AccessCase(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), {
            "replica_id": -2,
            "topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]}
                       for name in ("open", "secret", "missing")],
        }),
        AccessCase(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3), {
            "v3_and_below_transactional_id": "none", "v3_and_below_producer_id": 99, "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _topics(partitions=[0]),
        }),
        AccessCase(ApiKey.ADD_PARTITIONS_TO_TXN, (4, 5), {"transactions": [
            {"transactional_id": "none", "producer_id": 99, "producer_epoch": 0, "verify_only": True,
             "topics": [{"name": "open", "partitions": [0]}]},
        ]}),
        AccessCase(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), {
            "transactional_id": "none", "producer_id": 99, "producer_epoch": 0, "group_id": "seen",
        }),
        AccessCase(ApiKey.END_TXN, (0, 4), {
            "transactional_id": "none", "producer_id": 99, "producer_epoch": 0, "committed": True,
        }),
        AccessCase(ApiKey.WRITE_TXN_MARKERS, (1,), {"markers": [
            {"producer_id": 99, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
             "topics": [{"name": "missing", "partition_indexes": [0]}]},
        ]}),
        AccessCase(ApiKey.TXN_OFFSET_COMMIT, (0, 3), {
            "transactional_id": "none", "group_id": "seen", "producer_id": 99, "producer_epoch": 0,
            "topics": _topics(partitions=[commit]),
        }),
        AccessCase(ApiKey.DESCRIBE_ACLS, (1, 3), any_acl),
        AccessCase(ApiKey.CREATE_ACLS, (1, 3), {
            "creations": [acl, {**acl, "principal": "none"}, {**acl, "host": "1.2.3.4/99"}],
        }),
        AccessCase(ApiKey.DELETE_ACLS, (1, 3), {"filters": [any_acl]}),
        AccessCase(ApiKey.DESCRIBE_CONFIGS, (1, 4), {
            "resources": [{**each, "configuration_keys": ["no.such.key"]} for each in resources],
        }),
        AccessCase(ApiKey.ALTER_CONFIGS, (0, 2), {"resources": resources[:1], "validate_only": True}),
        AccessCase(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), {"resources": resources, "validate_only": True}),
        AccessCase(ApiKey.DESCRIBE_LOG_DIRS, (3, 4), {"topics": [{"topic": "open", "partitions": [0]}]}),
        AccessCase(ApiKey.DESCRIBE_LOG_DIRS, (1,), {"topics": [{"topic": "open", "partitions": [0]}]}),
        AccessCase(ApiKey.CREATE_PARTITIONS, (0, 3), {
            "topics": [{"name": name, "count": 2, "assignments": None} for name in ("open", "missing")],
            **bounds, "validate_only": True,
        }),
        AccessCase(ApiKey.DELETE_GROUPS, (0, 2), {"groups_names": ["no-such-group"]}),
        AccessCase(ApiKey.ELECT_LEADERS, (0, 2), {
            "topic_partitions": [{"topic": "missing", "partitions": [0]}], **bounds,
        }),
        AccessCase(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0,), {"topics": [], **bounds}),
        AccessCase(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0,), {"topics": None, **bounds}),
        AccessCase(ApiKey.OFFSET_DELETE, (0,), {
            "group_id": "seen", "topics": [{"name": name, "partitions": [{"partition_index": 7}]}
                                           for name in ("open", "secret")],
        }),
        AccessCase(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), {"components": [], "strict": False}),
        AccessCase(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), {
            "entries": [{"entity": entity, "ops": [{"key": "no_such", "value": 1.0, "remove": False}]}],
            "validate_only": True,
        }),
        AccessCase(ApiKey.DESCRIBE_QUORUM, (1,), {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        }),
        AccessCase(ApiKey.UPDATE_FEATURES, (1,), {"feature_updates": [], **bounds, "validate_only": True}),
        AccessCase(ApiKey.DESCRIBE_CLUSTER, (0, 1), {"include_cluster_authorized_operations": True}),
        AccessCase(ApiKey.DESCRIBE_PRODUCERS, (0,), {
            "topics": [{"name": name, "partition_indexes": [0]} for name in ("open", "secret", "missing")],
        }),
        AccessCase(ApiKey.DESCRIBE_TRANSACTIONS, (0,), {"transactional_ids": ["none"]}),
        AccessCase(ApiKey.LIST_TRANSACTIONS, (0, 1)),
        AccessCase(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0,), {"users": [{"name": "nobody"}]}),
        AccessCase(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0,), {
            "deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": [],
        }),
        AccessCase(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), {
            "group_id": "beating", "member_id": "nobody", "member_epoch": 5, "rebalance_timeout": -1,
            "subscribed_topic_names": ["open"],
        }),
        AccessCase(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), {
            "group_id": "beating", "member_id": "nobody", "member_epoch": 5, "rebalance_timeout": -1,
            "subscribed_topic_names": ["open", "secret"],
        }, name="two topics"),
        AccessCase(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), {
            "group_ids": ["no-such-group"], "include_authorized_operations": True,
        }),
        AccessCase(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 1), _streams_join("open")),
        AccessCase(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 1), _streams_join("open", "secret"), name="two topics"),
        AccessCase(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 1), {
            "group_ids": ["no-such-group"], "include_authorized_operations": True,
        }),
        AccessCase(ApiKey.SHARE_GROUP_HEARTBEAT, (1,), {
            "group_id": "beating", "member_id": "nobody", "member_epoch": 5, "subscribed_topic_names": ["open"],
        }),
        AccessCase(ApiKey.SHARE_GROUP_HEARTBEAT, (1,), {
            "group_id": "beating", "member_id": "nobody", "member_epoch": 5,
            "subscribed_topic_names": ["open", "secret"],
        }, name="two topics"),
        AccessCase(ApiKey.SHARE_GROUP_DESCRIBE, (1,), {
            "group_ids": ["no-such-group"], "include_authorized_operations": True,
        }),
        AccessCase(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), {
            "groups": [{"group_id": "seen", "topics": _shared(partitions=[7])}, {"group_id": "none", "topics": None}],
        }),
        AccessCase(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0,), {
            "group_id": "altered", "topics": _shared(partitions=[{"partition_index": 7, "start_offset": 1}]),
        }),
        AccessCase(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0,), {"group_id": "no-such-group", "topics": _shared()}),
        # Nothing is handed out: what would be goes by how far the coordinator is.
        AccessCase(ApiKey.SHARE_FETCH, (1, 2), {
            "group_id": "sharing", "member_id": "member", "share_session_epoch": 0, "max_wait": 0, "min_bytes": 0,
            "max_bytes": 0, "max_records": 1, "batch_size": 1, "share_acquire_mode": 0, "is_renew_ack": False,
            "topics": _share_acks(there, acknowledgement_batches=[]), "forgotten_topics_data": [],
        }),
        AccessCase(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), {
            "group_id": "sharing", "member_id": "member", "share_session_epoch": 1, "is_renew_ack": False,
            "topics": _share_acks(there, acknowledgement_batches=[
                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
            ]),
        }),
        AccessCase(ApiKey.READ_SHARE_GROUP_STATE, (0,), _share_states(ids["open"], leader_epoch=0)),
        AccessCase(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), _share_states(ids["open"], leader_epoch=0)),
        AccessCase(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), _share_states(
            ids["open"], state_epoch=0, leader_epoch=0, start_offset=0, delivery_complete_count=0, state_batches=[],
        )),
        AccessCase(ApiKey.DELETE_SHARE_GROUP_STATE, (0,), _share_states(ids["open"])),
        AccessCase(ApiKey.LIST_CONFIG_RESOURCES, (0,)),
        AccessCase(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0,), {
            "topics": [{"name": name} for name in ("open", "secret", "missing")], "response_partition_limit": 10,
        }),
        AccessCase(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0,), {"topics": [], "response_partition_limit": 10}, name="all"),
    ]  # fmt: skip


def _share_acks(ids: Iterable[uuid.UUID], **fields: Any) -> list[dict[str, Any]]:
    return [{"topic_id": each, "partitions": [{"partition_index": 0, **fields}]} for each in ids]


def _share_states(topic_id: uuid.UUID, **fields: Any) -> dict[str, Any]:
    return {"group_id": "stateless", "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}]}


def _shared(**fields: Any) -> list[dict[str, Any]]:
    return [{"topic_name": name, **fields} for name in ("open", "secret", "missing")]


def _streams_join(*topics: str) -> dict[str, Any]:
    """A join that is refused for its missing timeout, once the client may read the group and describe the topics."""
    lists = ("source_topic_regex", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics")
    part = {"subtopology_id": "0", "source_topics": topics, "copartition_groups": (), **dict.fromkeys(lists, ())}
    none = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ())
    return {
        "group_id": "streaming", "member_id": "m", "member_epoch": 0, "endpoint_information_epoch": 0,
        "rebalance_timeout": -1, "topology": {"epoch": 0, "subtopologies": [part]}, **none,
        **dict.fromkeys(("client_tags", "task_offsets", "task_end_offsets")),
    }  # fmt: skip


_CREATED = ("open", "secret", "kept")
_SHOWN = {
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "key",
    "num_partitions",
    "partition_index",
    "partition",
}
#: Answers that only say that a coordinator is not ready yet.
_AGAIN = {14, 15, 16, 51}


def prepare(bootstrap_servers: str) -> dict[str, uuid.UUID]:
    """Make the topics, the group and the rules; return the ids of the topics."""
    with Wire(bootstrap_servers) as wire:
        everything = [
            _creation(Op.ALL, type_, "kafka-cluster" if type_ is CLUSTER else "*", "127.0.0.1")
            for type_ in (CLUSTER, TOPIC, GROUP, TXN_ID)
        ]
        rights = [_creation(*right, address_of(client)) for client, each in RIGHTS.items() for right in each]
        for creations in (everything[:1], everything[1:], rights):
            response = wire.call(ApiKey.CREATE_ACLS, 3, creations=creations)
            assert not any(result.error_code for result in response.results)
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in _CREATED]
        created = wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=10_000).topics
        assert not any(topic.error_code for topic in created)
        commits = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in _CREATED]
        _until_ready(lambda: wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["seen"]))
        _until_ready(
            lambda: wire.call(
                ApiKey.OFFSET_COMMIT, 9, group_id="seen", generation_id_or_member_epoch=-1, member_id="", topics=commits
            )
        )
        _until_ready(lambda: wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["txn"]))
        _until_ready(lambda: wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="txn", transaction_timeout=60_000))
        share_key = f"none:{uuid_to_base64(created[0].topic_id)}:0"
        _until_ready(lambda: wire.call(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[share_key]))
        ids = {topic.name: topic.topic_id for topic in created}
        # The rules have reached the authorizer that is asked when the last of them counts.
        with WireFrom(bootstrap_servers, address_of("DELETE missing")) as last:
            deadline = time.monotonic() + TIMEOUT_S
            while _codes(last.call(ApiKey.METADATA, 9, topics=[{"name": "missing"}]))[-1] == 29:
                assert time.monotonic() < deadline
        return ids


def _creation(operation: AclOperation, type_: ResourceType, name: str, host: str) -> dict[str, Any]:
    return {
        "resource_type": int(type_),
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": int(operation),
        "permission_type": ALLOW,
    }


def _until_ready(ask: Any) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        response = ask()
        if not set(_codes(response)) & _AGAIN or time.monotonic() > deadline:
            return response
        time.sleep(0.02)


def _codes(value: Any) -> list[int]:
    if isinstance(value, tuple):
        return [code for each in value for code in _codes(each)]
    if not dataclasses.is_dataclass(value):
        return []
    found = []
    for each in dataclasses.fields(value):
        content = getattr(value, each.name)
        found += [int(content)] if each.name.endswith("error_code") else _codes(content)
    return found


def answers(bootstrap_servers: str, ids: dict[str, uuid.UUID]) -> dict[str, dict[str, list[str]]]:
    """By request: what was answered, shortened to a line, and the clients that got it."""
    names = {id_: name for name, id_ in ids.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for client in RIGHTS:
        wire = WireFrom(bootstrap_servers, address_of(client))
        for case in cases(ids):
            for title, version, fields in case.requests():
                try:
                    line = _shown(_until_ready(partial(wire.call, case.key, version, **fields)), names)
                except ConnectionError:
                    line = "closed"
                    wire.close()
                    wire = WireFrom(bootstrap_servers, address_of(client))
                found.setdefault(title, {}).setdefault(str(line), []).append(client)
        wire.close()
    return found


def _shown(value: Any, names: dict[uuid.UUID, str]) -> str:
    """Codes, names and rights of an answer, its arrays in a fixed order."""
    if isinstance(value, tuple):
        return "[" + ", ".join(sorted(_shown(each, names) for each in value if dataclasses.is_dataclass(each))) + "]"
    parts = []
    for each in sorted(dataclasses.fields(value), key=lambda each: each.name):
        content = getattr(value, each.name)
        if each.name.endswith("error_code") and (content or each.name == "error_code"):
            parts.append(str(int(content)))
        elif each.name.endswith("authorized_operations"):
            parts.append(f"may {int(content)}")
        elif each.name == "topic_id" and content in names:
            parts.append(f"id of {names[content]}")
        elif each.name == "configs":
            continue
        elif each.name in _SHOWN:
            parts.append(str(content))
        elif isinstance(content, tuple) and any(dataclasses.is_dataclass(part) for part in content):
            parts.append(_shown(content, names))
    return "{" + " ".join(parts) + "}"
