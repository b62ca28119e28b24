"""Configuration of groups: the keys, their bounds, and `GroupConfig`, the values that hold for one group.

Names, types, defaults, bounds and messages are Apache Kafka 4.4.0's. A key that is not set on a group has the value of
its broker key, where it has one. Bounds are broker keys too: a value beyond them is refused when it is set, and one
that later bounds leave outside counts as the nearest bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.config.broker import BROKER_KEYS
from stratalog.config.kafka_keys import kafka_broker_keys
from stratalog.config.keys import LONG_MAX, ConfigKey, ConfigRegistry, ConfigType, at_least, invalid, one_of
from stratalog.errors import InvalidConfigError

if TYPE_CHECKING:
    from stratalog.config.broker import BrokerConfig

RACK_AWARE_TAGS: Final = "streams.rack.aware.assignment.tags"
STREAMS_ASSIGNOR: Final = "streams.assignor.name"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
_STREAMS_ASSIGNORS: Final = "group.streams.assignors"

#: Keys that are not shown unless they are set, as Kafka's.
INTERNAL_GROUP_KEYS: Final = frozenset(
    {
        "consumer.assignor.offload.enable",
        "share.assignor.offload.enable",
        "streams.assignor.offload.enable",
        "streams.task.offset.interval.ms",
        "streams.num.warmup.replicas",
        "streams.acceptable.recovery.lag",
    }
)

_BY_DURATION = "by_duration:"
#: As Java reads durations; parts may have signs of their own.
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
#: No number of seconds that Java can hold is longer.
_DIGITS_MAX = 20


def offset_reset_duration_ms(value: str) -> int | None:
    """Return how far back `share.auto.offset.reset=by_duration:...` reaches; None unless it is such a value."""
    if not value.startswith(_BY_DURATION):
        return None
    match = _DURATION.fullmatch(value.removeprefix(_BY_DURATION))
    if match is None:
        return None
    sign, days, time, hours, minutes, seconds, fraction = match.groups()
    parts = (days, hours, minutes, seconds)
    if not any(parts) or (time is not None and len(time) == 1) or any(len(part or "") > _DIGITS_MAX for part in parts):
        return None
    whole = sum(int(part or 0) * unit for part, unit in zip(parts, (86_400, 3_600, 60, 1), strict=True))
    nanos = int((fraction or "").ljust(9, "0"))
    total = whole * 10**9 + (-nanos if (seconds or "").startswith("-") else nanos)
    total = -total if sign == "-" else total
    return total // 10**6 if 0 <= total // 10**9 <= LONG_MAX else None


def _check_offset_reset(key: str, value: str) -> None:
    if value not in ("earliest", "latest") and offset_reset_duration_ms(value) is None:
        raise invalid(
            key,
            value,
            f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'.",
        )


def _key(
    name: str, type_: ConfigType, default: Any, doc: str, validator: Any = None, *, broker_key: str | None = None
) -> ConfigKey:
    own = f"group.{name}" if broker_key is None else broker_key
    return ConfigKey(name, type_, default, doc, validator, dynamic=True, broker_key=own)


_INT, _LONG, _BOOL, _STR = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING
_SESSION = "How long a member may be silent."
_HEARTBEAT = "How often members are to send a heartbeat."
_INTERVAL = "Shortest time between two assignments."
_OFFLOAD = "Whether assignments are made in the background."

#: In the order of Kafka, in which values are looked at.
GROUP_KEYS = ConfigRegistry(
    [
        _key("consumer.session.timeout.ms", _INT, 45_000, _SESSION, at_least(1)),
        _key("consumer.heartbeat.interval.ms", _INT, 5_000, _HEARTBEAT, at_least(1)),
        _key("consumer.assignment.interval.ms", _INT, 1_000, _INTERVAL, at_least(0)),
        _key("consumer.assignor.offload.enable", _BOOL, True, _OFFLOAD),
        _key("share.session.timeout.ms", _INT, 45_000, _SESSION, at_least(1)),
        _key("share.heartbeat.interval.ms", _INT, 5_000, _HEARTBEAT, at_least(1)),
        _key("share.record.lock.duration.ms", _INT, 30_000,
             "How long a record that was handed out stays with its consumer.", at_least(1000)),
        _key("share.delivery.count.limit", _INT, 5, "How often a record is handed out at most.", at_least(2)),
        _key("share.partition.max.record.locks", _INT, 2_000,
             "Records of one partition that may be with consumers at once.", at_least(100)),
        _key("share.auto.offset.reset", _STR, "latest",
             "Where a share group begins: earliest, latest, or by_duration:<ISO 8601 duration> before now.",
             _check_offset_reset, broker_key=""),
        _key("share.isolation.level", _STR, "read_uncommitted",
             "Whether records of transactions are handed out when they are committed (read_committed), or at once.",
             one_of("read_committed", "read_uncommitted"), broker_key=""),
        _key("share.renew.acknowledge.enable", _BOOL, True,
             "Whether consumers may keep a record for longer.", broker_key=""),
        _key("share.assignment.interval.ms", _INT, 1_000, _INTERVAL, at_least(0)),
        _key("share.assignor.offload.enable", _BOOL, True, _OFFLOAD),
        _key("streams.session.timeout.ms", _INT, 45_000, _SESSION, at_least(1)),
        _key("streams.heartbeat.interval.ms", _INT, 5_000, _HEARTBEAT, at_least(1)),
        _key("streams.num.standby.replicas", _INT, 0, "Standby replicas of each task.", at_least(0)),
        _key("streams.initial.rebalance.delay.ms", _INT, 3_000,
             "How long a new group waits for more members.", at_least(0)),
        _key("streams.assignment.interval.ms", _INT, 1_000, _INTERVAL, at_least(0)),
        _key("streams.assignor.offload.enable", _BOOL, True, _OFFLOAD),
        _key("streams.task.offset.interval.ms", _INT, 60_000,
             "How often members report the offsets of their tasks.", at_least(1)),
        _key("streams.num.warmup.replicas", _INT, 2, "Tasks that may warm up elsewhere at once.", at_least(0)),
        _key(RACK_AWARE_TAGS, ConfigType.LIST, (), "Tags of clients that standby replicas are spread over."),
        _key("streams.acceptable.recovery.lag", _LONG, 10_000,
             "Lag at which a task counts as caught up.", at_least(0)),
        _key(STREAMS_ASSIGNOR, _STR, None,
             "The task assignor, by its short name. By default the first of the broker's.",
             broker_key=_STREAMS_ASSIGNORS),
        _key(DEAD_LETTER_TOPIC, _STR, "",
             "The topic for records that a share group cannot process. By default there is none.", broker_key=""),
        _key("errors.deadletterqueue.copy.record.enable", _BOOL, False,
             "Whether the whole record is copied to that topic, or only a reference to it.", broker_key=""),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Limit:
    """The broker keys between which a value of a group has to be, with their defaults; an empty name: no bound."""

    key: str
    low: str
    high: str
    low_default: int = 0
    high_default: int = 0


def _between(key: str) -> _Limit:
    kind, _, rest = key.partition(".")
    return _Limit(key, f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")


#: In the order in which Kafka looks at them.
_LIMITS = (
    _between("consumer.heartbeat.interval.ms"),
    _between("consumer.session.timeout.ms"),
    _between("consumer.assignment.interval.ms"),
    _between("share.heartbeat.interval.ms"),
    _between("share.session.timeout.ms"),
    _between("share.record.lock.duration.ms"),
    _between("share.delivery.count.limit"),
    _between("share.partition.max.record.locks"),
    _between("share.assignment.interval.ms"),
    _between("streams.heartbeat.interval.ms"),
    _between("streams.session.timeout.ms"),
    _Limit("streams.num.standby.replicas", "", "group.streams.max.standby.replicas"),
    _between("streams.assignment.interval.ms"),
    _Limit("streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", "", low_default=15_000),
    _Limit("streams.num.warmup.replicas", "", "group.streams.max.warmup.replicas", high_default=20),
)


def check_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise InvalidConfigError unless these may be set on a group, in Kafka's words."""
    values = parse_group_configs(configs)
    for limit in _LIMITS:
        if limit.key in values:
            _check_limit(limit, values[limit.key], broker)
    _check_assignor(values, broker)
    _check_sessions(values, broker)
    if values.get(DEAD_LETTER_TOPIC, "").startswith("__"):
        raise InvalidConfigError(f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")


def parse_group_configs(configs: Mapping[str, str]) -> dict[str, Any]:
    """Return the typed values of what is set, or raise InvalidConfigError. The broker's bounds are not looked at."""
    for name in configs:
        if name not in GROUP_KEYS:
            raise InvalidConfigError(f"Unknown group config name: {name}")
    tags = _list_parts(configs.get(RACK_AWARE_TAGS, ""))
    if len(set(tags)) < len(tags):
        raise InvalidConfigError(f"{RACK_AWARE_TAGS} must not contain duplicate tag keys.")
    values = {}
    for key in GROUP_KEYS:
        if key.name in configs:
            if key.name == RACK_AWARE_TAGS and "" in tags:
                raise InvalidConfigError(f"Configuration '{RACK_AWARE_TAGS}' values must not be empty.")
            values[key.name] = key.parse(configs[key.name])
    return values


def _check_assignor(values: Mapping[str, Any], broker: BrokerConfig) -> None:
    assignors = _broker_value(_STREAMS_ASSIGNORS, broker)
    if STREAMS_ASSIGNOR in values and values[STREAMS_ASSIGNOR] not in assignors:
        raise InvalidConfigError(
            f"{STREAMS_ASSIGNOR} '{values[STREAMS_ASSIGNOR]}' is not a registered task assignor. "
            f"Registered assignors are: [{', '.join(assignors)}]."
        )


def _check_sessions(values: Mapping[str, Any], broker: BrokerConfig) -> None:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in values or heartbeat in values) and (
            values.get(session, _broker_value(f"group.{session}", broker))
            <= values.get(heartbeat, _broker_value(f"group.{heartbeat}", broker))
        ):
            raise InvalidConfigError(f"{session} must be greater than {heartbeat}")


