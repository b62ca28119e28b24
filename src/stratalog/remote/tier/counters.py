"""What the remote tier has done so far, by topic; the counts of Kafka's `BrokerTopicMetrics`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RemoteTopicCounts:
    """Of one topic. A request is one segment that is copied or deleted, or one read; bytes are of segments and records.

    A request that fails counts as a request and as an error. `aux_state` is what a follower builds up from the remote
    tier.
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
