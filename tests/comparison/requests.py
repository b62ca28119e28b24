"""Requests made by seed: every API and version that both brokers have, with plausible fields and with wrong ones.

A request is made by walking the fields of its message, so an API that is added is asked without a line here. Values
come from pools: by API and field, by the type of the field, or by its name. What each broker chose by itself (topic
ids, producer ids, members, sessions) is a `Ref`, which `tests.comparison.broker_view` resolves for each of them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from kio.static.primitive import uvarlong

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import request_class
from tests.broker.record_cases import NOW, RECORDS, UNKNOWN_ID

#: How often a value comes from the pool of wrong ones.
WRONG = 0.06
LONG = "x" * 300
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
#: No broker gets as far.
UNKNOWN_PRODUCER_ID = 10**12
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

#: What is left out, and why.
LEFT_OUT: dict[ApiKey, str] = {}
#: How often an API is asked, when not once.
WEIGHTS = {
    ApiKey.PRODUCE: 4,
    ApiKey.FETCH: 4,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 0.5,
    ApiKey.DELETE_RECORDS: 0.5,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 2,
}


@dataclass(frozen=True)
class Ref:
    """What a broker chose by itself: `kind` is "topic id", "producer id", "producer epoch", "member", "generation" or
    "session"; `name` is of what."""

    kind: str
    name: str


@dataclass(frozen=True)
class RecordsOf:
    """A batch of a producer, with its id and epoch."""

    producer: str
    sequence: int
    is_transactional: bool


@dataclass(frozen=True)
class Request:
    """One request; `fields` may hold `Ref` and `RecordsOf`."""

    key: ApiKey
    version: int
    fields: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.key.message} v{self.version} {self.fields}"


@dataclass(frozen=True)
class TopicSpec:
    """A topic that a round begins with."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class Names:
    """The names of one round; no other round uses them."""

    def __init__(self, number: int) -> None:
        self.prefix = prefix = f"r{number}-"
        self.topics = [
            TopicSpec(prefix + "plain", 2, {}),
            TopicSpec(prefix + "compacted", 1, {"cleanup.policy": "compact"}),
            TopicSpec(prefix + "small", 2, {"max.message.bytes": "200"}),
            TopicSpec(prefix + "stamped", 1, {"message.timestamp.type": "LogAppendTime"}),
        ]
        self.existing = [topic.name for topic in self.topics]
        self.new = [prefix + name for name in ("new", "new.2", "new_2", "other")]
        self.groups = [f"{prefix}group-{n}" for n in range(6)]
        #: No other API names them: Kafka cannot delete a share group whose offsets were altered in vain.
        self.share_groups = [f"{prefix}shares-{n}" for n in range(3)]
        self.transactional_ids = [f"{prefix}txn-{n}" for n in range(3)]
        self.producers = [*self.transactional_ids, prefix + "idempotent"]


@dataclass(frozen=True)
class Pool:
    """Values that a client would send, and values that none should."""

    good: Sequence[Any]
    wrong: Sequence[Any] = ()

    def pick(self, random: Random) -> Any:
        if self.wrong and random.random() < WRONG:
            return random.choice(self.wrong)
        return random.choice(self.good)


