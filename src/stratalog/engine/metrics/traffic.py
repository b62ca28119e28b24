"""Bytes and records that clients have written and read, by topic, as in Kafka's `BrokerTopicMetrics`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TopicTraffic:
    """Counts of one topic. A request counts once for each partition of the topic in it.

    `failed_*` are unexpected failures, as in Kafka, without client errors.
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
    #: Fetched from leaders, and sent to followers.
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    #: The part of these for replicas added by a reassignment.
    reassignment_bytes_in: int = 0
    reassignment_bytes_out: int = 0
    #: Requests of members of share groups, each once for a topic; failed ones are all with an error.
    share_fetch_requests: int = 0
    failed_share_fetch_requests: int = 0
    share_acknowledgement_requests: int = 0
    failed_share_acknowledgement_requests: int = 0
    #: Refused: wrong CRC.
    invalid_crc: int = 0
    #: Refused: unsupported message format.
    invalid_magic: int = 0
    #: Refused: offsets or sequence numbers out of order.
    invalid_offset_or_sequence: int = 0
    #: Refused: no key, in a compacted topic.
    no_key_compacted: int = 0