def _check_limit(limit: _Limit, value: int, broker: BrokerConfig) -> None:
    low, high = _bounds(limit, broker)
    if limit.low and limit.high:
        if not low <= value <= high:
            raise InvalidConfigError(f"{limit.key} must be in the range {low} to {high} inclusive.")
    elif limit.low and value < low:
        raise InvalidConfigError(f"{limit.key} must be greater than or equal to {low}")
    elif limit.high and value > high:
        raise InvalidConfigError(f"{limit.key} must be less than or equal to {high}")


def _bounds(limit: _Limit, broker: BrokerConfig) -> tuple[int, int]:
    low = _broker_value(limit.low, broker, limit.low_default) if limit.low else -LONG_MAX
    high = _broker_value(limit.high, broker, limit.high_default) if limit.high else LONG_MAX
    return low, high


def _list_parts(text: str) -> list[str]:
    return re.split(r"\s*,\s*", text.strip()) if text.strip() else []


def _broker_value(name: str, broker: BrokerConfig, default: Any = None, type_: ConfigType = _INT) -> Any:
    """Return a broker's value under a key of Kafka, also of one that the broker itself does not use."""
    if name in BROKER_KEYS:
        return broker[name]
    key = kafka_broker_keys().get(name) or ConfigKey(name, type_, default, "")
    raw = broker.unknown.get(name)
    return key.default if raw is None else key.parse(raw)


