"""WriteTxnMarkers (27): write the end of a transaction to partitions.

Brokers and `kafka-transactions.sh abort` send it. v1 and v2. v2: the transactions version of the marker, by which the
epoch is checked (KIP-1228).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from stratalog.broker.groups import TopicPartition
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import Marker, MarkerWriter, ProducerIdAndEpoch
from stratalog.errors import UnknownServerError

#: No producer id, no producer epoch.
_NONE = -1


@handles(ApiKey.WRITE_TXN_MARKERS, versions=(1, 2))
async def write_txn_markers(ctx: RequestContext, request: Any) -> Any:
    markers = MarkerWriter(ctx.broker.logs, ctx.broker.clock, ctx.broker.groups)
    answers = [_write(ctx, markers, asked) for asked in request.markers if _is_about_any(asked)]
    if ctx.broker.transactions.peers is None:
        return ctx.respond(markers=[await answer for answer in answers])
    return ctx.respond(markers=await asyncio.gather(*answers))  # wait for their replicas concurrently


def _is_about_any(asked: Any) -> bool:
    return any(topic.partition_indexes for topic in asked.topics)


async def _write(ctx: RequestContext, markers: MarkerWriter, asked: Any) -> Any:
    marker = Marker(
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        asked.transaction_result,
        asked.coordinator_epoch,
        getattr(asked, "transaction_version", 0),
    )
    impossible = marker.producer.id == _NONE or (marker.producer.id >= 0 and marker.producer.epoch == _NONE)
    wanted = await ctx.beside(_partitions, asked)
    codes = dict.fromkeys(wanted, UnknownServerError.code)
    possible = [
        each
        async for each in ctx.in_turns(wanted)
        if not impossible or ctx.broker.partition(each.topic, each.partition) is None
    ]
    peers = ctx.broker.transactions.peers
    if peers is not None:
        codes |= await peers.write_here(marker, possible)
    else:  # each partition is on its own: a marker has its effect there alone
        async for each in ctx.in_turns(possible):
            codes[each] = markers.write(marker, each)
    return await ctx.beside(_answer, ctx, asked, codes)


def _partitions(asked: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partition_indexes]


def _answer(ctx: RequestContext, asked: Any, codes: Mapping[TopicPartition, int]) -> Any:
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
                        error_code=codes[TopicPartition(topic.name, number)],
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
