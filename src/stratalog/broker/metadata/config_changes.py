"""Compute settings after AlterConfigs and IncrementalAlterConfigs, and check them: pure, with Kafka's errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stratalog.broker.java_hashing import in_hash_order, string_hash
from stratalog.broker.metadata.advice import SEGMENT_MINIMUMS, below_minimum
from stratalog.broker.metadata.config_entries import broker_key
from stratalog.config import (
    BROKER_KEYS,
    DYNAMIC_TLS_KEYS,
    LOCAL_RETENTION_SAME,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
    asks_for,
    invalid,
    key_of_listener,
)
from stratalog.engine.cleaning import CleanerConfig
from stratalog.errors import InvalidConfigError, InvalidRequestError

REMOTE_STORAGE_ENABLE = "remote.storage.enable"
REMOTE_LOG_DELETE_ON_DISABLE = "remote.log.delete.on.disable"

#: Pool sizes that one change may at most halve or double.
_POOLS = (
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
#: Those that have no effect here, with their defaults.
_POOLS_OF_KAFKA = {"background.threads": 10, "num.io.threads": 8, "num.network.threads": 3}

_CREATION_RATE = "max.connection.creation.rate"
#: Keys of a listener that all brokers may share.
_OF_LISTENERS_FOR_ALL = (_CREATION_RATE, "max.connections", "num.network.threads")


class Operation(IntEnum):
    """The operation on a key; the numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one key. Only DELETE has no value."""

    name: str
    operation: Operation
    value: str | None = None


def parse_changes(parts: Iterable[tuple[str, int, str | None]]) -> list[Change]:
    """Return changes from (name, operation, value), or raise InvalidRequestError for invalid ones."""
    given = list(parts)
    check_names_and_values(given)
    unknown = [operation for _, operation, _ in given if operation not in set(Operation)]
    if unknown:
        raise InvalidRequestError(f"Unknown operations type {unknown[0]}")
    return [Change(name, Operation(operation), value) for name, operation, value in given]


def check_names_and_values(given: Sequence[tuple[str, int, str | None]]) -> None:
    """Raise InvalidRequestError for duplicate names, and for nulls where a value is required."""
    if any(count > 1 for count in Counter(name for name, _, _ in given).values()):
        raise InvalidRequestError("Error due to duplicate config keys")
    nulls = [name for name, operation, value in given if value is None and operation != Operation.DELETE]
    if nulls:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(nulls)}")


def node_in_name(name: str) -> int:
    """Return the node id that a resource's name is, by the rules of Java's `Integer.parseInt`.

    Raises InvalidRequestError for any other name.
    """
    if not re.fullmatch(r"[-+]?[0-9]+", name) or not -(2**31) <= int(name) < 2**31:
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}")
    return int(name)


def meets_unknown_operation(parts: Sequence[tuple[str, int, str | None]], *, of_topic: bool) -> bool:
    """Return whether Kafka's controller meets an operation that does not exist before one that it refuses."""
    find = TOPIC_KEYS.get if of_topic else _no_key
    operations = {name: operation for name, operation, _ in parts}
    for name in _in_order(operations):
        if operations[name] not in set(Operation):
            return True
        if operations[name] in (Operation.APPEND, Operation.SUBTRACT) and not _is_list(find(name)):
            return False
    return False


def _in_order(names: Collection[str]) -> list[str]:
    """Return the keys of one resource in the order of the hash map in which Kafka's controller has them."""
    return in_hash_order(names, string_hash)


def _no_key(_name: str) -> None:
    """Find no key: to Kafka's controller, those of groups and of client metrics have no type."""


def _is_list(key: ConfigKey | None) -> bool:
    return key is not None and key.type is ConfigType.LIST


def changed_topic_configs(current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """Return a topic's settings after the changes. InvalidConfigError for APPEND and SUBTRACT without a list."""
    return _changed(current, changes, TOPIC_KEYS.get)


def changed_resource_configs(current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """Return the settings of a group or client metrics subscription after the changes.

    Raises InvalidConfigError for APPEND and SUBTRACT: in Kafka's controller, none of their keys is a list.
    """
    return _changed(current, changes, _no_key)


def _changed(
    current: Mapping[str, str], changes: Sequence[Change], find: Callable[[str], ConfigKey | None]
) -> dict[str, str]:
    after = dict(current)
    by_name = {change.name: change for change in changes}
    for name in _in_order(by_name):
        change = by_name[name]
        _apply(after, change, find, "Can't {operation} to key {name} because its type is not LIST.")
    return after


def changed_broker_configs(current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """Return the dynamic settings of a broker, or of all, after the changes."""
    after = dict(current)
    for change in changes:
        if change.operation in (Operation.APPEND, Operation.SUBTRACT) and broker_key(change.name) is None:
            raise InvalidConfigError(f"Unknown config name: {change.name}")
        _apply(after, change, broker_key, "Config value {lower} is not allowed for config key: {name}")
    return after


def _apply(configs: dict[str, str], change: Change, find: Callable[[str], ConfigKey | None], refusal: str) -> None:
    if change.operation is Operation.SET:
        configs[change.name] = change.value or ""
        return
    if change.operation is Operation.DELETE:
        configs.pop(change.name, None)
        return
    key = find(change.name)
    if key is None or not _is_list(key):
        operation = change.operation.name
        raise InvalidConfigError(refusal.format(operation=operation, lower=operation.lower(), name=change.name))
    parts = _parts(configs.get(change.name), key)
    for part in (change.value or "").split(","):
        if change.operation is Operation.APPEND and part not in parts:
            parts.append(part)
        elif change.operation is Operation.SUBTRACT and part in parts:
            parts.remove(part)
    configs[change.name] = ",".join(parts)


def _parts(value: str | None, key: ConfigKey) -> list[str]:
    text = value if value is not None else key.render(key.default) or ""
    return [part for part in text.split(",") if part]


def _is_fixed(name: str) -> bool:
    """Return whether a key, possibly of one listener or mechanism, is known and cannot be changed at runtime."""
    of_listener = key_of_listener(name)
    if of_listener in DYNAMIC_TLS_KEYS:
        return False
    key = broker_key(of_listener)
    if key is None and of_listener != name:
        return broker_key(of_listener.partition(".")[2]) is not None
    return key is not None and not key.dynamic


def _check_security_configs(configs: Mapping[str, str], *, for_all: bool) -> None:
    """Raise InvalidRequestError, with Kafka's message, for keys that must be of one listener, or of one broker."""
    bare = sorted(name for name in configs if name in DYNAMIC_TLS_KEYS)
    if bare:
        raise InvalidRequestError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(bare)}]"
        )
    named = sorted(name for name in configs if key_of_listener(name) not in (name, *_OF_LISTENERS_FOR_ALL))
    if named and for_all:
        raise InvalidRequestError(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(named)}]"
        )


