"""Settings of groups of the consumer protocol that have to fit each other, as Kafka checks them at a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratalog.errors import InvalidConfigError

#: A setting, and the limits between which it has to be.
_LIMITED = (
    (
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    (
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
)


def check_group_limits(values: Mapping[str, Any]) -> None:
    """Raise InvalidConfigError for an interval or timeout that is not within its own limits."""
    for key, low, high in _LIMITED:
        _require(values[high] >= values[low], f"{high} must be greater than or equal to {low}")
        _require(values[key] >= values[low], f"{key} must be greater than or equal to {low}")
        _require(values[key] <= values[high], f"{key} must be less than or equal to {high}")
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    _require(values[heartbeat] < values[session], f"{heartbeat} must be less than {session}")


def _require(is_so: bool, message: str) -> None:
    if not is_so:
        raise InvalidConfigError(message)
