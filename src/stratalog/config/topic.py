"""Topic configuration: the keys, and `LogConfig`, the typed values that the log works with.

Names, types, defaults and synonyms are Apache Kafka 4.4.0's (`TopicConfig`, `LogConfig`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stratalog.config.keys import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigRegistry,
    ConfigType,
    ListOf,
    at_least,
    between,
    between_or,
    invalid,
    one_of,
    throttled_replicas,
)
from stratalog.config.segment_size import SEGMENT_BYTES_MIN, check_segment_bytes
from stratalog.errors import InvalidConfigError

if TYPE_CHECKING:
    from stratalog.config.broker import BrokerConfig

#: The broker's key: what is looked at of the batches that clients send.
PRODUCE_VALIDATION = "stratalog.produce.validation"

#: `local.retention.*`: the same as the total retention.
LOCAL_RETENTION_SAME = -2

#: Bytes of one entry of a time index, and of an offset index in the large format: what an index is sized by (KIP-1333).
INDEX_ENTRY_BYTES = 12
#: No batch is smaller than its header, so index entries cannot lie closer, whatever index.interval.bytes says.
_BATCH_BYTES_MIN = 61

_NO_FOLLOWERS = "a broker by itself keeps one replica"

_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS


def _key(
    name: str,
    type_: ConfigType,
    default: Any,
    broker_key: str,
    doc: str,
    validator: Any = None,
    *,
    no_effect: str = "",
) -> ConfigKey:
    return ConfigKey(name, type_, default, doc, validator, dynamic=True, broker_key=broker_key, no_effect=no_effect)


TOPIC_KEYS = ConfigRegistry(
    [
        _key("cleanup.policy", ConfigType.LIST, ("delete",), "log.cleanup.policy",
             "How old segments are removed: delete by retention, compact by key, or both.",
             ListOf("compact", "delete")),
        _key("compression.type", ConfigType.STRING, "producer", "compression.type",
             "The codec of stored batches; 'producer' keeps what the producer chose.",
             one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        _key("compression.gzip.level", ConfigType.INT, -1, "compression.gzip.level",
             "Level for gzip; -1 is the codec's own default.", between_or(1, 9, -1)),
        _key("compression.lz4.level", ConfigType.INT, 9, "compression.lz4.level", "Level for lz4.", between(1, 17)),
        _key("compression.zstd.level", ConfigType.INT, 3, "compression.zstd.level",
             "Level for zstd.", between(-131072, 22)),
        _key("delete.retention.ms", ConfigType.LONG, _DAY_MS, "log.cleaner.delete.retention.ms",
             "How long tombstones are kept after compaction has reached them.", at_least(0)),
        _key("errors.deadletterqueue.group.enable", ConfigType.BOOLEAN, False, "",
             "Whether share groups may write records that they could not process to this topic (KIP-1191)."),
        _key("file.delete.delay.ms", ConfigType.LONG, 60_000, "log.segment.delete.delay.ms",
             "How long a deleted segment's files stay on disk under '.deleted'.", at_least(0)),
        _key("flush.messages", ConfigType.LONG, LONG_MAX, "log.flush.interval.messages",
             "Sync to disk after this many records.", at_least(1)),
        _key("flush.ms", ConfigType.LONG, LONG_MAX, "log.flush.interval.ms",
             "Sync to disk after this long.", at_least(0)),
        _key("follower.replication.throttled.replicas", ConfigType.LIST, (), "",
             "Replicas limited to follower.replication.throttled.rate while they are not in sync, as "
             "PARTITION:BROKER, or * for all.", throttled_replicas, no_effect=_NO_FOLLOWERS),
        _key("index.interval.bytes", ConfigType.INT, 4096, "log.index.interval.bytes",
             "Bytes of log between two index entries.", at_least(0)),
        _key("leader.replication.throttled.replicas", ConfigType.LIST, (), "",
             "Replicas limited to leader.replication.throttled.rate towards followers that are not in sync, as "
             "PARTITION:BROKER, or * for all.", throttled_replicas, no_effect=_NO_FOLLOWERS),
        _key("local.retention.bytes", ConfigType.LONG, LOCAL_RETENTION_SAME, "log.local.retention.bytes",
             "Local size limit of a tiered partition. -2 means retention.bytes.", at_least(-2)),
        _key("local.retention.ms", ConfigType.LONG, LOCAL_RETENTION_SAME, "log.local.retention.ms",
             "Local age limit of a tiered partition. -2 means retention.ms.", at_least(-2)),
        _key("max.compaction.lag.ms", ConfigType.LONG, LONG_MAX, "log.cleaner.max.compaction.lag.ms",
             "Longest time before a record is compacted.", at_least(1)),
        _key("max.message.bytes", ConfigType.INT, 1_048_588, "message.max.bytes",
             "The largest batch that is accepted, after compression.", at_least(0)),
        _key("max.decompressed.message.bytes", ConfigType.INT, INT_MAX - 8, "max.decompressed.message.bytes",
             "The most bytes that the records of a compressed batch may take.", between(1, INT_MAX - 8),
             no_effect="they may take 64 MiB or 256 times the batch's size"),
        _key("message.timestamp.after.max.ms", ConfigType.LONG, _HOUR_MS, "log.message.timestamp.after.max.ms",
             "How far a record's CreateTime may lie in the future.", at_least(0)),
        _key("message.timestamp.before.max.ms", ConfigType.LONG, LONG_MAX, "log.message.timestamp.before.max.ms",
             "How far a record's CreateTime may lie in the past.", at_least(0)),
        _key("message.timestamp.type", ConfigType.STRING, "CreateTime", "log.message.timestamp.type",
             "Whether records keep the producer's timestamp or get the time of the append.",
             one_of("CreateTime", "LogAppendTime")),
        _key("min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio",
             "Share of the log that must be dirty before it is compacted.", between(0, 1)),
        _key("min.compaction.lag.ms", ConfigType.LONG, 0, "log.cleaner.min.compaction.lag.ms",
             "Shortest time before a record may be compacted.", at_least(0)),
        _key("min.insync.replicas", ConfigType.INT, 1, "min.insync.replicas",
             "Replicas that must have a batch before acks=all is answered.", at_least(1)),
        _key("preallocate", ConfigType.BOOLEAN, False, "log.preallocate",
             "Whether a new segment's file gets its full size at once."),
        _key("remote.copy.lag.bytes", ConfigType.LONG, -1, "log.remote.copy.lag.bytes",
             "Bytes of log after a sealed segment before it is copied. 0 means at once, -1 the local retention.",
             at_least(-1)),
        _key("remote.copy.lag.ms", ConfigType.LONG, 0, "log.remote.copy.lag.ms",
             "Age of a sealed segment before it is copied. 0 means at once, -1 the local retention.", at_least(-1)),
        _key("remote.log.copy.disable", ConfigType.BOOLEAN, False, "",
             "Stop copying to the remote tier. Remote records stay readable."),
        _key("remote.log.delete.on.disable", ConfigType.BOOLEAN, False, "",
             "Delete the remote data when remote.storage.enable is switched off."),
        _key("remote.storage.enable", ConfigType.BOOLEAN, False, "", "Keep sealed segments in the object store."),
        _key("retention.bytes", ConfigType.LONG, -1, "log.retention.bytes",
             "Size limit of a partition. A value below 0 means no limit."),
        _key("retention.ms", ConfigType.LONG, 7 * _DAY_MS, "log.retention.ms",
             "Age limit of a record. -1 means no limit.", at_least(-1)),
        _key("segment.bytes", ConfigType.LONG, 1024**3, "log.segment.bytes",
             "Size at which a segment is rolled. At most 2147483647 until metadata.version 32 (4.4-IV1) is finalized.",
             at_least(SEGMENT_BYTES_MIN)),
        _key("segment.index.bytes", ConfigType.INT, 10 * 1024**2, "log.index.size.max.bytes",
             "Size of an offset or time index at which its segment is rolled.", at_least(4)),
        _key("segment.jitter.ms", ConfigType.LONG, 0, "log.roll.jitter.ms",
             "Random time that is subtracted from segment.ms, so that segments do not all roll at the same time.",
             at_least(0)),
        _key("segment.ms", ConfigType.LONG, 7 * _DAY_MS, "log.roll.ms",
             "Age at which a segment is rolled.", at_least(1)),
        _key("unclean.leader.election.enable", ConfigType.BOOLEAN, False, "unclean.leader.election.enable",
             "Whether a replica that lags may become leader.", no_effect=_NO_FOLLOWERS),
        _key("internal.segment.bytes", ConfigType.INT, None, "internal.log.segment.bytes",
             "For tests: like segment.bytes, without its minimum.", at_least(1)),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Typed topic configuration; sizes in bytes, times in milliseconds, -1 means unlimited where it is allowed."""

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    local_retention_ms: int = LOCAL_RETENTION_SAME
    local_retention_bytes: int = LOCAL_RETENTION_SAME
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policy: frozenset[str] = field(default=frozenset({"delete"}))
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    preallocate: bool = False
    unclean_leader_election_enable: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_copy_lag_ms: int = 0
    remote_copy_lag_bytes: int = -1
    #: Not a topic key: whether new offset indexes get 12-byte entries (KIP-1333, by metadata.version).
    use_large_index_format: bool = False
    #: Not a topic key: whether every record of a client is looked at (`stratalog.produce.validation` of the broker).
    validate_records: bool = True

    @property
    def effective_local_retention_ms(self) -> int:
        """Age limit of the local copy: `local.retention.ms`, or the total one when that is -2."""
        return self.retention_ms if self.local_retention_ms == LOCAL_RETENTION_SAME else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """Size limit of the local copy: `local.retention.bytes`, or the total one when that is -2."""
        if self.local_retention_bytes == LOCAL_RETENTION_SAME:
            return self.retention_bytes
        return self.local_retention_bytes

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str | None],
        broker: BrokerConfig | None = None,
        *,
        use_large_index_format: bool = False,
    ) -> LogConfig:
        """Return the values of a topic: its own properties over the broker's over Kafka's defaults.

        Topics with the same properties share one object. Raises InvalidConfigError that names key, value and what is
        allowed.
        """
        defaults = () if broker is None else broker.topic_default_items
        return _from_properties(tuple(properties.items()), defaults, validates_records(broker), use_large_index_format)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], use_large_index_format: bool) -> LogConfig:
        """Typed values by topic key, over Kafka's defaults; not checked against each other."""
        values = {**{key.name: key.default for key in TOPIC_KEYS}, **values}
        typed = {field: value for name, value in values.items() if (field := name.replace(".", "_")) in _FIELDS}
        typed["cleanup_policy"] = frozenset(values["cleanup.policy"])
        if values["internal.segment.bytes"] is not None:
            typed["segment_bytes"] = values["internal.segment.bytes"]
        return cls(**typed, use_large_index_format=use_large_index_format)


