"""Broker configuration: all keys, and `BrokerConfig`, a read-only mapping of their typed values.

Names, types and defaults are Apache Kafka 4.4.0's; own keys begin with `stratalog.`. A key that this version does not
know is kept and reported, so that a `server.properties` of a real broker can be used as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from stratalog.config.broker_keys import COORDINATOR_KEYS, NETWORK_KEYS, NODE_KEYS, OWN_KEYS, STORAGE_KEYS
from stratalog.config.group_limits import check_group_limits
from stratalog.config.keys import LONG_MAX, ConfigKey, ConfigRegistry, invalid
from stratalog.config.segment_size import check_segment_bytes
from stratalog.config.topic import TOPIC_KEYS

_HOUR_MS = 60 * 60 * 1000
_PER_ADDRESS = "max.connections.per.ip"

#: Coarser spellings of a time that yield to the one in milliseconds.
_COARSER = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}


def _from_topic_keys() -> list[ConfigKey]:
    """Each topic key's broker-wide default, under its broker name; all of them dynamic."""
    return [
        ConfigKey(
            key.broker_key,
            key.type,
            key.default,
            f"Default of topics' {key.name}. {key.doc}",
            key.validator,
            dynamic=True,
            coarser=_COARSER.get(key.broker_key, ()),
            no_effect=key.no_effect,
        )
        for key in TOPIC_KEYS
        if key.broker_key
    ]


BROKER_KEYS = ConfigRegistry(
    [
        *_from_topic_keys(),
        *NODE_KEYS,
        *NETWORK_KEYS,
        *COORDINATOR_KEYS,
        *STORAGE_KEYS,
        *OWN_KEYS,
    ]
)


#: Keys of the topic-based metadata manager, which Kafka has under the metadata plugin's prefix alone.
METADATA_TOPIC_KEYS = frozenset(
    key.name
    for key in BROKER_KEYS
    if key.name.startswith(
        ("remote.log.metadata.topic.", "remote.log.metadata.consume.", "remote.log.metadata.initialization.")
    )
)


class BrokerConfig(Mapping[str, Any]):
    """Typed values by key: what was set, over the defaults. Immutable; `with_overrides` makes another.

    `unknown` holds what was set under names that this version does not know.
    """

    def __init__(
        self,
        properties: Mapping[str, str | None] | None = None,
        *,
        plugin_properties: Mapping[str, str | None] | None = None,
    ) -> None:
        """`plugin_properties` hold plugins' own keys, under their prefixes; `properties` do unless they are given."""
        self.properties = dict(properties or {})
        self._plugin_properties = self.properties if plugin_properties is None else plugin_properties
        self.unknown: dict[str, str | None] = {}
        self._values: dict[str, Any] = {key.name: key.default for key in BROKER_KEYS}
        self._set: set[str] = set()
        for name, raw in self.properties.items():
            key = BROKER_KEYS.get(name)
            if key is None:
                self.unknown[name] = raw
            else:
                self._values[name] = key.parse(raw)
                self._set.add(name)
        self._take_prefixed()
        if "broker.id" in self._set:
            self._take_broker_id()
        for key in BROKER_KEYS:
            if key.coarser and key.name not in self._set:
                self._derive(key)
        check_group_limits(self._values)
        self._check_request_memory()
        self._check_connections()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | None]) -> BrokerConfig:
        """Parse and check; InvalidConfigError names the key, its value and what is allowed."""
        return cls(properties)

    def with_overrides(self, properties: Mapping[str, str | None]) -> BrokerConfig:
        """Return a new configuration with these set (or, for None, set to null) on top.

        Plugins' own keys stay as they are here: they are the operator's, and no client may change them.
        """
        return BrokerConfig({**self.properties, **properties}, plugin_properties=self._plugin_properties)

    def check_segment_size(self, *, large: bool) -> None:
        """InvalidConfigError when `log.segment.bytes` is past the limit in force (`large`: that of KIP-1333)."""
        check_segment_bytes("log.segment.bytes", self["log.segment.bytes"], large=large)

    def _check_request_memory(self) -> None:
        held_max, size_max = self._values["queued.max.request.bytes"], self._values["socket.request.max.bytes"]
        if 0 < held_max < size_max:
            raise invalid(
                "queued.max.request.bytes", held_max, f"must be at least socket.request.max.bytes, which is {size_max}"
            )

    def _check_connections(self) -> None:
        if self._values[_PER_ADDRESS] == 0 and not self._values[f"{_PER_ADDRESS}.overrides"]:
            raise invalid(_PER_ADDRESS, 0, f"it can be 0 only if {_PER_ADDRESS}.overrides is set")

    def _take_prefixed(self) -> None:
        """Count keys of the topic-based metadata manager under the metadata plugin's prefix too, as Kafka does."""
        own = self.prefixed(self._values["remote.log.metadata.manager.impl.prefix"])
        for name in METADATA_TOPIC_KEYS & own.keys():
            prefixed = self._values["remote.log.metadata.manager.impl.prefix"] + name
            self._values[name] = replace(BROKER_KEYS[name], name=prefixed).parse(own[name])
            self._set.add(name)

    def _take_broker_id(self) -> None:
        """`broker.id` counts where `node.id` is not set."""
        if "node.id" not in self._set:
            self._values["node.id"] = BROKER_KEYS["node.id"].parse(self.properties["broker.id"])
        elif self._values["node.id"] != self._values["broker.id"]:
            raise invalid(
                "node.id", self._values["node.id"], "You must set `node.id` to the same value as `broker.id`."
            )

    def _derive(self, key: ConfigKey) -> None:
        """Take the value from a coarser spelling when only that was set; hours of -1 mean unlimited."""
        for coarse, factor in key.coarser:
            if coarse in self._set and self._values[coarse] is not None:
                value = self._values[coarse]
                self._values[key.name] = value if value < 0 else min(value * factor, LONG_MAX)
                return

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_set(self, name: str) -> bool:
        """Return whether the key was set by the user rather than left at its default."""
        return name in self._set

    @cached_property
    def topic_default_items(self) -> tuple[tuple[str, Any], ...]:
        """The items of `topic_defaults`, all hashable."""
        return tuple((key.name, self._values[key.broker_key]) for key in TOPIC_KEYS if key.broker_key)

    def topic_defaults(self) -> dict[str, Any]:
        """Values for topic keys that this broker supplies, by topic key."""
        return dict(self.topic_default_items)

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the settings under `prefix`, without it: a plugin's own configuration."""
        return {
            name.removeprefix(prefix): raw
            for name, raw in self._plugin_properties.items()
            if name.startswith(prefix) and raw is not None
        }
