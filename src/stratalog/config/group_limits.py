"""Settings of groups of the newer protocols that have to fit each other, as Kafka checks them at a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratalog.errors import InvalidConfigError

_PROTOCOLS = ("consumer", "share", "streams")
#: Settings that have limits between which they have to be.
_LIMITED = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
_LIMITED_OF_SHARE = ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")


def check_group_limits(values: Mapping[str, Any]) -> None:
    """Raise InvalidConfigError for an interval or timeout that is not within its own limits."""
    for protocol in _PROTOCOLS:
        for name in _LIMITED:
            key = f"group.{protocol}.{name}"
            low, high = f"group.{protocol}.min.{name}", f"group.{protocol}.max.{name}"
            _require(values[high] >= values[low], f"{high} must be greater than or equal to {low}")
            _require(values[key] >= values[low], f"{key} must be greater than or equal to {low}")
            _require(values[key] <= values[high], f"{key} must be less than or equal to {high}")
        heartbeat, session = f"group.{protocol}.heartbeat.interval.ms", f"group.{protocol}.session.timeout.ms"
        _require(values[heartbeat] < values[session], f"{heartbeat} must be less than {session}")
    for name in _LIMITED_OF_SHARE:
        key, low, high = (f"group.share.{bound}{name}" for bound in ("", "min.", "max."))
        _require(values[high] >= values[key], f"{high} must be greater than or equal to {key}")
        _require(values[key] >= values[low], f"{key} must be greater than or equal to {low}")
    sessions, members = "group.share.max.share.sessions", "group.share.max.size"
    _require(values[sessions] >= values[members], f"{sessions} must be greater than or equal to {members}")
    standby, most = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    _require(values[standby] <= values[most], f"{standby} must be less than or equal to {most}")


def _require(is_so: bool, message: str) -> None:
    if not is_so:
        raise InvalidConfigError(message)
