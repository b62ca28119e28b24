"""Counters of the remote tier by topic, as in Kafka's `BrokerTopicMetrics`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RemoteTopicCounts:
    """Counts of one topic. A request is one segment copied or deleted, or one read; bytes are of segments and records.

    A failed request counts as a request and as an error. `aux_state` is what a follower builds from the remote tier.
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