_TIMEOUT = Pool([10_000])
_EPOCH = Pool([-1, -1, -1, 0], [1, 5, -2, INT32_MAX])
_PARTITION = Pool([0, 0, 0, 1], [2, 7, -1, INT32_MAX])
_BOOL = Pool([False, True])
_TOPIC_CONFIGS: dict[str, Pool] = {
    "retention.ms": Pool(["-1", "600000000000", "100000000000"], ["soon", "-2", "", None]),
    "max.message.bytes": Pool(["200", "1048588", "100000"], ["-1", "99999999999", "1.5", None]),
    "cleanup.policy": Pool(["delete", "compact", "compact,delete"], ["shred", "", "delete,shred", None]),
    "compression.type": Pool(["producer", "gzip", "zstd", "uncompressed"], ["rar", "", "GZIP"]),
    "min.insync.replicas": Pool(["1", "2"], ["0", "one"]),
    "message.timestamp.type": Pool(["CreateTime", "LogAppendTime"], ["Whenever"]),
    "min.cleanable.dirty.ratio": Pool(["0.5", "1", "0"], ["1.5", "-0.1", "half"]),
    "preallocate": Pool(["false", "TRUE", " true "], ["maybe", ""]),
    "flush.messages": Pool(["1", "100", "9223372036854775807"], ["0", "9223372036854775808"]),
    "delete.retention.ms": Pool(["86400000", "0"], ["-1", None]),
    "leader.replication.throttled.replicas": Pool(["*", "0:1", "0:1,1:1", ""], ["zero", "0", "0:1:2"]),
    "compression.gzip.level": Pool(["1", "9", "-1"], ["0", "10"]),
    "no.such.key": Pool(["1"], [None, ""]),
    "": Pool(["1"]),
}
_BROKER_CONFIGS: dict[str, Pool] = {
    "message.max.bytes": Pool(["1048588", "1000000"], ["-1", "large", None]),
    "log.cleaner.threads": Pool(["1", "2"], ["0", "-1", "many"]),
    "num.io.threads": Pool(["8", "8", "9"], ["0", "1000", "x"]),
    "log.cleaner.backoff.ms": Pool(["15000", "15001"], ["-1"]),
    "node.id": Pool(["1"], ["2"]),
    "log.roll.hours": Pool(["100"]),
    "no.such.key": Pool(["1"]),
    "background.threads": Pool(["10"], ["0"]),
}
_GROUP_CONFIGS: dict[str, Pool] = {
    "consumer.session.timeout.ms": Pool(["45000", "50000"], ["1", "999999999", "x"]),
    "consumer.heartbeat.interval.ms": Pool(["5000", "6000"], ["1", "999999999", "x"]),
    "share.record.lock.duration.ms": Pool(["30000"], ["1"]),
    "streams.num.standby.replicas": Pool(["0", "1"], ["-1", "10"]),
    "no.such.key": Pool(["1"]),
}
_LOGGER_CONFIGS: dict[str, Pool] = {
    "no.such.logger": Pool(["INFO", "DEBUG"], ["LOUD"]),
    "root": Pool(["INFO", "WARN"], ["LOUD", "", "info"]),
}
_CLIENT_METRICS_CONFIGS: dict[str, Pool] = {
    "metrics": Pool(["", "org.apache.kafka.producer.", "*"], [None]),
    "interval.ms": Pool(["100", "30000", "3600000"], ["99", "3600001", "x", "-1"]),
    "match": Pool(["client_id=a.*", "client_software_name=x,client_id=b"], ["nonsense", "client_id=[", "what=.*"]),
    "no.such.key": Pool(["1"]),
}
CONFIGS = {
    TOPIC: _TOPIC_CONFIGS,
    BROKER: _BROKER_CONFIGS,
    BROKER_LOGGER: _LOGGER_CONFIGS,
    CLIENT_METRICS: _CLIENT_METRICS_CONFIGS,
    GROUP: _GROUP_CONFIGS,
}

