"""The checks of a leader on batches from a client before it looks at their records (`record_scan`).

Source: Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator.validateBatch`.
As there, the beginning of one more batch after the last complete one is dropped. One difference: an unknown codec is
UNSUPPORTED_COMPRESSION_TYPE (in Kafka an UNKNOWN_SERVER_ERROR).

Messages of formats 0 and 1 pass: a log converts them (Produce refuses them from clients).
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Buffer

from stratalog.errors import (
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.compression import Codec


def validate_client_batches(buffer: Buffer, *, max_message_bytes: int) -> list[RecordBatch]:
    """Check everything in `buffer` that batch headers show; nothing is copied or decompressed.

    The result is one batch, or several uncompressed messages of format 0 or 1. Raises the first of:
      CorruptRecordError               lengths or magic that no batch has, a wrong CRC
      InvalidRecordError               no whole batch, or more than one; several formats; base offset not 0; record
                                       count not positive or not that of the offsets; a control batch; a producer id
                                       without sequence
      MessageTooLargeError             a batch of more than `max_message_bytes` bytes, header and all
      UnsupportedCompressionTypeError  a codec number without a codec
    """
    view = memoryview(buffer)
    batches = list(iter_batches(view))
    if not batches:
        what = f"{len(view)} bytes hold no whole batch: {_expectation(view, 0)}" if view else "no record batch at all"
        raise InvalidRecordError(f"{what}, expected exactly one")
    for batch in batches:
        _validate_intact(batch, max_message_bytes)
    _validate_number(batches)
    for batch in batches:
        if batch.magic == fmt.MAGIC:
            _validate_header(batch)
    return batches


def _validate_intact(batch: RecordBatch, max_message_bytes: int) -> None:
    if batch.magic == fmt.MAGIC and batch.base_offset != 0:
        raise InvalidRecordError("a client's batch begins at offset 0", where=batch.name)
    if batch.size > max_message_bytes:
        raise MessageTooLargeError(
            f"{batch.size} bytes, but max.message.bytes allows {max_message_bytes}", where=batch.name
        )
    batch.ensure_valid()
    codec = batch.attributes & fmt.CODEC_MASK
    if codec > Codec.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"compression type {codec}, expected 0 to {Codec.ZSTD.value}", where=batch.name
        )


def _validate_number(batches: Sequence[RecordBatch]) -> None:
    """Allow one batch, or uncompressed messages of one old format, which are one record each."""
    first = batches[0]
    for batch in batches[1:]:
        if batch.magic == fmt.MAGIC or first.magic == fmt.MAGIC or any(b.codec for b in batches):
            raise InvalidRecordError(f"{len(batches)} record batches for one partition, expected exactly one")
        if batch.magic != first.magic:
            raise InvalidRecordError(
                f"message at position {batch.start}: message format {batch.magic} after format {first.magic}"
            )


def _validate_header(batch: RecordBatch) -> None:
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta != count - 1:
        raise InvalidRecordError(
            f"last offset delta {batch.last_offset_delta} and record count {count} do not agree,"
            " expected a positive count and one offset for each record",
            where=batch.name,
        )
    if batch.is_control:
        raise InvalidRecordError("clients may not write control records", where=batch.name)
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidRecordError(
            f"base sequence {batch.base_sequence} with producer id {batch.producer_id}, expected 0 or more",
            where=batch.name,
        )


def _expectation(view: memoryview, position: int) -> str:
    if len(view) - position < fmt.HEADER_SIZE_UP_TO_MAGIC:
        return f"a batch takes at least {fmt.HEADER_SIZE} bytes"
    (length,) = fmt.INT32.unpack_from(view, position + fmt.LENGTH_AT)
    return f"the batch there needs {length + fmt.LOG_OVERHEAD}"
