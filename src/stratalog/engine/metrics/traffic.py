"""Bytes and records that clients have written and read, by topic; the counts of Kafka's `BrokerTopicMetrics`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TopicTraffic:
    """Of one topic. A request counts once for each partition of the topic in it.

    `failed_*` are unexpected failures, as in Kafka; a client that asks for the wrong thing is not among them.
    """

    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    #: Batches that were larger than max.message.bytes.
    bytes_rejected: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0
    #: What was fetched from leaders, and given to followers.
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    #: Of these, what replicas got that a reassignment brings in.
    reassignment_bytes_in: int = 0
    reassignment_bytes_out: int = 0
    #: Requests of members of share groups, each once for a topic; those that failed are all that had an error.
    share_fetch_requests: int = 0
    failed_share_fetch_requests: int = 0
    share_acknowledgement_requests: int = 0
    failed_share_acknowledgement_requests: int = 0
    #: Refused: a CRC that does not fit.
    invalid_crc: int = 0
    #: Refused: a message format that Produce does not take.
    invalid_magic: int = 0
    #: Refused: offsets or sequence numbers that do not follow.
    invalid_offset_or_sequence: int = 0
    #: Refused: no key, in a compacted topic.
    no_key_compacted: int = 0
