"""Requests to the admin APIs, one after the other on a fresh broker, whose answers have to be Apache Kafka's.

`tests/golden/admin/answers.json` holds what Kafka 4.4.0 answered; `python -m tests.golden.admin.make` writes it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey

UNKNOWN_ID = UUID("7f5d3c6e-0000-4000-8000-000000000001")
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@dataclass(frozen=True)
class Case:
    """One request. `errors` are read at `results`: the field of the response that lists them."""

    name: str
    key: ApiKey
    version: int
    fields: dict[str, Any] = field(default_factory=dict)

    def answers(self, wire: Wire) -> list[list[Any]]:
        """[what, error code, error message, more] for each result, in a fixed order."""
        return sorted(_results(self.key, wire.call(self.key, self.version, **self.fields)), key=repr)


def _results(key: ApiKey, response: Any) -> list[list[Any]]:
    if key is ApiKey.CREATE_TOPICS:
        return [
            [t.name, int(t.error_code), t.error_message, t.topic_id is not None, *_created(t)] for t in response.topics
        ]
    if key is ApiKey.DELETE_TOPICS:
        return [[t.name, int(t.error_code), t.error_message] for t in response.responses]
    if key is ApiKey.CREATE_PARTITIONS:
        return [[t.name, int(t.error_code), t.error_message] for t in response.results]
    if key is ApiKey.DESCRIBE_CONFIGS:
        return [[r.resource_name, int(r.error_code), r.error_message, *_described(r)] for r in response.results]
    if key is ApiKey.LIST_CONFIG_RESOURCES:
        found = [[r.resource_name, r.resource_type] for r in response.config_resources]
        return [[None, int(response.error_code), None, *found]]
    return [[r.resource_name, int(r.error_code), r.error_message] for r in response.responses]


def _created(topic: Any) -> list[Any]:
    """Counts, and the configs that were set."""
    set_here = [[c.name, c.value, c.read_only, c.is_sensitive] for c in topic.configs or () if c.config_source == 1]
    return [topic.num_partitions, topic.replication_factor, set_here]


def _described(result: Any) -> list[Any]:
    if len(result.configs) > 8:
        return []
    return [
        [
            c.name,
            c.value,
            c.read_only,
            c.config_source,
            c.is_sensitive,
            c.config_type,
            [[s.name, s.value, s.source] for s in c.synonyms],
        ]
        for c in sorted(result.configs, key=lambda c: c.name)
    ]


def _create(name: str, *topics: dict[str, Any], validate_only: bool = False) -> Case:
    defaults: dict[str, Any] = {
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    return Case(
        name,
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [{**defaults, **topic} for topic in topics],
            "timeout": 10_000,
            "validate_only": validate_only,
        },
    )


def _create_with(name: str, *, validate_only: bool = True, **configs: str | None) -> Case:
    pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return _create(name, {"name": "with-configs", "configs": pairs}, validate_only=validate_only)


def _assign(name: str, *assignments: tuple[int, tuple[int, ...]], **topic: Any) -> Case:
    parts = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assignments]
    return _create(
        name,
        {"name": "assigned", "num_partitions": -1, "replication_factor": -1, "assignments": parts, **topic},
        validate_only=True,
    )


def _delete(name: str, *topics: dict[str, Any]) -> Case:
    return Case(name, ApiKey.DELETE_TOPICS, 6, {"topics": list(topics), "timeout": 10_000})


def _partitions(name: str, *topics: dict[str, Any], validate_only: bool = False) -> Case:
    return Case(
        name,
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"assignments": None, **topic} for topic in topics],
            "timeout": 10_000,
            "validate_only": validate_only,
        },
    )


def _alter(
    name: str, *resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False
) -> Case:
    return Case(
        name,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": type_,
                    "resource_name": resource,
                    "configs": [{"name": k, "config_operation": op, "value": v} for k, op, v in changes],
                }
                for type_, resource, changes in resources
            ],
            "validate_only": validate_only,
        },
    )


def _replace(name: str, *resources: tuple[int, str, list[tuple[str, str | None]]]) -> Case:
    return Case(
        name,
        ApiKey.ALTER_CONFIGS,
        2,
        {
            "resources": [
                {
                    "resource_type": type_,
                    "resource_name": resource,
                    "configs": [{"name": k, "value": v} for k, v in changes],
                }
                for type_, resource, changes in resources
            ],
            "validate_only": False,
        },
    )


def _describe(name: str, type_: int, resource: str, *keys: str, synonyms: bool = True) -> Case:
    return Case(
        name,
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [{"resource_type": type_, "resource_name": resource, "configuration_keys": keys or None}],
            "include_synonyms": synonyms,
            "include_documentation": False,
        },
    )


def _list(name: str, *types: int) -> Case:
    return Case(name, ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": types})


def _group(name: str, *changes: tuple[str, int, str | None], group: str = "g", validate_only: bool = False) -> Case:
    return _alter(name, (GROUP, group, list(changes)), validate_only=validate_only)


def _group_value(key: str, value: str | None) -> Case:
    """A value alone, only validated."""
    return _group(f"{key} {value!r}", (key, SET, value), validate_only=True)


_CONSUMER_TIMES = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms")

#: Values of groups' keys, most of them at or beyond a bound.
_GROUP_VALUES: dict[str, tuple[str | None, ...]] = {
    "consumer.session.timeout.ms": ("44999", "45000", "60000", "60001", "0", "-1", "x", " 50000 ", "", "2147483648"),
    "consumer.heartbeat.interval.ms": ("4999", "15000", "15001", "0"),
    "consumer.assignment.interval.ms": ("-1", "0", "15000", "15001"),
    "consumer.assignor.offload.enable": ("false", "maybe"),
    "share.session.timeout.ms": ("44999", "60000", "60001"),
    "share.heartbeat.interval.ms": ("4999", "15000", "15001"),
    "share.record.lock.duration.ms": ("999", "14999", "15000", "60000", "60001"),
    "share.delivery.count.limit": ("1", "2", "10", "11"),
    "share.partition.max.record.locks": ("99", "100", "4000", "4001"),
    "share.auto.offset.reset": (
        "latest",
        "earliest",
        "EARLIEST",
        "none",
        "",
        "by_duration:PT1H",
        "by_duration:PT1H30M5.25S",
        "by_duration:P2DT3H",
        "by_duration:p1d",
        "by_duration:P1Y",
        "by_duration:-PT1H",
        "by_duration:PT-1H",
        "by_duration:PT-1H61M",
        "by_duration:+PT1H",
        "by_duration:",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:PT0S",
        "by_duration:PT.5S",
        "by_duration:PT5.S",
        "by_duration:P1W",
        "by_duration:PT99999999999999999999H",
        "by_duration",
        "BY_DURATION:PT1H",
    ),
    "share.isolation.level": ("read_committed", "read_uncommitted", "READ_COMMITTED", "none"),
    "share.renew.acknowledge.enable": ("false", "TRUE", "1"),
    "share.assignment.interval.ms": ("-1", "0", "15000", "15001"),
    "share.assignor.offload.enable": ("false",),
    "streams.session.timeout.ms": ("44999", "60000", "60001"),
    "streams.heartbeat.interval.ms": ("4999", "15000", "15001"),
    "streams.num.standby.replicas": ("-1", "0", "2", "3"),
    "streams.initial.rebalance.delay.ms": ("-1", "0", "100000"),
    "streams.assignment.interval.ms": ("-1", "0", "15001"),
    "streams.assignor.offload.enable": ("false",),
    "streams.task.offset.interval.ms": ("0", "1", "14999", "15000"),
    "streams.num.warmup.replicas": ("-1", "0", "20", "21"),
    "streams.rack.aware.assignment.tags": (
        "",
        "zone",
        "zone,rack",
        "zone,zone",
        "zone, zone",
        "zone,",
        ",",
        "a,,b",
        " ",
    ),
    "streams.acceptable.recovery.lag": ("-1", "0", "9223372036854775807"),
    "streams.assignor.name": ("sticky", "Sticky", "other", ""),
    "errors.deadletterqueue.topic.name": ("", "dlq.x", "__x", "a b"),
    "errors.deadletterqueue.copy.record.enable": ("true", "x"),
}

_GROUP_CASES = [
    _list("list: no groups", GROUP),
    _describe("group: untouched", GROUP, "g", *_CONSUMER_TIMES),
    *(_describe(f"group: default of {key}", GROUP, "g", key) for key in _GROUP_VALUES),
    *(_group_value(key, value) for key, values in _GROUP_VALUES.items() for value in values),
    _group("group: set", ("consumer.session.timeout.ms", SET, "50000"), ("share.auto.offset.reset", SET, "earliest")),
    _describe("group: set, described", GROUP, "g", "consumer.session.timeout.ms", "share.auto.offset.reset"),
    _describe("group: without synonyms", GROUP, "g", "consumer.session.timeout.ms", synonyms=False),
    _list("list: a group", GROUP),
    _list("list: a type that does not exist", GROUP, 7),
    _group("group: no name", ("consumer.session.timeout.ms", SET, "50000"), group=""),
    _group("group: no name, bad value", ("consumer.session.timeout.ms", SET, "x"), group=""),
    _group("group: odd name", ("consumer.session.timeout.ms", SET, "50000"), group="a b/\u00e9", validate_only=True),
    _group("group: unknown key", ("no.such.key", SET, "1")),
    _group("group: delete unknown key", ("no.such.key", DELETE, None)),
    _group("group: null", ("consumer.session.timeout.ms", SET, None)),
    _group(
        "group: twice", ("consumer.session.timeout.ms", SET, "50000"), ("consumer.session.timeout.ms", DELETE, None)
    ),
    _group("group: append to no list", ("consumer.session.timeout.ms", APPEND, "1")),
    _group("group: subtract from no list", ("consumer.session.timeout.ms", SUBTRACT, "1")),
    _group("group: append to unknown", ("no.such.key", APPEND, "1")),
    _group("group: unknown operation", ("consumer.session.timeout.ms", 9, "1")),
    _group("group: append", ("streams.rack.aware.assignment.tags", APPEND, "zone")),
    _group("group: append again", ("streams.rack.aware.assignment.tags", APPEND, "zone,rack")),
    _group("group: append two alike", ("streams.rack.aware.assignment.tags", APPEND, "x,x")),
    _group("group: subtract", ("streams.rack.aware.assignment.tags", SUBTRACT, "zone")),
    _describe("group: after append and subtract", GROUP, "g", "streams.rack.aware.assignment.tags"),
    _group("group: subtract all", ("streams.rack.aware.assignment.tags", SUBTRACT, "rack")),
    _describe("group: after all is subtracted", GROUP, "g", "streams.rack.aware.assignment.tags"),
    _group(
        "group: session not above heartbeat",
        ("consumer.session.timeout.ms", SET, "45000"),
        ("consumer.heartbeat.interval.ms", SET, "15000"),
    ),
    _group(
        "group: one bad, one good", ("consumer.session.timeout.ms", SET, "x"), ("share.delivery.count.limit", SET, "3")
    ),
    _group("group: two bad", ("consumer.session.timeout.ms", SET, "1"), ("consumer.heartbeat.interval.ms", SET, "1")),
    _describe("group: after failures", GROUP, "g", *_CONSUMER_TIMES, "share.delivery.count.limit"),
    _describe("group: unknown key described", GROUP, "g", "no.such.key"),
    _describe("group: no name described", GROUP, ""),
    _group("group: delete what is not set", ("share.heartbeat.interval.ms", DELETE, None)),
    _group("group: delete", ("consumer.session.timeout.ms", DELETE, None)),
    _describe("group: deleted", GROUP, "g", "consumer.session.timeout.ms"),
    _replace("group: replace", (GROUP, "g", [("consumer.heartbeat.interval.ms", "6000")])),
    _describe("group: replaced", GROUP, "g", "share.auto.offset.reset", *_CONSUMER_TIMES),
    _replace("group: replace by bad", (GROUP, "g", [("consumer.heartbeat.interval.ms", "60000")])),
    _replace("group: replace by null", (GROUP, "g", [("consumer.heartbeat.interval.ms", None)])),
    _replace("group: replace by unknown", (GROUP, "g", [("no.such.key", "1")])),
    _replace("group: replace of no name", (GROUP, "", [("consumer.heartbeat.interval.ms", "6000")])),
    _replace("group: replace by nothing", (GROUP, "g", [])),
    _list("list: groups with nothing set", GROUP),
    _describe("group: replaced by nothing", GROUP, "g", *_CONSUMER_TIMES),
    _group("group: internal key", ("consumer.assignor.offload.enable", SET, "false")),
    _describe("group: internal key, described", GROUP, "g", "consumer.assignor.offload.enable"),
    _describe("group: all of it", GROUP, "g"),
]


def _metrics(name: str, *changes: tuple[str, int, str | None], of: str = "m", validate_only: bool = False) -> Case:
    return _alter(name, (CLIENT_METRICS, of, list(changes)), validate_only=validate_only)


#: Values of subscriptions to client metrics.
_METRICS_VALUES: dict[str, tuple[str, ...]] = {
    "metrics": ("*", "", "org.apache.kafka.producer.", "a,b", "a,,b", "a,a", " "),
    "interval.ms": ("99", "100", "3600000", "3600001", "x", "", "-1", " 1000 "),
    "match": (
        "",
        "client_id=.*",
        "client_id=a,client_software_name=b.*",
        " client_id = a ",
        "client_id=a,client_id=b",
        "client_id",
        "client_id=",
        "client_id==a",
        "client_id=a=b",
        "=a",
        "group=a",
        "CLIENT_ID=a",
        "client_id=(",
        "client_id=[a-z&&[^b]]",
        "client_id=a,",
        ",",
        "client_source_port=9092",
        "client_instance_id=x,client_source_address=127.*,client_software_version=11.1.*",
    ),
}

_METRICS_CASES = [
    _list("list: no client metrics", CLIENT_METRICS),
    _describe("metrics: untouched", CLIENT_METRICS, "m"),
    *(
        _metrics(f"metrics: {key} {value!r}", (key, SET, value), validate_only=True)
        for key, values in _METRICS_VALUES.items()
        for value in values
    ),
    _metrics("metrics: set", ("interval.ms", SET, "1000"), ("match", SET, "client_id=.*")),
    _describe("metrics: set, described", CLIENT_METRICS, "m"),
    _describe("metrics: one key described", CLIENT_METRICS, "m", "interval.ms"),
    _list("list: client metrics", CLIENT_METRICS),
    _metrics("metrics: no name", ("interval.ms", SET, "1000"), of=""),
    _metrics("metrics: no name, bad value", ("interval.ms", SET, "x"), of=""),
    _describe("metrics: no name described", CLIENT_METRICS, ""),
    _metrics("metrics: unknown key", ("no.such.key", SET, "1")),
    _metrics("metrics: null", ("interval.ms", SET, None)),
    _metrics("metrics: append", ("metrics", APPEND, "a")),
    _metrics("metrics: subtract", ("match", SUBTRACT, "a")),
    _metrics("metrics: unknown operation", ("interval.ms", 9, "1000")),
    _metrics("metrics: delete what is not set", ("metrics", DELETE, None)),
    _metrics("metrics: delete unknown", ("no.such.key", DELETE, None)),
    _replace("metrics: replace", (CLIENT_METRICS, "m", [("metrics", "*")])),
    _describe("metrics: replaced", CLIENT_METRICS, "m"),
    _replace("metrics: replace by bad", (CLIENT_METRICS, "m", [("interval.ms", "1")])),
    _replace("metrics: replace by nothing", (CLIENT_METRICS, "m", [])),
    _list("list: no client metrics are left", CLIENT_METRICS),
]

CASES = [
    # --- CreateTopics: names
    _create("empty name", {"name": ""}),
    _create("dot", {"name": "."}),
    _create("two dots", {"name": ".."}),
    _create("bad character", {"name": "a b"}),
    _create("slash", {"name": "a/b"}),
    _create("non-ASCII", {"name": "caf\u00e9"}),
    _create("250 characters", {"name": "x" * 250}),
    _create("249 characters", {"name": "x" * 249}, validate_only=True),
    _create("the metadata topic", {"name": "__cluster_metadata"}),
    _create("two at once", {"name": "twice"}, {"name": "twice"}),
    _create("made", {"name": "made.topic", "num_partitions": 2}),
    _create("made again", {"name": "made.topic"}),
    _create("collides", {"name": "made_topic"}),
    _create("exists, only validated", {"name": "made.topic"}, validate_only=True),
    # --- partitions and replicas
    _create("no partitions", {"name": "p", "num_partitions": 0}),
    _create("negative partitions", {"name": "p", "num_partitions": -2}),
    _create("default partitions", {"name": "p", "num_partitions": -1, "replication_factor": -1}, validate_only=True),
    _create("no replicas", {"name": "p", "replication_factor": 0}),
    _create("negative replicas", {"name": "p", "replication_factor": -2}),
    _create("too many replicas", {"name": "p", "replication_factor": 2}),
    _create("too many partitions", {"name": "p", "num_partitions": 10_001}, validate_only=True),
    _create(
        "too many partitions beside other mistakes",
        {"name": "p", "num_partitions": 10_000},
        {"name": "bad name", "num_partitions": -1},
        {"name": "zero", "num_partitions": 0},
        {"name": "twice"},
        {"name": "twice"},
        validate_only=True,
    ),
    _create("too many partitions by far", {"name": "p", "num_partitions": 2**31 - 1}, validate_only=True),
    _create(
        "too many partitions together",
        {"name": "p", "num_partitions": 6_000},
        {"name": "q", "num_partitions": 6_000},
        validate_only=True,
    ),
    _create("no partitions and no replicas", {"name": "p", "num_partitions": 0, "replication_factor": 0}),
    # --- manual assignments
    _assign("assigned", (0, (1,)), (1, (1,))),
    _assign("assignment and partitions", (0, (1,)), num_partitions=1),
    _assign("assignment and replicas", (0, (1,)), replication_factor=1),
    _assign("assignment and both", (0, (1,)), num_partitions=1, replication_factor=1),
    _assign("assigned twice", (0, (1,)), (0, (1,))),
    _assign("assignment with a hole", (0, (1,)), (2, (1,))),
    _assign("assignment from one on", (1, (1,))),
    _assign("assigned to nobody", (0, ())),
    _assign("assigned to an unknown broker", (0, (7,))),
    _assign("assigned to one broker twice", (0, (1, 1))),
    # --- configs
    _create_with("unknown config", no_such_config="1"),
    _create_with("null config", retention_ms=None),
    _create_with("two null configs", retention_ms=None, segment_ms=None),
    _create_with("not a number", retention_ms="soon"),
    _create_with("not an int", max_message_bytes="99999999999"),
    _create_with("not a bool", preallocate="maybe"),
    _create_with("not a double", min_cleanable_dirty_ratio="half"),
    _create_with("ratio too large", min_cleanable_dirty_ratio="1.5"),
    _create_with("ratio too small", min_cleanable_dirty_ratio="-0.1"),
    _create_with("below minimum", segment_bytes="10"),
    _create_with("segment of 0 ms", segment_ms="0"),
    _create_with("negative retention", retention_ms="-2"),
    _create_with("negative retention bytes", retention_bytes="-2"),
    _create_with("bad policy", cleanup_policy="shred"),
    _create_with("bad policy among good ones", cleanup_policy="delete,shred"),
    _create_with("empty policy", cleanup_policy=""),
    _create_with("policy twice", cleanup_policy="delete,delete"),
    _create_with("bad codec", compression_type="rar"),
    _create_with("bad gzip level", compression_gzip_level="0"),
    _create_with("gzip level too high", compression_gzip_level="10"),
    _create_with("bad lz4 level", compression_lz4_level="0"),
    _create_with("bad zstd level", compression_zstd_level="23"),
    _create_with("bad timestamp type", message_timestamp_type="Whenever"),
    _create_with("lags in the wrong order", min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
    _create_with("no replicas in sync", min_insync_replicas="0"),
    _create_with("index of 3 bytes", segment_index_bytes="3"),
    _create_with("throttle list", leader_replication_throttled_replicas="0:1,1:2"),
    _create_with("bad throttle list", leader_replication_throttled_replicas="zero"),
    _create_with("tiered without the system", remote_storage_enable="true"),
    _create_with("good configs", retention_ms="1000", cleanup_policy="compact, delete", preallocate="TRUE"),
    _create(
        "created with configs",
        {
            "name": "configured",
            "num_partitions": 3,
            "configs": [{"name": "retention.ms", "value": "60000"}, {"name": "cleanup.policy", "value": "delete"}],
        },
    ),
    # --- CreatePartitions
    _partitions("more partitions", {"name": "configured", "count": 4}),
    _partitions("as many partitions", {"name": "configured", "count": 4}),
    _partitions("fewer partitions", {"name": "configured", "count": 1}),
    _partitions("partitions of no topic", {"name": "nowhere", "count": 2}),
    _partitions("partitions, two at once", {"name": "configured", "count": 5}, {"name": "configured", "count": 6}),
    _partitions("partitions, only validated", {"name": "configured", "count": 9}, validate_only=True),
    _partitions("too many partitions to add", {"name": "configured", "count": 2**31 - 1}, validate_only=True),
    _partitions(
        "too many partitions to add in all",
        {"name": "configured", "count": 10_005, "assignments": [{"broker_ids": (1, 1)}]},
        {"name": "nowhere", "count": 2},
        {"name": "fewer", "count": -1},
        {"name": "twice", "count": 3},
        {"name": "twice", "count": 3},
    ),
    _partitions("too few assignments", {"name": "configured", "count": 6, "assignments": [{"broker_ids": (1,)}]}),
    _partitions("bad assignment", {"name": "configured", "count": 5, "assignments": [{"broker_ids": (9,)}]}),
    _partitions("empty assignment", {"name": "configured", "count": 5, "assignments": [{"broker_ids": ()}]}),
    _partitions("two replicas", {"name": "configured", "count": 5, "assignments": [{"broker_ids": (1, 1)}]}),
    _partitions("good assignment", {"name": "configured", "count": 5, "assignments": [{"broker_ids": (1,)}]}),
    # --- IncrementalAlterConfigs, topics
    _alter("set", (TOPIC, "configured", [("retention.ms", SET, "120000")])),
    _alter("set of no topic", (TOPIC, "nowhere", [("retention.ms", SET, "120000")])),
    _alter("set without a topic's name", (TOPIC, "", [("retention.ms", SET, "120000")])),
    _alter("set for a bad name", (TOPIC, "a b", [("retention.ms", SET, "120000")])),
    _alter("set to null", (TOPIC, "configured", [("retention.ms", SET, None)])),
    _alter("set twice", (TOPIC, "configured", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])),
    _alter(
        "resource twice",
        (TOPIC, "configured", [("retention.ms", SET, "1")]),
        (TOPIC, "configured", [("retention.ms", SET, "2")]),
    ),
    _alter("set unknown", (TOPIC, "configured", [("no.such.config", SET, "1")])),
    _alter("set bad", (TOPIC, "configured", [("retention.ms", SET, "x")])),
    _alter("append to no list", (TOPIC, "configured", [("retention.ms", APPEND, "1")])),
    _alter("subtract from no list", (TOPIC, "configured", [("retention.ms", SUBTRACT, "1")])),
    _alter("append", (TOPIC, "configured", [("cleanup.policy", APPEND, "compact")])),
    _alter("append again", (TOPIC, "configured", [("cleanup.policy", APPEND, "compact,delete")])),
    _alter("append bad", (TOPIC, "configured", [("cleanup.policy", APPEND, "shred")])),
    _alter("subtract", (TOPIC, "configured", [("cleanup.policy", SUBTRACT, "delete")])),
    _describe("after append and subtract", TOPIC, "configured", "cleanup.policy", "retention.ms"),
    _alter("subtract all", (TOPIC, "configured", [("cleanup.policy", SUBTRACT, "compact")])),
    _alter("delete", (TOPIC, "configured", [("retention.ms", DELETE, None)])),
    _alter("delete what is not set", (TOPIC, "configured", [("flush.ms", DELETE, None)])),
    _alter("delete unknown", (TOPIC, "configured", [("no.such.config", DELETE, None)])),
    _alter("unknown resource type", (99, "x", [("retention.ms", SET, "1")])),
    _alter("unknown resource type, null", (99, "x", [("retention.ms", SET, None)])),
    _alter("unknown resource type, key twice", (99, "x", [("retention.ms", SET, "1"), ("retention.ms", SET, "1")])),
    _alter("levels of another broker, null", (8, "7", [("kafka", SET, None)])),
    _alter("bad and good together", (TOPIC, "configured", [("retention.ms", SET, "77"), ("flush.ms", SET, "x")])),
    _alter("only validated", (TOPIC, "configured", [("retention.ms", SET, "55")]), validate_only=True),
    _describe("after the failures", TOPIC, "configured", "cleanup.policy", "retention.ms", "flush.ms"),
    # --- IncrementalAlterConfigs, operations that do not exist
    _alter("no such operation", (TOPIC, "configured", [("flush.messages", 4, "7")])),
    _alter(
        "no such operation, another topic beside it",
        (TOPIC, "configured", [("flush.messages", 4, "7")]),
        (TOPIC, "twice", [("flush.messages", SET, "7")]),
    ),
    # The controller goes through the keys in the order of a hash map: these two of them are in each other's place.
    _alter(
        "no such operation behind an append to no list",
        (TOPIC, "configured", [("min.insync.replicas", 127, "2"), ("", APPEND, "1")]),
        (TOPIC, "twice", [("flush.messages", SET, "7")]),
    ),
    _alter(
        "no such operation before an append to no list",
        (TOPIC, "configured", [("min.insync.replicas", APPEND, "2"), ("", 127, "1")]),
        (TOPIC, "twice", [("flush.messages", SET, "8")]),
    ),
    _alter(
        "two appends to no list",
        (TOPIC, "configured", [("retention.ms", SUBTRACT, "1"), ("compression.type", APPEND, "producer")]),
    ),
    _alter("group: no such operation behind another", (GROUP, "g", [("b", 4, "1"), ("a", APPEND, "1")])),
    _alter("broker: no such operation", (BROKER, "1", [("log.cleaner.threads", 4, "2")])),
    _alter("broker: another one, no such operation", (BROKER, "-1", [("log.cleaner.threads", 4, "2")])),
    _alter("no such type, no such operation", (99, "x", [("retention.ms", 4, "1")])),
    _describe("after the operations", TOPIC, "twice", "flush.messages"),
    # --- IncrementalAlterConfigs, brokers
    _alter("broker: dynamic", (BROKER, "1", [("log.cleaner.threads", SET, "2")])),
    _alter("cluster: dynamic", (BROKER, "", [("log.retention.ms", SET, "86400000")])),
    _alter("broker: read-only", (BROKER, "1", [("num.partitions", SET, "2")])),
    _alter("cluster: read-only", (BROKER, "", [("node.id", SET, "2")])),
    _alter("broker: bad value", (BROKER, "1", [("log.cleaner.threads", SET, "many")])),
    _alter("broker: below minimum", (BROKER, "1", [("log.cleaner.threads", SET, "-1")])),
    _alter("broker: another one", (BROKER, "2", [("log.cleaner.threads", SET, "2")])),
    _alter("broker: no number", (BROKER, "one", [("log.cleaner.threads", SET, "2")])),
    _alter("broker: unknown key", (BROKER, "1", [("my.plugin.key", SET, "2")])),
    _alter("broker: append to no list", (BROKER, "1", [("log.cleaner.threads", APPEND, "2")])),
    _describe("broker: effective", BROKER, "1", "log.cleaner.threads", "log.retention.ms", "num.partitions"),
    _describe("cluster: set", BROKER, "", "log.cleaner.threads", "log.retention.ms", "num.partitions"),
    _describe("topic: from the cluster", TOPIC, "configured", "retention.ms"),
    _alter("broker: delete", (BROKER, "1", [("log.cleaner.threads", DELETE, None)])),
    _alter("cluster: delete", (BROKER, "", [("log.retention.ms", DELETE, None)])),
    _describe("broker: after delete", BROKER, "1", "log.cleaner.threads", "log.retention.ms"),
    # --- DescribeConfigs
    _describe(
        "a topic",
        TOPIC,
        "configured",
        "segment.jitter.ms",
        "flush.messages",
        "compression.type",
        "follower.replication.throttled.replicas",
        "remote.storage.enable",
        "message.timestamp.type",
    ),
    _describe("without synonyms", TOPIC, "configured", "flush.messages", synonyms=False),
    _describe("unknown key", TOPIC, "configured", "no.such.config"),
    _describe("no topic", TOPIC, "nowhere"),
    _describe("bad topic name", TOPIC, "a b"),
    _describe("another broker", BROKER, "2"),
    _describe("no broker", BROKER, "one"),
    _describe("sensitive", BROKER, "1", "my.plugin.key"),
    # --- AlterConfigs
    _replace("replace", (TOPIC, "configured", [("retention.ms", "3000")])),
    _describe("replaced", TOPIC, "configured", "cleanup.policy", "retention.ms"),
    _replace("replace by bad", (TOPIC, "configured", [("retention.ms", "x")])),
    _replace("replace by null", (TOPIC, "configured", [("retention.ms", None)])),
    _replace("replace of no topic", (TOPIC, "nowhere", [("retention.ms", "1")])),
    _replace("replace twice", (TOPIC, "configured", [("retention.ms", "1"), ("retention.ms", "2")])),
    # --- DeleteTopics
    _delete("unknown name", {"name": "nowhere", "topic_id": None}),
    _delete("unknown id", {"name": None, "topic_id": UNKNOWN_ID}),
    _delete("neither name nor id", {"name": None, "topic_id": None}),
    _delete("name and id", {"name": "configured", "topic_id": UNKNOWN_ID}),
    _delete("a name twice", {"name": "configured", "topic_id": None}, {"name": "configured", "topic_id": None}),
    _delete("deleted", {"name": "configured", "topic_id": None}),
    _delete("deleted again", {"name": "configured", "topic_id": None}),
    *_GROUP_CASES,
    *_METRICS_CASES,
]


def run(bootstrap_servers: str, *, settle_s: float = 0) -> dict[str, list[list[Any]]]:
    """The answers of a fresh broker (node 1, defaults) to all cases, by their names.

    `settle_s` is how long a change of broker configs may take to show (Kafka's controller tells its brokers later).
    """
    answers: dict[str, list[list[Any]]] = {}
    with Wire(bootstrap_servers) as wire:
        for case in CASES:
            assert case.name not in answers, case.name
            answers[case.name] = case.answers(wire)
            if settle_s and ":" in case.name:
                time.sleep(settle_s)
    return answers
