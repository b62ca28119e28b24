"""Entries of DescribeConfigs: values, their sources, and their synonyms. Pure.

The sources of a value, by precedence, are the topic, the dynamic configs of the broker, those of all brokers, the
broker's configuration file, and the defaults. Synonyms are the other keys that would have set it (a topic's
`retention.ms`: `log.retention.ms`, `log.retention.minutes`, `log.retention.hours`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from stratalog.config import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    INTERNAL_GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
    group_default,
    kafka_broker_keys,
)
from stratalog.errors import InvalidConfigError

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices

#: Prefix of keys that are hidden unless they are set.
_INTERNAL_PREFIX = "internal."
_UNKNOWN_TYPE = 0


class ConfigSource(IntEnum):
    """The source of a value; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A key that sets, or would set, the value; its own value is None if it is secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration entry. `type` is the number of its `ConfigType`, 0 for an unknown key."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: int
    documentation: str | None
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True)
class BrokerLevels:
    """All configuration levels of a broker: file, dynamic configs of the cluster and of the broker, and the result."""

    static: Mapping[str, str | None]
    cluster: Mapping[str, str]
    own: Mapping[str, str]
    effective: BrokerConfig

    @classmethod
    def of(cls, broker: BrokerServices) -> BrokerLevels:
        stored = broker.metadata
        return cls(
            static=broker.settings.static.properties,
            cluster=stored.broker_configs(None),
            own=stored.broker_configs(broker.node_id),
            effective=broker.config,
        )


class TopicDescriber:
    """The configuration entries of topics, for one response.

    Entries that topics do not set are equal for all: they are computed and encoded once. `encode` returns the bytes of
    an entry, given the topic's own text, or None if the topic does not set it.
    """

    def __init__(self, broker: BrokerLevels, encode: Callable[[ConfigEntry, str | None], bytes]) -> None:
        self._broker = broker
        self._values = broker.effective.topic_defaults()
        self._encode = encode
        self._unset: dict[str, bytes] = {}

    def encoded(self, configs: Mapping[str, str], only: Collection[str] | None = None) -> dict[str, bytes]:
        """Return a topic's entries by key, given its own `configs`; all, or `only` some."""
        found = {}
        for key in TOPIC_KEYS:
            name = key.name
            if not _is_wanted(name, configs, only):
                continue
            if name in configs:
                found[name] = self._encode(self._entry(key, configs[name]), configs[name])
            else:
                if name not in self._unset:
                    self._unset[name] = self._encode(self._entry(key, None), None)
                found[name] = self._unset[name]
        return found

    def _entry(self, key: ConfigKey, raw: str | None) -> ConfigEntry:
        synonyms = _synonyms(key.broker_key, self._broker) if key.broker_key else []
        if raw is None:
            value = render(key, self._values.get(key.name, key.default))
        else:
            value = render(key, _parsed(key, raw))
            synonyms.insert(0, Synonym(key.name, _hide(key, value), ConfigSource.TOPIC))
        return _entry(key, value, synonyms, is_read_only=False)


def broker_key(name: str) -> ConfigKey | None:
    """Return a key of the broker, or one of Kafka's without effect here."""
    return BROKER_KEYS.get(name) or kafka_broker_keys().get(name)