#: By API and field.
_BY_API: dict[tuple[ApiKey, str], Pool] = {
    (ApiKey.PRODUCE, "acks"): Pool([-1, 1], [2, -2]),
    (ApiKey.FETCH, "max_wait"): Pool([0]),
    (ApiKey.FETCH, "session_epoch"): Pool([-1, -1, -1, 0, 1, 2], [-2, 99, INT32_MAX]),
    (ApiKey.FETCH, "cluster_id"): Pool([None], ["other"]),
    (ApiKey.FETCH, "replica_directory_id"): Pool([None]),
    (ApiKey.LIST_OFFSETS, "timestamp"): Pool([-1, -2, -3, -4, -5, NOW - 1, NOW, NOW + 1, NOW + 10], [-6, -7, -99, 0]),
    (ApiKey.FIND_COORDINATOR, "key_type"): Pool([0, 1], [2, 3, -1]),
    (ApiKey.CREATE_TOPICS, "num_partitions"): Pool([1, 1, 2, -1], [0, -2, 10_001, INT32_MAX]),
    (ApiKey.CREATE_TOPICS, "replication_factor"): Pool([1, 1, -1], [0, 2, -2, 32767]),
    # 10,000 more are allowed, and keep Kafka busy for minutes
    (ApiKey.CREATE_PARTITIONS, "count"): Pool([2, 3, 4], [0, -1, 1, 20_002]),
    (ApiKey.INIT_PRODUCER_ID, "transaction_timeout"): Pool([600_000], [0, -1, INT32_MAX, 900_001]),
    (ApiKey.JOIN_GROUP, "session_timeout"): Pool([1_800_000], [1, -1, 0, INT32_MAX]),
    (ApiKey.JOIN_GROUP, "rebalance_timeout"): Pool([1_800_000]),
    (ApiKey.JOIN_GROUP, "name"): Pool(["range", "range", "roundrobin"], [LONG]),
    (ApiKey.JOIN_GROUP, "group_instance_id"): Pool([None]),
    (ApiKey.ELECT_LEADERS, "election_type"): Pool([0, 1], [2, -1]),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "config_operation"): Pool([0, 0, 0, 1, 2, 3], [4, -1, 127]),
    (ApiKey.UNREGISTER_BROKER, "broker_id"): Pool([77, 0], [-1, INT32_MAX]),
    (ApiKey.UPDATE_FEATURES, "validate_only"): Pool([True]),
    (ApiKey.UPDATE_FEATURES, "feature"): Pool(["no.such.feature"], ["", LONG]),
    (ApiKey.DESCRIBE_CLUSTER, "endpoint_type"): Pool([1], [2, 0, 3, -1]),
    (ApiKey.LIST_CONFIG_RESOURCES, "resource_types"): Pool([2, 16, 32], [4, 8, 0, -1, 99]),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "response_partition_limit"): Pool([2000, 1, 2], [0, -1]),
    (ApiKey.LIST_TRANSACTIONS, "duration_filter"): Pool([-1], [0, -2, INT64_MAX]),
    (ApiKey.DESCRIBE_QUORUM, "topic_name"): Pool(["__cluster_metadata"], ["no-such-topic", ""]),
    (ApiKey.DESCRIBE_QUORUM, "partition_index"): Pool([0], [1, -1]),
    (ApiKey.WRITE_TXN_MARKERS, "coordinator_epoch"): Pool([0], [5]),
    (ApiKey.WRITE_TXN_MARKERS, "transaction_version"): Pool([0, 1, 2], [-1, 3]),
    (ApiKey.API_VERSIONS, "client_software_name"): Pool(["comparison"], ["", "a b", LONG, "-x"]),
    (ApiKey.API_VERSIONS, "client_software_version"): Pool(["1.0"], ["", "a b", LONG, "-x"]),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "path"): Pool(["/no/such/directory", "relative"], [""]),
    # of others, Kafka does not answer, or only for groups that it does not know
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "partitions"): Pool([0]),
    (ApiKey.PUSH_TELEMETRY, "client_instance_id"): Pool([UNKNOWN_ID, None]),
    (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "client_instance_id"): Pool([UNKNOWN_ID, None]),
}
#: By the name of the field.
_BY_FIELD: dict[str, Pool] = {
    "timeout": _TIMEOUT,
    "min_bytes": Pool([0, 1]),
    "max_bytes": Pool([10_000_000, 300, 0], [-1]),
    "partition_max_bytes": Pool([300, 1_000_000, 0, 70], [-1]),
    "isolation_level": Pool([0, 1], [2, -1]),
    "current_leader_epoch": _EPOCH,
    "last_fetched_epoch": _EPOCH,
    "leader_epoch": Pool([0, 0, -1], [1, 5, -2]),
    "replica_epoch": Pool([-1], [0, 5]),
    "log_start_offset": Pool([-1, 0]),
    "high_watermark": Pool([INT64_MAX]),
    "fetch_offset": Pool([0, 0, 1, 2, 3], [-1, 10_000, INT64_MAX, -INT64_MAX]),
    "offset": Pool([0, 1, -1], [-2, 10_000, INT64_MAX]),
    "committed_offset": Pool([0, 1, 2, 100], [-1, -2, INT64_MAX]),
    "committed_leader_epoch": Pool([-1, 0, 1], [-2]),
    "committed_metadata": Pool(["", "text", None], ["m" * 4096, "m" * 4097]),
    "commit_timestamp": Pool([-1, NOW]),
    "retention_time": Pool([-1]),
    "partition_index": _PARTITION,
    "partition": _PARTITION,
    "partitions": _PARTITION,
    "partition_indexes": _PARTITION,
    "index": _PARTITION,
    "rack_id": Pool(["", "rack"]),
    "protocol_type": Pool(["consumer"], ["", "connect", None]),
    "protocol_name": Pool(["range"], ["roundrobin", "", None]),
    "metadata": Pool([b"", b"\0\1\0\0\0\0\0\0\0\0", b"text"]),
    "assignment": Pool([b"", b"text"]),
    "group_instance_id": Pool([None], ["static"]),
    "reason": Pool([None, "why not"]),
    "configuration_keys": Pool(["retention.ms", "cleanup.policy", "segment.ms"], ["no.such.key", ""]),
    "resource_types": Pool([2, 4, 8, 16, 32], [0, -1]),
    "states_filter": Pool(["Stable", "Empty", "stable", "Dead"], ["", "Happy"]),
    "types_filter": Pool(["classic", "consumer", "Classic"], ["", "tribe"]),
    "state_filters": Pool(["Ongoing", "Empty", "CompleteCommit"], ["", "Happy", "ongoing"]),
    "max_version_level": Pool([0, 1, 7], [-1]),
    "upgrade_type": Pool([1, 2, 3], [0, 4, -1]),
    "transactional_id_pattern": Pool([None, "", ".*txn-1", "r.*"], ["[", "no-such"]),
}
#: Flags that a request sets only sometimes, though both values are good.
_RARE = {"validate_only", "verify_only", "include_documentation", "allow_auto_topic_creation"}
#: Arrays that are as often null as not.
_NULL = 0.2
#: An id that no topic has stands for one that is null too.
_ZERO_ID = UUID(int=0)