class GroupConfig:
    """Typed values by group key for one group: what is set on it, over the broker's values, within the bounds."""

    def __init__(self, configs: Mapping[str, str], broker: BrokerConfig) -> None:
        """`configs` were good when they were set; one that no longer is counts as if it were not set."""
        self._configs = configs
        self._broker = broker

    def __getitem__(self, name: str) -> Any:
        key = GROUP_KEYS[name]
        value = _readable(key, self._configs.get(name))
        return group_default(key, self._broker) if value is None else self._bounded(name, value)

    def _bounded(self, name: str, value: Any) -> Any:
        for limit in _LIMITS:
            if limit.key == name:
                low, high = _bounds(limit, self._broker)
                return min(max(value, low), high)
        return value


def group_default(key: ConfigKey, broker: BrokerConfig) -> Any:
    """Return the value of a group on which the key is not set."""
    if not key.broker_key:
        return key.default
    if key.name == STREAMS_ASSIGNOR:
        return next(iter(_broker_value(_STREAMS_ASSIGNORS, broker)), None)
    return _broker_value(key.broker_key, broker, key.default, key.type)


def _readable(key: ConfigKey, raw: str | None) -> Any:
    """Return the value of what is set; None for nothing, and for what this version cannot read."""
    if raw is None:
        return None
    try:
        return key.parse(raw)
    except InvalidConfigError:
        return None