def broker_entries(broker: BrokerLevels, only: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return the configuration of a broker; unknown keys that are set are included without values."""
    effective = broker.effective
    entries = []
    for key in BROKER_KEYS:
        if not _is_wanted(key.name, effective.properties, only):
            continue
        synonyms = _synonyms(key.name, broker)
        # The default of a key with coarser synonyms may be null while one of those applies.
        derived = bool(key.coarser) and not effective.is_set(key.name)
        value = None if derived else render(key, effective[key.name])
        entries.append(_entry(key, value, synonyms, is_read_only=not key.dynamic))
    for key in kafka_broker_keys():
        if key.name not in BROKER_KEYS and (only is None or key.name in only):
            raw = effective.unknown.get(key.name)
            value = render(key, key.default if raw is None else _parsed(key, raw))
            entries.append(_entry(key, value, _synonyms(key.name, broker), is_read_only=not key.dynamic))
    for name in effective.unknown:
        if (only is None or name in only) and name not in kafka_broker_keys():
            unknown = _synonyms(name, broker)
            source = unknown[0].source if unknown else ConfigSource.STATIC_BROKER
            entries.append(
                ConfigEntry(
                    name=name,
                    value=None,
                    source=source,
                    is_read_only=True,
                    is_sensitive=True,
                    type=_UNKNOWN_TYPE,
                    documentation=None,
                    synonyms=tuple(unknown),
                )
            )
    return entries


def cluster_entries(broker: BrokerLevels, only: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return the dynamic settings for all brokers."""
    entries = []
    for name, value in broker.cluster.items():
        if only is not None and name not in only:
            continue
        key = broker_key(name)
        if key is None:
            entries.append(
                ConfigEntry(
                    name=name,
                    value=None,
                    source=ConfigSource.DYNAMIC_DEFAULT_BROKER,
                    is_read_only=True,
                    is_sensitive=True,
                    type=_UNKNOWN_TYPE,
                    documentation=None,
                    synonyms=(Synonym(name, None, ConfigSource.DYNAMIC_DEFAULT_BROKER),),
                )
            )
        else:
            synonym = Synonym(name, _hide(key, value), ConfigSource.DYNAMIC_DEFAULT_BROKER)
            entries.append(_entry(key, value, [synonym], is_read_only=not key.dynamic))
    return entries


def group_entries(
    configs: Mapping[str, str], broker: BrokerLevels, only: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return the configuration of a group with its own `configs`."""
    entries = []
    for key in GROUP_KEYS:
        name = key.name
        if name not in configs and name in INTERNAL_GROUP_KEYS:
            continue
        if only is not None and name not in only:
            continue
        default = render(key, group_default(key, broker.effective))
        synonyms = _synonyms(key.broker_key, broker) if key.broker_key else []
        if not synonyms:  # a key of groups only
            synonyms = [Synonym(key.broker_key or name, default, ConfigSource.DEFAULT)]
        if name in configs:
            value = render(key, _parsed(key, configs[name]))
            synonyms.insert(0, Synonym(name, value, ConfigSource.GROUP))
        else:
            value = default
        entries.append(_entry(key, value, synonyms, is_read_only=False))
    return entries


def client_metrics_entries(configs: Mapping[str, str], only: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return the configuration of a client metrics subscription."""
    entries = []
    for key in CLIENT_METRICS_KEYS:
        if only is None or key.name in only:
            is_set = key.name in configs
            value = render(key, _parsed(key, configs[key.name]) if is_set else key.default)
            synonyms = [Synonym(key.name, value, ConfigSource.CLIENT_METRICS)] if is_set else []
            entries.append(_entry(key, value, synonyms, is_read_only=False))
    return entries


def _parsed(key: ConfigKey, raw: str) -> Any:
    """Return the typed value of stored text, or the text if this version does not accept it."""
    try:
        return key.parse(raw)
    except InvalidConfigError:
        return raw


def render(key: ConfigKey, value: Any) -> str | None:
    """Return a typed value as text, in the format of Java's ConfigDef."""
    text = key.render(value)
    if key.type is ConfigType.DOUBLE and text is not None:
        return text.replace("e+", "E").replace("e", "E")
    return text


def _is_wanted(name: str, configs: Mapping[str, object], only: Collection[str] | None) -> bool:
    if only is not None:
        return name in only
    return name in configs or not name.startswith(_INTERNAL_PREFIX)


def _entry(key: ConfigKey, value: str | None, synonyms: Iterable[Synonym], *, is_read_only: bool) -> ConfigEntry:
    found = tuple(synonyms)
    return ConfigEntry(
        name=key.name,
        value=_hide(key, value),
        source=found[0].source if found else ConfigSource.DEFAULT,
        is_read_only=is_read_only,
        is_sensitive=_is_sensitive(key),
        type=_shown_type(key).value,
        documentation=key.doc,
        synonyms=found,
    )


def _shown_type(key: ConfigKey) -> ConfigType:
    """Return Kafka's type of a key, even if this broker parses it differently; KIP-1333's LONG is ours."""
    kafkas = kafka_broker_keys().get(key.name)
    return key.type if kafkas is None or key.type is ConfigType.LONG else kafkas.type


def _synonyms(name: str, broker: BrokerLevels) -> list[Synonym]:
    """Return the synonyms of a broker key by precedence; empty unless the key itself is among them."""
    key = broker_key(name)
    names = [name] if key is None else [name, *(coarse for coarse, _ in key.coarser)]
    levels: tuple[tuple[Mapping[str, str | None], ConfigSource], ...] = (
        (dict(broker.own), ConfigSource.DYNAMIC_BROKER),
        (dict(broker.cluster), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.static, ConfigSource.STATIC_BROKER),
    )
    found = []
    for level, source in levels:
        for known in names:
            value = level.get(known)
            if value is not None:
                found.append(Synonym(known, _hide(broker_key(known), value), source))
    for known in names:
        default = _default(known)
        if default is not None:
            found.append(Synonym(known, default, ConfigSource.DEFAULT))
    while found and found[0].name != name:
        del found[0]
    return found


def _default(name: str) -> str | None:
    key, kafkas = broker_key(name), kafka_broker_keys().get(name)
    if key is None or key.coarser or (kafkas is not None and kafkas.default is None):
        return None
    return render(key, key.default)


def _is_sensitive(key: ConfigKey | None) -> bool:
    return key is None or key.type is ConfigType.PASSWORD


def _hide(key: ConfigKey | None, value: str | None) -> str | None:
    return None if _is_sensitive(key) else value
