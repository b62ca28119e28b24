"""What the remote tier has done so far, by topic: plain counts that only grow, read by whoever shows metrics.

One set a topic, as Kafka's `BrokerTopicMetrics` has them. Counts are of this process; a rate is their difference over time.
Thread safety: `topic` may be called by any thread. A count is raised with `counts.copy_requests += 1`, under no lock: each
is raised where the work is done, which is rare, and one lost in a race of two threads is no harm to a rate.
"""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass


@dataclass(slots=True)
class RemoteTopicCounts:
    """Of one topic. A request is one segment that is copied or deleted, or one read; bytes are those of segments and records.

    A request that fails counts as a request and as an error. `aux_state` is what a follower builds up from the remote tier.
    """

    copy_requests: int = 0
    copy_bytes: int = 0
    copy_errors: int = 0
    fetch_requests: int = 0
    fetch_bytes: int = 0
    fetch_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    aux_state_requests: int = 0
    aux_state_errors: int = 0

    def __add__(self, other: RemoteTopicCounts) -> RemoteTopicCounts:
        return RemoteTopicCounts(
            *(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True))
        )


class RemoteCounts:
    """The counts of every topic, and of all together, those that are gone included: a total never falls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, RemoteTopicCounts] = {}
        self._gone = RemoteTopicCounts()

    def topic(self, name: str) -> RemoteTopicCounts:
        """The counts of a topic, to be raised."""
        found = self._topics.get(name)
        if found is None:
            with self._lock:
                found = self._topics.setdefault(name, RemoteTopicCounts())
        return found

    def forget(self, name: str) -> None:
        """The topic is deleted: what it had stays in the total only."""
        with self._lock:
            self._gone += self._topics.pop(name, RemoteTopicCounts())

    def topics(self) -> dict[str, RemoteTopicCounts]:
        with self._lock:
            return dict(self._topics)

    def total(self) -> RemoteTopicCounts:
        """Of all topics that there are and were."""
        with self._lock:
            return sum(self._topics.values(), self._gone)
