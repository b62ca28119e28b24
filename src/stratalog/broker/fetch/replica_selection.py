"""Which broker a consumer had better read from (KIP-392): the one in its own rack.

Source: `RackAwareReplicaSelector` and `ReplicaManager.findPreferredReadReplica` of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.engine.replication import ReadableReplica


def rack_aware(rack: str, followers: Iterable[ReadableReplica], rack_of: Callable[[int], str | None]) -> int:
    """Return the follower in `rack` that is furthest, -1 without one; for a leader that is in another rack.

    Among equals, the one that was caught up last, and then the one with the highest id.
    """
    near = [each for each in followers if rack_of(each.broker) == rack]
    best = max(near, key=lambda each: (each.log_end_offset, -each.behind_ms, each.broker), default=None)
    return -1 if best is None else best.broker
