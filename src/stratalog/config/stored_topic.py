"""The effective configuration of a stored topic at startup, when the settings around it may have changed.

What is set on a topic was checked when it was set. Later the broker's file, a newer version's rules or a damaged store
may speak against it; that must not keep a broker from starting. In order:

1. the topic's own values over the broker's, as always;
2. the topic's own values over the broker's values that last suited every topic: the topic's last good configuration;
3. what can be kept of the topic's own values, with nothing in conflict and nothing deleted or compacted because of it.

For 2 and 3 there is a sentence that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stratalog.config.broker import BrokerConfig
from stratalog.config.keys import LONG_MAX
from stratalog.config.segment_size import segment_bytes_max
from stratalog.config.topic import LOCAL_RETENTION_SAME, TOPIC_KEYS, LogConfig, validates_records
from stratalog.errors import InvalidConfigError


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The configuration in force for a topic, and its conflict with the stored one; None if there is none."""

    config: LogConfig
    problem: str | None = None


def topic_default_properties(broker: BrokerConfig) -> dict[str, str]:
    """Return the broker's values for topics, by broker key and as text: `BrokerConfig` takes them back."""
    values = broker.topic_defaults()
    texts = {key.broker_key: key.render(values[key.name]) for key in TOPIC_KEYS if key.broker_key}
    return {name: text for name, text in texts.items() if text is not None}


def stored_config(
    properties: Mapping[str, str],
    broker: BrokerConfig,
    last_good: Mapping[str, str],
    *,
    use_large_index_format: bool,
) -> StoredConfig:
    """Return the configuration for a topic with these properties; see the module. Raises nothing.

    `last_good` are `topic_default_properties` that suited every topic, or nothing.
    """
    large = use_large_index_format
    try:
        return StoredConfig(LogConfig.from_properties(properties, broker, use_large_index_format=large))
    except InvalidConfigError as error:
        problem = str(error)
    config = _last_good(properties, last_good, large)
    if config is not None:
        return StoredConfig(config, f"{problem}; it keeps the configuration that it had")
    return StoredConfig(
        _cautious(properties, broker, large),
        f"{problem}; what is in conflict does not count, and nothing is deleted or compacted because of it",
    )


def conflict_warning(topic: str, problem: str) -> str:
    """Return what to log of a topic with this `StoredConfig.problem`."""
    return (
        f"Topic {topic} is served, but its configuration is in conflict: {problem}. "
        "Change the topic's configuration or the broker's"
    )


def _last_good(properties: Mapping[str, str], last_good: Mapping[str, str], large: bool) -> LogConfig | None:
    """Return the second of the module's ways, or None when it is the topic's own values that are no longer allowed."""
    if not last_good:
        return None
    try:
        return LogConfig.from_properties(properties, BrokerConfig(last_good), use_large_index_format=large)
    except InvalidConfigError:
        return None


def _cautious(properties: Mapping[str, str], broker: BrokerConfig, large: bool) -> LogConfig:
    """Return the values that are good by themselves, and for those that conflict with another what keeps the data."""
    usable = {name: raw for name, raw in properties.items() if _is_good(name, raw)}
    values = LogConfig.from_values({**broker.topic_defaults(), **TOPIC_KEYS.parse(usable)}, large)
    values = replace(
        values,
        segment_bytes=min(values.segment_bytes, segment_bytes_max(large=large)),
        validate_records=validates_records(broker),
    )
    if values.min_compaction_lag_ms > values.max_compaction_lag_ms:
        values = replace(values, min_compaction_lag_ms=LONG_MAX, max_compaction_lag_ms=LONG_MAX)
    if values.remote_storage_enable:
        values = replace(
            values,
            cleanup_policy=frozenset() if values.compacted else values.cleanup_policy,
            local_retention_ms=LOCAL_RETENTION_SAME,
            local_retention_bytes=LOCAL_RETENTION_SAME,
            remote_copy_lag_ms=0,
            remote_copy_lag_bytes=-1,
        )
    return values


def _is_good(name: str, raw: str) -> bool:
    key = TOPIC_KEYS.get(name)
    if key is None:
        return False
    try:
        key.parse(raw)
    except InvalidConfigError:
        return False
    return True
