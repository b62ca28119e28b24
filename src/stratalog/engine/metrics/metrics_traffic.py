"""Metrics of what clients write and read.

`kafka.server:type=BrokerTopicMetrics`, by topic and (without one) over all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics.metric import Metric, Sample, kafka_metric, single

BY_TOPIC = "kafka.server:type=BrokerTopicMetrics,name="


def by_topic(total: Any, topics: Mapping[str, Any], attribute: str) -> Iterator[Sample]:
    """Yield a count over all topics and of each."""
    yield Sample(("",), getattr(total, attribute))
    for topic, counts in sorted(topics.items()):
        yield Sample((topic,), getattr(counts, attribute))


def _counter(name: str, attribute: str, help_text: str) -> Metric[LogManager]:
    def read(logs: LogManager) -> Iterator[Sample]:
        return by_topic(logs.traffic.total(), logs.traffic.topics(), attribute)

    return kafka_metric(BY_TOPIC + name, read, help_text, ("topic",))


def _of_replicas(name: str, attribute: str, help_text: str) -> Metric[LogManager]:
    """Declare a metric over all topics only, as in Kafka."""
    return kafka_metric(BY_TOPIC + name, lambda logs: single(getattr(logs.traffic.total(), attribute)), help_text)


METRICS: tuple[Metric[LogManager], ...] = (
    _counter("BytesInPerSec", "bytes_in", "Bytes of batches that were appended."),
    _counter("MessagesInPerSec", "messages_in", "Records that were appended."),
    _counter("BytesOutPerSec", "bytes_out", "Bytes of batches sent to consumers."),
    _counter("BytesRejectedPerSec", "bytes_rejected", "Bytes of batches above max.message.bytes."),
    _counter("TotalProduceRequestsPerSec", "produce_requests",
             "Appends: a Produce request counts once for each of its partitions."),
    _counter("FailedProduceRequestsPerSec", "failed_produce_requests",
             "Failures for reasons other than a wrong request or an unknown partition."),
    _counter("TotalFetchRequestsPerSec", "fetch_requests",
             "Reads: a Fetch request counts once for each of its partitions."),
    _counter("FailedFetchRequestsPerSec", "failed_fetch_requests",
             "Failures for reasons other than a wrong request or an unknown partition."),
    _counter("TotalShareFetchRequestsPerSec", "share_fetch_requests",
             "Fetches of share groups, each once for a topic."),
    _counter("FailedShareFetchRequestsPerSec", "failed_share_fetch_requests",
             "Those that had an error for a partition of the topic."),
    _counter("TotalShareAcknowledgementRequestsPerSec", "share_acknowledgement_requests",
             "Acknowledgements of share groups, each request once for a topic."),
    _counter("FailedShareAcknowledgementRequestsPerSec", "failed_share_acknowledgement_requests",
             "Those that had an error for a partition of the topic."),
    _counter("InvalidMessageCrcRecordsPerSec", "invalid_crc", "Batches that were refused: wrong CRC."),
    _counter("InvalidMagicNumberRecordsPerSec", "invalid_magic",
             "Batches that were refused: unsupported message format."),
    _counter("InvalidOffsetOrSequenceRecordsPerSec", "invalid_offset_or_sequence",
             "Batches that were refused: impossible offsets, counts or sequence numbers."),
    _of_replicas("ReplicationBytesInPerSec", "replication_bytes_in", "Bytes that this broker fetched from leaders."),
    _of_replicas("ReplicationBytesOutPerSec", "replication_bytes_out", "Bytes sent to followers."),
    _of_replicas("ReassignmentBytesInPerSec", "reassignment_bytes_in",
                 "Bytes that this broker fetched for replicas added by a reassignment."),
    _of_replicas("ReassignmentBytesOutPerSec", "reassignment_bytes_out",
                 "Bytes sent to followers for replicas added by a reassignment."),
    _counter("NoKeyCompactedTopicRecordsPerSec", "no_key_compacted",
             "Records that were refused: no key, in a compacted topic."),
)  # fmt: skip
