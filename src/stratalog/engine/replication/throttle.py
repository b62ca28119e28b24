"""Throttled replication (KIP-73): one rate for a broker as leader, and one as follower.

Only replicas named in a topic's configuration count, and only those out of sync wait. Replicas that are moved, or
return after a long time, thus leave bandwidth to clients and to in-sync replicas.

Source: `ReplicationQuotaManager` and `SimpleRate` of Kafka 4.4.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stratalog.config import BrokerConfig
    from stratalog.util import Clock

_ALL: Final = ("*",)


class _Window:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0


class ReplicationThrottle:
    """One rate. Thread-safe."""

    def __init__(self, clock: Clock, node_id: int, limit: Callable[[], int], *, windows: int, window_ms: int) -> None:
        """`limit` returns the current limit in bytes per second."""
        self._clock = clock
        self._node_id = node_id
        self._limit = limit
        self._window_ms = window_ms
        #: One window more than is measured, because it may overlap.
        self._windows: deque[_Window] = deque(maxlen=windows + 1)
        self._span_ms = windows * window_ms
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """The limit in bytes per second."""
        return self._limit()

    def is_throttled(self, replicas: tuple[str, ...], partition: int) -> bool:
        """Return whether a topic's list of throttled replicas has this broker's of a partition."""
        if not replicas:
            return False
        return replicas == _ALL or partition in _partitions(replicas, self._node_id)

    def record(self, size: int) -> None:
        """Count bytes. They affect the next check."""
        with self._lock:
            now_ms = self._now_ms()
            if not self._windows or now_ms - self._windows[-1].start_ms >= self._window_ms:
                self._windows.append(_Window(now_ms))
            window = self._windows[-1]
            window.size += size
            window.last_ms = now_ms

    def rate(self) -> float:
        """Return the bytes per second of the last windows."""
        with self._lock:
            now_ms = self._now_ms()
            while self._windows and now_ms - self._windows[0].last_ms >= self._span_ms:
                self._windows.popleft()
            if not self._windows:
                return 0.0
            elapsed_ms = max(now_ms - self._windows[0].start_ms, self._window_ms)
            return sum(each.size for each in self._windows) / (elapsed_ms / 1000)

    @property
    def is_exceeded(self) -> bool:
        return self.rate() > self._limit()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


@lru_cache(maxsize=256)
def _partitions(replicas: tuple[str, ...], node_id: int) -> frozenset[int]:
    """Return the partitions for which a list of PARTITION:BROKER has the broker."""
    pairs = (each.split(":") for each in replicas if each)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)


class LeaderAndFollowerThrottle:
    """Both throttles of a broker. `config` is replaced when it changes."""

    def __init__(self, config: BrokerConfig, clock: Clock, node_id: int) -> None:
        self.config = config

        def throttle(key: str) -> ReplicationThrottle:
            return ReplicationThrottle(
                clock,
                node_id,
                lambda: int(self.config[key]),
                windows=config["replication.quota.window.num"],
                window_ms=config["replication.quota.window.size.seconds"] * 1000,
            )

        self.leader = throttle("leader.replication.throttled.rate")
        self.follower = throttle("follower.replication.throttled.rate")
