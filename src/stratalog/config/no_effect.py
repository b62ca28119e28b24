"""Find settings of a topic that other settings of it make ineffective. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from stratalog.config.topic import TOPIC_KEYS, LogConfig
from stratalog.errors import InvalidConfigError

_OF_RETENTION: Final = ("retention.ms", "retention.bytes")
_OF_COMPACTION: Final = (
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
)
_OF_THE_TIER: Final = (
    "local.retention.bytes",
    "local.retention.ms",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
)
_OF_CREATE_TIMES: Final = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
_LEVELS: Final = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
#: A limit of this value is none.
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class IgnoredSetting:
    """`why` names the other setting. `is_surprising` where the topic is kept otherwise than the setting says."""

    key: str
    value: str
    why: str
    is_surprising: bool = False

    def __str__(self) -> str:
        return f"{self.key}={self.value} has no effect: {self.why}"


def ignored_settings(
    own: Mapping[str, str], config: LogConfig, *, is_ours_alone: bool, has_tier: bool | None
) -> Iterator[IgnoredSetting]:
    """Yield what is set on a topic itself (`own`) and has no effect; not what is set to Kafka's default.

    `config` has the values in force. `is_ours_alone` is for a stratalog broker without a cluster, `has_tier` for
    brokers with a remote tier; None where that is not known. Keys and values that are none are left out.
    """
    for name, text in sorted(own.items()):
        if name not in TOPIC_KEYS:
            continue
        key = TOPIC_KEYS[name]
        try:
            value = key.parse(text)
        except InvalidConfigError:
            continue
        if value == key.default:
            continue
        if key.no_effect and is_ours_alone:
            yield IgnoredSetting(name, text, key.no_effect, is_surprising=True)
        elif name == "remote.storage.enable" and has_tier is False:
            why = "the broker has remote.log.storage.system.enable=false, and nothing is copied to a remote tier"
            yield IgnoredSetting(name, text, why, is_surprising=True)
        elif beside := _beside_others(name, value, config):
            yield IgnoredSetting(name, text, beside)


def _beside_others(name: str, value: object, config: LogConfig) -> str | None:
    """Return why the other settings make a setting ineffective, or None."""
    policy = ",".join(sorted(config.cleanup_policy))
    if name in _OF_RETENTION and value != _NO_LIMIT and policy == "compact" and not config.remote_storage_enable:
        return "cleanup.policy=compact deletes nothing by age or size"
    if name in _OF_COMPACTION and not config.compacted:
        return f"cleanup.policy={policy} compacts nothing"
    if name in _OF_THE_TIER and not config.remote_storage_enable:
        return "remote.storage.enable is not true"
    if name in _OF_CREATE_TIMES and config.message_timestamp_type == "LogAppendTime":
        return "message.timestamp.type=LogAppendTime sets times itself"
    codec = _LEVELS.get(name)
    if codec is not None and codec != config.compression_type:
        return f"compression.type={config.compression_type} does not compress with {codec} here"
    return None
