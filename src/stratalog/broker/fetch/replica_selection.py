"""Selection of the preferred read replica (KIP-392): one in the consumer's rack.

Source: `RackAwareReplicaSelector` and `ReplicaManager.findPreferredReadReplica` of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.engine.replication import ReadableReplica


def rack_aware(rack: str, followers: Iterable[ReadableReplica], rack_of: Callable[[int], str | None]) -> int:
    """Return the follower in `rack` with the highest end offset, -1 if none; for a leader in another rack.

    Ties are resolved by the follower that was caught up last, then by the highest id.
    """
    near = [each for each in followers if rack_of(each.broker) == rack]
    best = max(near, key=lambda each: (each.log_end_offset, -each.behind_ms, each.broker), default=None)
    return -1 if best is None else best.broker
