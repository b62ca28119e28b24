"""Dump `.txnindex`, `.snapshot`, checkpoints and other small files, entry by entry.

kafka-dump-log only knows the first two; the format of the others is our own.
"""

from __future__ import annotations

import json

from stratalog.cli.dump.output import Problems, TextOutput
from stratalog.cli.dump.ranges import DumpRange
from stratalog.cli.dump.source import DumpSource, read_all
from stratalog.config import parse_properties
from stratalog.errors import StratalogError
from stratalog.log.format import checkpoints, producer_snapshot
from stratalog.log.index import AbortedTransaction, txn_index
from stratalog.log.producers import BatchMetadata
from stratalog.util import uuid_to_base64


def dump_txn_index(source: DumpSource, output: TextOutput, problems: Problems) -> None:
    data = read_all(source)
    try:
        for entry in txn_index.decode_entries(data, source.name):
            if not _is_wanted(entry, output.options.range):
                continue
            output.fields(
                version=txn_index.VERSION,
                producerId=entry.producer_id,
                firstOffset=entry.first_offset,
                lastOffset=entry.last_offset,
                lastStableOffset=entry.last_stable_offset,
            )
    except StratalogError as error:
        problems.add(str(error))
    size = memoryview(data).nbytes
    if size % txn_index.ENTRY_SIZE:
        problems.add(f"{source.name}: {size} bytes are not a multiple of the entry size {txn_index.ENTRY_SIZE}")


def _is_wanted(entry: AbortedTransaction, wanted: DumpRange) -> bool:
    start, end = wanted.start, wanted.end
    if start is not None and not start.is_position and entry.last_offset < start.value:
        return False
    return end is None or end.is_position or entry.first_offset < end.value


def dump_snapshot(source: DumpSource, output: TextOutput, _: Problems) -> None:
    for entry in producer_snapshot.decode(read_all(source), source.name):
        batch = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
        output.producer(
            {
                "producerId": entry.producer_id,
                "producerEpoch": entry.epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "currentTxnFirstOffset": entry.current_txn_first_offset
                if entry.current_txn_first_offset >= 0
                else None,
                "lastTimestamp": entry.timestamp_ms,
            },
            {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp_ms,
            }
            if entry.last_offset >= 0
            else None,
        )


def dump_leader_epochs(source: DumpSource, output: TextOutput, _: Problems) -> None:
    for entry in checkpoints.decode_epochs(bytes(read_all(source)), source.name):
        output.fields(epoch=entry.epoch, startOffset=entry.start_offset)


def dump_offset_checkpoint(source: DumpSource, output: TextOutput, _: Problems) -> None:
    offsets = checkpoints.decode_offsets(bytes(read_all(source)), source.name)
    for (topic, partition), offset in offsets.items():
        output.fields(topic=topic, partition=partition, offset=offset)


def dump_partition_metadata(source: DumpSource, output: TextOutput, _: Problems) -> None:
    topic_id = checkpoints.decode_partition_metadata(bytes(read_all(source)), source.name)
    output.fields(version=checkpoints.VERSION, topicId=uuid_to_base64(topic_id))


def dump_properties(source: DumpSource, output: TextOutput, problems: Problems) -> None:
    """Print `meta.properties`, one key and value per line."""
    try:
        properties = parse_properties(bytes(read_all(source)).decode(), source.name)
    except UnicodeDecodeError as error:
        problems.add(f"{source.name}: byte {error.start} is not UTF-8 text")
        return
    for key, value in properties.items():
        output.fields(**{key: value})


def dump_json(source: DumpSource, output: TextOutput, problems: Problems) -> None:
    """Print the fields of a JSON object: `.kafka_cleanshutdown` and `quorum-state`."""
    try:
        fields = json.loads(bytes(read_all(source)))
    except ValueError as error:
        problems.add(f"{source.name}: not JSON: {error}")
        return
    if not isinstance(fields, dict):
        problems.add(f"{source.name}: expected a JSON object, found {type(fields).__name__}")
        return
    output.fields(**{str(key): value for key, value in fields.items()})
