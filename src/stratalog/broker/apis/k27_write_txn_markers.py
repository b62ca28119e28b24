"""WriteTxnMarkers (27): put the end of a transaction into partitions.

Brokers send it, and `kafka-transactions.sh abort`.

v1 and v2. v2: the transactions version of the marker, by which the epoch is checked (KIP-1228).
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import TopicPartition
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import Marker, MarkerWriter, ProducerIdAndEpoch
from stratalog.errors import UnknownServerError

#: No producer id, no producer epoch.
_NONE = -1


@handles(ApiKey.WRITE_TXN_MARKERS, versions=(1, 2))
def write_txn_markers(ctx: RequestContext, request: Any) -> Any:
    markers = MarkerWriter(ctx.broker.logs, ctx.broker.clock, ctx.broker.groups)
    return ctx.respond(markers=[_write(ctx, markers, asked) for asked in request.markers if _is_about_any(asked)])


def _is_about_any(asked: Any) -> bool:
    return any(topic.partition_indexes for topic in asked.topics)


def _write(ctx: RequestContext, markers: MarkerWriter, asked: Any) -> Any:
    marker = Marker(
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        asked.transaction_result,
        asked.coordinator_epoch,
        getattr(asked, "transaction_version", 0),
    )
    impossible = marker.producer.id == _NONE or (
        marker.producer.id >= 0 and (marker.producer.epoch == _NONE or marker.transaction_version < 0)
    )
    return ctx.make(
        "WritableTxnMarkerResult",
        producer_id=asked.producer_id,
        topics=[
            ctx.make(
                "WritableTxnMarkerTopicResult",
                name=topic.name,
                partitions=[
                    ctx.make(
                        "WritableTxnMarkerPartitionResult",
                        partition_index=number,
                        error_code=_code(
                            ctx, markers, marker, TopicPartition(topic.name, number), impossible=impossible
                        ),
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


def _code(
    ctx: RequestContext, markers: MarkerWriter, marker: Marker, partition: TopicPartition, *, impossible: bool
) -> int:
    if impossible and ctx.broker.partition(partition.topic, partition.partition) is not None:
        return UnknownServerError.code
    return markers.write(marker, partition)