@lru_cache(maxsize=1024)
def _from_properties(
    properties: tuple[tuple[str, str | None], ...],
    defaults: tuple[tuple[str, Any], ...],
    validate_records: bool,
    use_large_index_format: bool,
) -> LogConfig:
    values = {**dict(defaults), **TOPIC_KEYS.parse(dict(properties))}
    config = replace(LogConfig.from_values(values, use_large_index_format), validate_records=validate_records)
    _check(config)
    return config


def validates_records(broker: BrokerConfig | None) -> bool:
    """Return whether a broker looks at every record that clients send."""
    return broker is None or broker[PRODUCE_VALIDATION] == "records"


_FIELDS = frozenset(LogConfig.__dataclass_fields__)


def changed_properties(config: LogConfig) -> dict[str, str]:
    """Return the values of `config` that are not Kafka's defaults.

    By Kafka's names and as text: `from_properties` takes them.
    """
    default = LogConfig()
    found = {}
    for key in TOPIC_KEYS:
        name = key.name.replace(".", "_")
        value = getattr(config, name, None)
        if value is not None and value != getattr(default, name):
            found[key.name] = _text(value)
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def index_size_needed(config: LogConfig) -> int:
    """Bytes that an index of a full segment may take.

    `segment.index.bytes` below it rolls segments before `segment.bytes`.

    One entry for every `index.interval.bytes` of the segment, in entries of 12 bytes. Source: KIP-1333, "Index size
    guidance" (8 GiB at 4096 bytes: 24 MiB).
    """
    interval_bytes = max(config.index_interval_bytes, _BATCH_BYTES_MIN)
    return -(-config.segment_bytes // interval_bytes) * INDEX_ENTRY_BYTES


def _check(config: LogConfig) -> None:
    """Rules between keys, as `LogConfig.validate` has them."""
    check_segment_bytes("segment.bytes", config.segment_bytes, large=config.use_large_index_format)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        _check_tiered(config)


def _check_tiered(config: LogConfig) -> None:
    if config.compacted:
        raise InvalidConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    for name, local, total in (
        ("local.retention.ms", config.local_retention_ms, config.retention_ms),
        ("local.retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        total_name = name.removeprefix("local.")
        if local == LOCAL_RETENTION_SAME or total == -1:
            continue
        if local == -1:
            raise invalid(name, local, f"Value must not be -1 as {total_name} value is set as {total}.")
        if local > total:
            raise invalid(name, local, f"Value must not be more than {total_name} property value: {total}")
    _check_copy_lag("ms", config.remote_copy_lag_ms, config.effective_local_retention_ms)
    _check_copy_lag("bytes", config.remote_copy_lag_bytes, config.effective_local_retention_bytes)
    if config.remote_log_copy_disable:
        _check_read_only(config)


def _check_copy_lag(unit: str, lag: int, local_retention: int) -> None:
    if lag > local_retention >= 0 and lag > 0:
        raise invalid(
            f"remote.copy.lag.{unit}",
            lag,
            f"Value must not exceed local.retention.{unit} (effective value: {local_retention})",
        )


def _check_read_only(config: LogConfig) -> None:
    """Check that a topic with copying disabled has equal local and remote retention."""
    for unit, local, total in (
        ("bytes", config.local_retention_bytes, config.retention_bytes),
        ("ms", config.local_retention_ms, config.retention_ms),
    ):
        if local not in (LOCAL_RETENTION_SAME, total):
            raise InvalidConfigError(
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` "
                "must be set to the identical value because there will be no more logs copied to the remote storage."
            )