def check_broker_configs(
    configs: Mapping[str, str],
    static: BrokerConfig,
    *,
    current: BrokerConfig,
    resulting: Callable[[], BrokerConfig],
    for_all: bool = False,
) -> None:
    """Raise InvalidRequestError unless these may be set dynamically and are valid, also as changes of `current`.

    `resulting` returns what this broker would have: its own configs hide those for all. `for_all`: these are for all
    brokers. Conflicts with other settings and with topics are not checked here.
    """
    _check_security_configs(configs, for_all=for_all)
    fixed = sorted(filter(_is_fixed, configs))
    if fixed:
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    for name, raw in configs.items():
        asked = asks_for(name, raw, static.properties)
        if asked is not None:
            raise InvalidRequestError(f"{name} requires {asked}, which this broker does not have")
    try:
        for name, raw in configs.items():
            if name not in BROKER_KEYS and (key := broker_key(name)) is not None:
                key.parse(raw)
        # Also values that others hide must be valid.
        CleanerConfig.of(static.with_overrides(dict(configs)))
        for name, raw in configs.items():
            if key_of_listener(name) == _CREATION_RATE and int(raw) == 0:
                raise invalid(name, raw, "no client could connect any more")
        for name in _POOLS_OF_KAFKA:
            if (size := int(configs.get(name) or 1)) < 1:
                raise invalid(name, size, "Value must be at least 1")
        effective = resulting()
        CleanerConfig.of(current).check_change(CleanerConfig.of(effective))
        _check_pool_sizes(current, effective)
        for unit in ("ms", "bytes"):
            _check_local_retention(unit, current, effective)
    except InvalidConfigError as error:
        raise InvalidRequestError(str(error)) from error


def _check_local_retention(unit: str, current: BrokerConfig, effective: BrokerConfig) -> None:
    """Check local retention as Kafka's `DynamicLogConfig`, whether a topic is tiered or not.

    Values that are already in force do not prevent other changes.
    """
    local_key, total_key = f"log.local.retention.{unit}", f"log.retention.{unit}"
    local, total = effective[local_key], effective[total_key]
    if (local, total) == (current[local_key], current[total_key]) or total == -1 or local == LOCAL_RETENTION_SAME:
        return
    if local == -1:
        raise invalid(local_key, local, f"Value must not be -1 as {total_key} value is set as {total}.")
    if local > total:
        raise invalid(local_key, local, f"Value must not be more than {total_key} property value: {total}")


def _check_pool_sizes(current: BrokerConfig, effective: BrokerConfig) -> None:
    """Check pool sizes as Kafka's `DynamicThreadPool` and `DynamicRemoteLogConfig`."""
    sizes = [(name, current[name], effective[name]) for name in _POOLS]
    for name, default in _POOLS_OF_KAFKA.items():
        before, after = (int(config.properties.get(name) or default) for config in (current, effective))
        sizes.append((name, before, after))
    for name, before, after in sizes:
        why = f"Dynamic thread count update validation failed for {name}={after}"
        if after < before // 2:
            raise InvalidConfigError(f"{why}, value should be at least half the current value {before}")
        if after > before * 2:
            raise InvalidConfigError(f"{why}, value should not be greater than double the current value {before}")


def check_topic_configs(topic: str, before: Mapping[str, str], after: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise InvalidConfigError for settings of a topic that depend on the broker (each of them is valid by itself).

    `before` are the current settings. The minimums of KIP-760 apply to new and changed values only: a topic below a
    later minimum can still be changed otherwise, by either API.
    """
    for key in SEGMENT_MINIMUMS:
        if key not in after:
            continue
        value = TOPIC_KEYS[key].parse(after[key])
        unchanged = key in before and TOPIC_KEYS[key].parse(before[key]) == value
        why = None if unchanged else below_minimum(topic, key, value, broker)
        if why is not None:
            raise invalid(key, value, why)
    enabled_before, enabled_after = (_is_true(configs, REMOTE_STORAGE_ENABLE) for configs in (before, after))
    if enabled_after and not broker["remote.log.storage.system.enable"]:
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage."
        )
    if enabled_before and not enabled_after and not _is_true(after, REMOTE_LOG_DELETE_ON_DISABLE):
        raise InvalidConfigError(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Return whether the settings of a topic enable the remote tier."""
    return _is_true(configs, REMOTE_STORAGE_ENABLE)


def _is_true(configs: Mapping[str, str], name: str) -> bool:
    return configs.get(name, "false").strip().lower() == "true"
