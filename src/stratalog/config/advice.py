"""Warnings about settings that have no effect, or probably another one than intended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stratalog.config.broker import BROKER_KEYS, METADATA_TOPIC_KEYS, BrokerConfig
from stratalog.config.broker_keys import NO_OTHERS, ONE_REPLICA
from stratalog.config.kafka_keys import with_suggestion
from stratalog.config.keys import ConfigKey, ConfigType
from stratalog.config.listeners import CONTROLLER_NAMES, LISTENERS, key_of_listener, listener_prefix, parse_listeners
from stratalog.config.segment_size import SEGMENT_BYTES_MIN
from stratalog.config.topic import TOPIC_KEYS
from stratalog.config.unkept import joins_cluster

_TIERING = "remote.log.storage.system.enable"
_STORAGE_PLUGIN = "remote.log.storage.manager.class.name"
_SEGMENT_MINIMUM = "min.topic.segment.bytes"
#: Settings of a mechanism that are no keys of the broker: it refuses values that it does not support.
_OF_A_MECHANISM = frozenset(
    f"sasl.{name}"
    for name in ("jaas.config", "login.callback.handler.class", "login.class", "server.callback.handler.class")
)
_OF_THE_STORE = "stratalog.remote."
#: These are of the broker itself, whatever the store.
_OF_THE_TASKS = frozenset({"stratalog.remote.stall.ms"})


def broker_advice(config: BrokerConfig) -> Iterator[str]:
    """Yield warnings about the broker's configuration at startup."""
    unknown = sorted(
        name for name in config.unknown if not name.startswith(_plugin_prefixes(config)) and not _is_of_a_listener(name)
    )
    if unknown:
        known = [key.name for key in BROKER_KEYS]
        names = ", ".join(with_suggestion(name, known) for name in unknown)
        yield f"Unknown configuration keys: {names}"
    yield from _of_no_listener(config)
    of_cluster = joins_cluster(config.properties)
    yield from _without_effect(
        (key, config[key.name])
        for key in BROKER_KEYS
        if config.is_set(key.name) and not (of_cluster and key.no_effect in (NO_OTHERS, ONE_REPLICA))
    )
    yield from minimum_advice(config)
    yield from _tiering(config)
    if config.is_set(LISTENERS):
        for listener in parse_listeners(config[LISTENERS], config.properties):
            if listener.is_controllers:
                yield f"Listener {listener} is not opened: this broker needs no controllers"


def _is_of_a_listener(name: str) -> bool:
    """Return whether a key sets something of one listener, or of one mechanism of it."""
    key = key_of_listener(name)
    of_mechanism = key.partition(".")[2]
    return key != name and (key in BROKER_KEYS or of_mechanism in BROKER_KEYS or of_mechanism in _OF_A_MECHANISM)


def _of_no_listener(config: BrokerConfig) -> Iterator[str]:
    """Yield a warning about settings of listeners that there are not: a wrong name would leave one less protected."""
    if not config.is_set(LISTENERS):
        return
    names = [each.name for each in parse_listeners(config[LISTENERS], config.properties)]
    # A broker of a cluster has settings for the controllers' listener, which it does not open.
    prefixes = tuple(map(listener_prefix, dict.fromkeys([*names, *config[CONTROLLER_NAMES]])))
    unused = sorted(
        name for name in config.properties if name != key_of_listener(name) and not name.startswith(prefixes)
    )
    if unused:
        found = ", ".join(f"{prefix}*" for prefix in prefixes)
        yield f"{', '.join(unused)}: no effect: listeners has no such listener; keys of those that it has: {found}"


def minimum_advice(config: BrokerConfig) -> Iterator[str]:
    """Yield a warning about a minimum below the built-in one (KIP-760 is of an older Kafka, which had none)."""
    if config[_SEGMENT_MINIMUM] < SEGMENT_BYTES_MIN:
        yield (
            f"{_SEGMENT_MINIMUM}={config[_SEGMENT_MINIMUM]} has no effect: "
            f"segment.bytes must be at least {SEGMENT_BYTES_MIN} in any case"
        )


def topic_advice(topic: str, configs: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings about valid settings of a topic."""
    for line in _without_effect((TOPIC_KEYS[name], TOPIC_KEYS[name].parse(raw)) for name, raw in configs.items()):
        yield f"Topic {topic}: {line}"


def _without_effect(values: Iterable[tuple[ConfigKey, object]]) -> Iterator[str]:
    for key, value in values:
        if key.no_effect and value != key.default:
            shown = "[hidden]" if key.type is ConfigType.PASSWORD else key.render(value)
            yield f"{key.name}={shown} has no effect: {key.no_effect}"


def _tiering(config: BrokerConfig) -> Iterator[str]:
    of_the_store = [
        key.name
        for key in BROKER_KEYS
        if key.name.startswith(_OF_THE_STORE) and key.name not in _OF_THE_TASKS and config.is_set(key.name)
    ]
    plugins = [name for name in config.properties if name.startswith(_plugin_prefixes(config))]
    if not config[_TIERING]:
        plugins += [name for name in (_STORAGE_PLUGIN, "remote.log.metadata.manager.class.name") if config.is_set(name)]
        if names := sorted([*of_the_store, *plugins]):
            yield f"{', '.join(names)}: no effect while {_TIERING} is not true; nothing is copied to a remote tier"
        return
    if unused := _unused_by_the_topic_based_manager(config):
        yield f"{', '.join(unused)}: no effect: the topic-based metadata manager has no such key, and no clients"
    if config[_STORAGE_PLUGIN] and of_the_store:
        prefix = config["remote.log.storage.manager.impl.prefix"]
        yield (
            f"{', '.join(sorted(of_the_store))}: no effect with {_STORAGE_PLUGIN}; the plugin's own keys begin with "
            f"{prefix}"
        )


def _unused_by_the_topic_based_manager(config: BrokerConfig) -> list[str]:
    """Keys under the metadata plugin's prefix that the topic-based manager does not have; its clients are none."""
    if ":" in (config["remote.log.metadata.manager.class.name"] or ""):
        return []
    prefix = config["remote.log.metadata.manager.impl.prefix"]
    return sorted(prefix + name for name in config.prefixed(prefix) if name not in METADATA_TOPIC_KEYS)


def _plugin_prefixes(config: BrokerConfig) -> tuple[str, ...]:
    """Return the prefixes of plugins' own keys."""
    return tuple(config[f"remote.log.{kind}.manager.impl.prefix"] for kind in ("storage", "metadata"))
