"""The broker's dynamic configuration: its compatibility with the file, and its effect at startup. Pure.

It is checked before it is stored. But the other settings may change later (the file, `--set`, a newer version's rules).
So startup ignores what is no longer valid instead of failing: a client's setting must not prevent a broker from
starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stratalog.config import BROKER_KEYS, BrokerConfig, LogConfig, invalid
from stratalog.engine.cleaning import CleanerConfig
from stratalog.errors import InvalidConfigError


@dataclass(frozen=True, slots=True)
class InForce:
    """The effective configuration, and by key why dynamic settings are ignored."""

    config: BrokerConfig
    ignored: Mapping[str, str] = field(default_factory=dict)


def check_rules(config: BrokerConfig, *, large: bool) -> None:
    """Raise InvalidConfigError unless the broker's values are consistent: the cleaner's, and the topic defaults.

    `large`: the current level supports large segments.
    """
    CleanerConfig.of(config)
    config.check_segment_size(large=large)
    LogConfig.from_properties({}, config, use_large_index_format=large)


def in_force(static: BrokerConfig, dynamic: Mapping[str, str], *, large: bool) -> InForce:
    """Return the file's values with as many dynamic ones as are consistent. `static` must be consistent by itself."""
    usable, ignored = {}, {}
    for name, raw in dynamic.items():
        why = _unusable(static, name, raw)
        if why is None:
            usable[name] = raw
        else:
            ignored[name] = why
    why = _conflict(static, usable, large)
    if why is None:
        return InForce(static.with_overrides(usable) if usable else static, ignored)
    # Rare: add one at a time, in any order that works.
    taken: dict[str, str] = {}
    waiting = dict(sorted(usable.items()))
    grew = True
    while grew:
        grew = False
        for name in list(waiting):
            why = _conflict(static, {**taken, name: waiting[name]}, large)
            if why is None:
                taken[name] = waiting.pop(name)
                ignored.pop(name, None)
                grew = True
            else:
                ignored[name] = why
    return InForce(static.with_overrides(taken), ignored)


def _unusable(static: BrokerConfig, name: str, raw: str) -> str | None:
    """Return why a stored value cannot be used at all; None if it can."""
    key = BROKER_KEYS.get(name)
    if key is None:
        return None
    if not key.dynamic:
        return "this version does not support it dynamically"
    try:
        value = key.parse(raw)
        if name == "max.connections" and value < min(1, static[name]):
            raise invalid(name, value, "without a connection it could not be changed back")
    except InvalidConfigError as error:
        return str(error)
    return None


def _conflict(static: BrokerConfig, dynamic: Mapping[str, str], large: bool) -> str | None:
    try:
        check_rules(static.with_overrides(dict(dynamic)), large=large)
    except InvalidConfigError as error:
        return str(error)
    return None