def make_requests(
    random: Random, names: Names, versions: Mapping[ApiKey, tuple[int, int]], count: int
) -> Iterator[Request]:
    """Yield the requests of a round. `versions`: the first and last version of each API that both brokers have."""
    maker = _Maker(random, names)
    keys = sorted(versions)
    weights = [WEIGHTS.get(key, 1.0) for key in keys]
    for key in random.choices(keys, weights, k=count):
        yield maker.request(key, random.randint(*versions[key]))


class _Maker:
    """Makes requests; remembers which groups were joined, so that no join has to wait for another member."""

    def __init__(self, random: Random, names: Names) -> None:
        self._random = random
        self._names = names
        self._joined: set[str] = set()
        self._sequences: dict[str, int] = {}
        self._resource_type = TOPIC

    def request(self, key: ApiKey, version: int) -> Request:
        fields = self._message(key, request_class(key, version))
        if key is ApiKey.JOIN_GROUP:
            self._settle_join(fields)
        elif key is ApiKey.WRITE_TXN_MARKERS:
            for marker in fields["markers"]:
                self._settle_marker(marker)
        elif "session_id" in fields and fields["session_epoch"] in (0, -1):
            fields["session_id"] = 0
        elif key is ApiKey.METADATA and version == 0 and fields["topics"] is None:
            fields["topics"] = ()
        return Request(key, version, fields)

    def _settle_marker(self, marker: dict[str, Any]) -> None:
        """Give a transaction's partition no later coordinator, and no later epoch of its producer.

        Kafka's own markers are refused there then (errors 52 and 47), it sends no more, and the transaction never ends.
        """
        producer = marker["producer_id"]
        if isinstance(producer, Ref) and producer.name in self._names.transactional_ids:
            marker["coordinator_epoch"] = 0
            if marker["producer_epoch"] not in (-1, 0):
                marker["producer_epoch"] = Ref("producer epoch", producer.name)

    def _settle_join(self, fields: dict[str, Any]) -> None:
        group = fields["group_id"]
        if group in self._joined:
            fields["member_id"] = self._member(group)
        else:
            self._joined.add(group)
            fields["member_id"] = ""

    def _message(self, key: ApiKey, cls: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            fields[field.name] = self._field(key, field, fields)
        return fields

    def _field(self, key: ApiKey, field: Any, before: dict[str, Any]) -> Any:
        kind = _kind(field.type)
        if not kind.is_array:
            if kind.message is not None:
                if kind.is_nullable and self._random.random() < 0.7:
                    return None
                return self._message(key, kind.message)
            return self._value(key, field.name, kind, before)
        if kind.is_nullable and self._random.random() < _NULL and field.name not in _never_null(key, before):
            return None
        count = self._random.choices((0, 1, 2, 3), (3, 70, 20, 7))[0]
        if key in _NEVER_TWICE:
            count = min(count, 1)
        if field.name == "transactions":  # none: Kafka never answers; one twice: it takes the first for both
            count = 1
        if key is ApiKey.PRODUCE and self._random.random() < 0.9:
            count = 1
        items = [
            self._message(key, kind.message) if kind.message is not None else self._value(key, field.name, kind, before)
            for _ in range(count)
        ]
        if items and field.name != "transactions" and key not in _NEVER_TWICE and self._random.random() < 0.04:
            items.append(items[0])
        return tuple(items)

    def _value(self, key: ApiKey, name: str, kind: _Kind, before: dict[str, Any]) -> Any:
        special = self._special(key, name, kind, before)
        if special is not None:
            return special.pick(self._random)
        pool = _BY_API.get((key, name)) or _BY_FIELD.get(name)
        if pool is not None:
            value = pool.pick(self._random)
            return "" if value is None and kind.leaf is str and not kind.is_nullable else value
        if kind.leaf is bool:
            return self._random.random() < (0.2 if name in _RARE else 0.5)
        if issubclass(kind.leaf, timedelta):  # of milliseconds
            return self._random.choice((0, 1_000, -1))
        if issubclass(kind.leaf, int):
            return self._random.choice((0, 1) if issubclass(kind.leaf, uvarlong) else (0, 1, -1))
        if issubclass(kind.leaf, bytes):
            return self._random.choice((b"", b"text", b"x" * 40))
        if issubclass(kind.leaf, float):
            return self._random.choice((1e9, 2.5e9, 0.0, -1.0))
        if issubclass(kind.leaf, UUID):
            return self._random.choice((UNKNOWN_ID, _ZERO_ID))
        if issubclass(kind.leaf, str):
            return self._random.choice(("", "text", LONG))
        raise NotImplementedError(f"{key.message}: {name} of {kind.leaf}")

    def _special(self, key: ApiKey, name: str, kind: _Kind, before: dict[str, Any]) -> Pool | None:
        """The pool of what depends on the round, or on fields before."""
        names = self._names
        type_name = getattr(kind.leaf, "__name__", "")
        topics = names.existing
        match type_name, name:
            case "TopicName", _ if (key, name) not in _BY_API:
                new = names.new if key in _MAKES_TOPICS else []
                wrong = [names.prefix + "unknown", "", ".", "a b", "x" * 249, "x" * 250, "caf\u00e9"]
                if name == "name" and "topic_id" in before and key is not ApiKey.PRODUCE:
                    return Pool([*topics, None] if before["topic_id"] == _ZERO_ID else [None], wrong)
                return Pool([*topics, *new, *new] if key is not ApiKey.CREATE_TOPICS else [*topics[:1], *new], wrong)
            case "UUID", "topic_id":
                refs: list[Any] = [Ref("topic id", topic) for topic in (*topics, names.new[0])]
                if key in (ApiKey.METADATA, ApiKey.DELETE_TOPICS):
                    refs.extend([_ZERO_ID] * len(refs))
                return Pool(refs, [UNKNOWN_ID] if key is ApiKey.FETCH else [UNKNOWN_ID, _ZERO_ID])
            case "GroupId", _ if key in _SHARE_OFFSETS:
                return Pool(names.share_groups, [names.prefix + "no-such-group", "", names.groups[0]])
            case "GroupId", _:
                return Pool(names.groups, [names.prefix + "no-such-group", "", names.prefix + LONG])
            case "TransactionalId", _:
                wrong = ["", names.prefix + LONG, names.prefix + "no-such-txn"]
                good: list[Any] = list(names.transactional_ids)
                if kind.is_nullable:
                    good += [None] * (8 if key is ApiKey.PRODUCE else 2)
                return Pool(good, wrong)
            case "ProducerId", _:
                owner = self._owner(before)
                return Pool(
                    [-1] * (key is ApiKey.INIT_PRODUCER_ID) * 2 + [Ref("producer id", owner)],
                    [-1, UNKNOWN_PRODUCER_ID + 1, -5],
                )
            case "Records", _:
                return self._records(before)
            case "BrokerId", "replica_id":
                return Pool([-1], [7])
            case "BrokerId", _ if (key, name) not in _BY_API:
                return Pool([1], [7, -1, 0])
            case _, "producer_epoch":
                owner = self._owner(before)
                return Pool(
                    [-1] * (key is ApiKey.INIT_PRODUCER_ID) * 2 + [Ref("producer epoch", owner)], [-1, 0, 5, 32767]
                )
            case _, "member_id":
                return Pool([self._member(before.get("group_id", names.groups[0]))], ["", "no-such-member"])
            case _, "generation_id" | "generation_id_or_member_epoch":
                group = before.get("group_id", names.groups[0])
                return Pool([Ref("generation", group), Ref("generation", group), -1], [99, -2])
            case _, "member_epoch":
                return Pool([-1], [0, 5])
            case _, "session_id":
                return Pool([0, Ref("session", "")], [12_345, -1])
            case _, "coordinator_keys" | "key":
                return Pool([*names.groups, *names.transactional_ids], ["", LONG])
            case _, "resource_type":
                self._resource_type = self._random.choices(
                    (TOPIC, BROKER, CLIENT_METRICS, GROUP, 99), (8, 3, 0, 0, 0.5)
                )[0]
                return Pool([self._resource_type])
            case _, "resource_name":
                return self._resource_names()
            case _, "configuration_keys":
                return Pool([*CONFIGS.get(self._resource_type, _TOPIC_CONFIGS), "segment.ms"])
            case _, "name" if key in _CONFIG_APIS:
                kind_ = TOPIC if key is ApiKey.CREATE_TOPICS else self._resource_type
                return Pool(list(CONFIGS.get(kind_, _TOPIC_CONFIGS)))
            case _, "value" if key in _CONFIG_APIS:
                kind_ = TOPIC if key is ApiKey.CREATE_TOPICS else self._resource_type
                return CONFIGS.get(kind_, _TOPIC_CONFIGS)[before["name"]]
        return None

    def _resource_names(self) -> Pool:
        names = self._names
        match self._resource_type:
            case 4:
                return Pool(["1", ""], ["2", "one", "-1"])
            case 8:
                return Pool(["1"], ["", "2", "one"])
            case 16:
                return Pool([names.prefix + "metrics"], ["", LONG])
            case 32:
                return Pool(names.groups, ["", LONG])
            case _:
                return Pool(names.existing, [names.prefix + "unknown", "", "a b", "x" * 250])

    def _owner(self, before: dict[str, Any]) -> str:
        """Of whom a producer id is."""
        owner = before.get("transactional_id")
        return owner if owner in self._names.producers else self._random.choice(self._names.producers)

    def _member(self, group: str) -> Ref:
        return Ref("member", group)

    def _records(self, before: dict[str, Any]) -> Pool:
        if self._random.random() < 0.25:
            producer = self._random.choice(self._names.producers)
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + (self._random.random() < 0.7)
            is_transactional = producer != self._names.producers[-1]
            return Pool(
                [RecordsOf(producer, sequence, is_transactional)], [RecordsOf(producer, 7, not is_transactional)]
            )
        wrong = [RECORDS[name] for name in sorted(RECORDS) if name not in _UNSTEADY]
        return Pool([RECORDS["one"], RECORDS["three"], RECORDS["codec gzip"], RECORDS["codec zstd"]], [*wrong, None])


_SHARE_OFFSETS = {
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}
_MAKES_TOPICS = {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.METADATA}
_CONFIG_APIS = {ApiKey.CREATE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
#: Where Kafka 4.4.0 never answers a request that names something twice.
_NEVER_TWICE = {ApiKey.ALTER_CONFIGS, ApiKey.WRITE_TXN_MARKERS, ApiKey.JOIN_GROUP, *_SHARE_OFFSETS}
#: Batches that are large, or whose time is taken from the clock.
_UNSTEADY = {"large", "in the future"}


def _never_null(key: ApiKey, before: dict[str, Any]) -> set[str]:
    """Arrays for which null means too much."""
    return set()


@dataclass(frozen=True)
class _Kind:
    leaf: type[Any]
    message: Any
    is_array: bool
    is_nullable: bool


@cache
def _kind(type_: Any) -> _Kind:
    leaves = _leaves(type_)
    message = next((leaf for leaf in leaves if dataclasses.is_dataclass(leaf)), None)
    leaf = next(leaf for leaf in leaves if leaf is not type(None) and leaf is not Ellipsis)
    return _Kind(leaf, message, _is_array(type_), type(None) in leaves)


def _is_array(type_: Any) -> bool:
    return typing.get_origin(type_) is tuple or any(_is_array(argument) for argument in typing.get_args(type_))


def _leaves(type_: Any) -> list[Any]:
    arguments = typing.get_args(type_)
    return [leaf for argument in arguments for leaf in _leaves(argument)] if arguments else [type_]
