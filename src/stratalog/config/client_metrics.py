"""Configuration of subscriptions to metrics of clients (KIP-714): keys, checks, and which clients one is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stratalog.config.keys import ConfigKey, ConfigRegistry, ConfigType
from stratalog.errors import InvalidConfigError, InvalidRequestError

#: Stands for every metric.
ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 5 * 60 * 1000
_INTERVAL_MIN_MS, _INTERVAL_MAX_MS = 100, 60 * 60 * 1000

#: What a pattern can be matched against.
CLIENT_ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_KEYS = ConfigRegistry(
    [
        ConfigKey("metrics", ConfigType.LIST, (), "Prefixes of the metrics to push; '*' for all.", dynamic=True),
        ConfigKey("interval.ms", ConfigType.INT, DEFAULT_INTERVAL_MS, "How often clients push.", dynamic=True),
        ConfigKey(
            "match", ConfigType.LIST, (), "The clients: attribute=regular expression, all of them; else every client.",
            dynamic=True,
        ),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """One subscription: metrics, push interval and matching clients."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any]

    @classmethod
    def from_properties(cls, configs: Mapping[str, str]) -> ClientMetricsConfig:
        """Return what is set on a subscription. Raises InvalidRequestError and InvalidConfigError in Kafka's words."""
        for name in configs:
            if name not in CLIENT_METRICS_KEYS:
                raise InvalidRequestError(f"Unknown client metrics configuration: {name}")
        values = {key.name: _parse(key, configs) for key in CLIENT_METRICS_KEYS}
        interval_ms = values["interval.ms"]
        if not _INTERVAL_MIN_MS <= interval_ms <= _INTERVAL_MAX_MS:
            raise InvalidRequestError(
                f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
            )
        return cls(values["metrics"], interval_ms, dict(map(_pattern, values["match"])))

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Return whether the subscription is for a client of these attributes."""
        for name, pattern in self.patterns.items():
            value = attributes[name]
            if value is None or pattern.fullmatch(value) is None:
                return False
        return True


def _parse(key: ConfigKey, configs: Mapping[str, str]) -> Any:
    raw = configs.get(key.name)
    if raw is None:
        return key.default
    if key.type is ConfigType.LIST and raw.strip() and "" in [part.strip() for part in raw.split(",")]:
        raise InvalidConfigError(f"Configuration '{key.name}' values must not be empty.")
    return key.parse(raw)


def _pattern(text: str) -> tuple[str, Any]:
    """Return the attribute and the compiled expression of `attribute=expression`.

    RE2 matches in linear time; what only Java's expressions can say is refused.
    """
    parts = text.split("=")
    while parts and not parts[-1]:  # as Java's split leaves them out
        parts.pop()
    illegal = InvalidConfigError(f"Illegal client matching pattern: {text}")
    if len(parts) != 2 or parts[0].strip() not in CLIENT_ATTRIBUTES:
        raise illegal
    import re2  # start-up cost

    options = re2.Options()
    options.log_errors = False
    try:
        return parts[0].strip(), re2.compile(parts[1].strip(), options)
    except re2.error:
        raise illegal from None
