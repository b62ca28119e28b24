"""Warnings about valid settings: segments below the operator's minimums, indexes that are too small. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.config import TOPIC_KEYS, BrokerConfig, LogConfig, index_size_needed

#: KIP-760: topic keys with a minimum set by the operator, and the broker key of that minimum.
SEGMENT_MINIMUMS = {"segment.ms": "min.topic.segment.ms", "segment.bytes": "min.topic.segment.bytes"}

_INDEX_SIZE = "segment.index.bytes"
_INDEX_INTERVAL = "index.interval.bytes"
#: The keys that determine whether a full segment's indexes fit.
INDEX_KEYS = frozenset({_INDEX_SIZE, _INDEX_INTERVAL, "segment.bytes"})


def below_minimum(topic: str, key: str, value: int, broker: BrokerConfig) -> str | None:
    """Return KIP-760's message for a topic's segment setting below the operator's minimum; None if it is not."""
    minimum_key = SEGMENT_MINIMUMS[key]
    minimum = broker[minimum_key]
    if value >= minimum:
        return None
    return f"Topic {topic} has {key} ({value}) that is less than {minimum_key} ({minimum})."


def small_segment_warnings(topic: str, configs: Mapping[str, str], broker: BrokerConfig) -> list[str]:
    """Return warnings at startup for topic settings below the operator's minimums.

    Source: KIP-760. Values that a topic inherits from the broker are the operator's choice, so there is no warning.
    """
    found = (
        below_minimum(topic, key, TOPIC_KEYS[key].parse(configs[key]), broker)
        for key in SEGMENT_MINIMUMS
        if key in configs
    )
    return [warning for warning in found if warning is not None]


def small_index_warnings(topic: str, configs: Mapping[str, str], config: LogConfig) -> list[str]:
    """Return warnings if full indexes will roll a topic's segments before they reach `segment.bytes`.

    Only if the topic itself sets one of the keys: `small_broker_index_warnings` covers all others.
    """
    if INDEX_KEYS.isdisjoint(configs):
        return []
    return _small_index(f"Topic {topic}", config, {key: key for key in INDEX_KEYS})


def small_broker_index_warnings(broker: BrokerConfig) -> list[str]:
    """Return the same for the broker's defaults."""
    config = LogConfig.from_properties({}, broker, use_large_index_format=True)
    return _small_index("The broker", config, {key: TOPIC_KEYS[key].broker_key for key in INDEX_KEYS})


def _small_index(who: str, config: LogConfig, names: Mapping[str, str]) -> list[str]:
    needed = index_size_needed(config)
    if config.segment_index_bytes >= needed:
        return []
    reached = config.segment_bytes * config.segment_index_bytes // needed
    warning = (
        f"{who} has {names[_INDEX_SIZE]} ({config.segment_index_bytes}) that is too small for {names['segment.bytes']} "
        f"({config.segment_bytes}) at {names[_INDEX_INTERVAL]} ({config.index_interval_bytes}): segments may be rolled "
        f"from {reached} bytes on, when an index is full. It should be at least {needed}."
    )
    return [warning]
