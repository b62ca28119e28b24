"""Limits of connections and of their creation rate, per broker, listener and address, as in Kafka."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from stratalog.config import BrokerConfig, invalid, listener_settings
from stratalog.errors import InvalidConfigError

logger = logging.getLogger(__name__)

_OVERRIDES: Final = "max.connections.per.ip.overrides"
_RATE: Final = "max.connection.creation.rate"
_MAX: Final = "max.connections"
#: Seconds' worth of connections allowed at once after a pause: the window that Kafka measures a rate in.
_BURST_S: Final = 10.0
#: Rounding error of sums of seconds, so that no wait is too short to change the time.
_ROUNDING: Final = 1e-6


class CreationRate:
    """The rate at which connections may be accepted, averaged over a few seconds."""

    def __init__(self, now: float, burst_s: float = _BURST_S) -> None:
        """`burst_s`: seconds' worth of connections allowed at once after a pause."""
        self._allowance: float | None = None
        self._at = now
        self._burst_s = burst_s

    def wait_s(self, rate: int, now: float) -> float:
        """Return the seconds until the next connection may be accepted."""
        burst = max(1.0, rate * self._burst_s)
        before = burst if self._allowance is None else self._allowance
        self._allowance = min(burst, before + (now - self._at) * rate)
        self._at = now
        if self._allowance >= 1 - _ROUNDING:
            return 0.0
        return (1 - self._allowance) / rate if rate else max(1.0, self._burst_s)

    def count(self) -> None:
        if self._allowance is not None:
            self._allowance -= 1


class ConnectionLimits:
    """The connections of a broker, counted. Belongs to the loop's thread.

    The inter-broker listener (`protected`) is exempt from `max.connections` if there is another listener: a connection
    of another listener is closed instead.
    """

    def __init__(
        self, config: Callable[[], BrokerConfig], names: tuple[str, ...], protected: str, clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._clock = clock
        self._protected = protected if len(names) > 1 else None
        self._listeners: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()
        windows = config()
        burst_s = float((windows["quota.window.num"] - 1) * windows["quota.window.size.seconds"])
        self._rate = CreationRate(clock(), burst_s)
        self._rates = {name: CreationRate(clock(), burst_s) for name in names}
        self._seen: BrokerConfig | None = None
        self._settings: dict[str, BrokerConfig] = {}
        self._overrides: dict[str, int] = {}

    def of(self, listener: str) -> BrokerConfig:
        """Return the current settings of one listener."""
        self._look()
        return self._settings[listener]

    def is_protected(self, listener: str) -> bool:
        return listener == self._protected

    def open(self) -> list[tuple[str, int]]:
        """Return the number of connections of each listener."""
        return [(name, self._listeners[name]) for name in self._rates]

    @property
    def is_full(self) -> bool:
        """Whether the broker has reached `max.connections`."""
        return bool(self._listeners.total() >= self._config()[_MAX])

    def has_room(self, listener: str) -> bool:
        """Return whether another connection may be accepted at a listener."""
        settings = self.of(listener)
        own = settings is not self._config() and f"listener.name.{listener.lower()}.{_MAX}" in settings.properties
        if own and self._listeners[listener] >= settings[_MAX]:
            return False
        return self.is_protected(listener) or not self.is_full

    def wait_s(self, listener: str) -> float:
        """Return the seconds for which a listener is throttled by the creation rates."""
        now = self._clock()
        wait = self._rate.wait_s(self._config()[_RATE], now)
        return max(wait, self._rates[listener].wait_s(self.of(listener)[_RATE], now))

    def count_accepted(self, listener: str) -> None:
        """Count a connection for the creation rates only."""
        self._rate.count()
        self._rates[listener].count()

    def take(self, listener: str, host: str) -> bool:
        """Count a new connection; False when its address has too many, and only the attempt is counted."""
        self.count_accepted(listener)
        self._look()
        if self._hosts[host] >= self._overrides.get(host, self._config()["max.connections.per.ip"]):
            return False
        self._hosts[host] += 1
        self._listeners[listener] += 1
        return True

    def give_back(self, listener: str, host: str) -> None:
        """Subtract a closed connection."""
        self._listeners[listener] -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _look(self) -> None:
        """Apply changed settings. A listener whose new settings are invalid keeps the old ones."""
        config = self._config()
        if config is self._seen:
            return
        self._seen = config
        for name in self._rates:
            try:
                self._settings[name] = listener_settings(config, name)
            except InvalidConfigError as error:
                self._settings.setdefault(name, config)
                logger.error("Listener %s keeps its settings: %s", name, error)
        self._overrides = {}
        for host, number in _overrides(config):
            try:
                self._overrides.update(dict.fromkeys(_addresses(host), number))
            except OSError as error:
                logger.error("%s: host %s is unknown, so it gets no limit of its own: %s", _OVERRIDES, host, error)


def parse_overrides(config: BrokerConfig) -> Mapping[str, int]:
    """Return the limits of single addresses. InvalidConfigError for an unknown host."""
    limits = {}
    for host, number in _overrides(config):
        try:
            limits.update(dict.fromkeys(_addresses(host), number))
        except OSError as error:
            raise invalid(_OVERRIDES, f"{host}:{number}", f"host {host} is not known") from error
    return limits


def _overrides(config: BrokerConfig) -> Iterator[tuple[str, int]]:
    for entry in config[_OVERRIDES]:
        host, _, number = entry.rpartition(":")
        yield host.strip().strip("[]"), int(number)


def _addresses(host: str) -> Iterator[str]:
    """Yield the addresses of a host. OSError when it is unknown."""
    for *_, where in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        yield str(where[0])
