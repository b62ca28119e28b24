"""Metrics of what clients write and read.

`kafka.server:type=BrokerTopicMetrics`, by topic and (without one) over all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics.metric import Metric, Sample, kafka_metric

BY_TOPIC = "kafka.server:type=BrokerTopicMetrics,name="


def _reader(attribute: str) -> Callable[[LogManager], Iterable[Sample]]:
    def read(logs: LogManager) -> Iterable[Sample]:
        yield Sample(("",), getattr(logs.traffic.total(), attribute))
        for topic, counts in sorted(logs.traffic.topics().items()):
            yield Sample((topic,), getattr(counts, attribute))

    return read


def _counter(name: str, attribute: str, help_text: str) -> Metric[LogManager]:
    return kafka_metric(BY_TOPIC + name, _reader(attribute), help_text, ("topic",))


METRICS: tuple[Metric[LogManager], ...] = (
    _counter("BytesInPerSec", "bytes_in", "Bytes of batches that were appended."),
    _counter("MessagesInPerSec", "messages_in", "Records that were appended."),
    _counter("BytesOutPerSec", "bytes_out", "Bytes of batches that consumers were given."),
    _counter("BytesRejectedPerSec", "bytes_rejected", "Bytes of batches above max.message.bytes."),
    _counter("TotalProduceRequestsPerSec", "produce_requests",
             "Appends: a Produce request counts once for each of its partitions."),
    _counter("FailedProduceRequestsPerSec", "failed_produce_requests",
             "Those that failed for other reasons than a wrong request or a partition that is not here."),
    _counter("TotalFetchRequestsPerSec", "fetch_requests",
             "Reads: a Fetch request counts once for each of its partitions."),
    _counter("FailedFetchRequestsPerSec", "failed_fetch_requests",
             "Those that failed for other reasons than a wrong request or a partition that is not here."),
    _counter("InvalidMessageCrcRecordsPerSec", "invalid_crc", "Batches that were refused: their CRC does not fit."),
    _counter("InvalidMagicNumberRecordsPerSec", "invalid_magic",
             "Batches that were refused: a message format that Produce does not take."),
    _counter("InvalidOffsetOrSequenceRecordsPerSec", "invalid_offset_or_sequence",
             "Batches that were refused: offsets, counts or sequence numbers that cannot be."),
    _counter("NoKeyCompactedTopicRecordsPerSec", "no_key_compacted",
             "Records that were refused: no key, in a compacted topic."),
)  # fmt: skip
