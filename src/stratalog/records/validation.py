"""What a leader checks of batches from a client before it appends them. Per batch, never per record.

Source: Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator.validateBatch`.
Three differences, all on the strict side: bytes after the last complete batch are an error (Kafka drops them), a batch that
claims LogAppendTime is refused for every topic (Kafka does so for LogAppendTime topics only), and an unknown codec is
UNSUPPORTED_COMPRESSION_TYPE (Kafka fails the whole request).
"""

from __future__ import annotations

from typing_extensions import Buffer

from stratalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.compression import Codec

_REFUSED_BITS = fmt.CONTROL_BIT | fmt.LOG_APPEND_TIME_BIT


def validate_client_batches(
    buffer: Buffer, *, max_message_bytes: int, single_batch: bool = False
) -> list[RecordBatch]:
    """Check everything in `buffer` and return its batches; nothing is copied or decompressed.

    `single_batch` adds the rule of Produce requests: exactly one batch per partition. Raises the first of:
      CorruptRecordError               lengths or magic that no batch has, bytes beyond the last whole batch, a wrong CRC
      InvalidRecordError               no batch, or more than one with `single_batch`; message formats 0 and 1; base
                                       offset not 0; record count not positive or not that of the offsets; a control
                                       batch; a producer id without sequence
      MessageTooLargeError             a batch of more than `max_message_bytes` bytes, header and all
      UnsupportedCompressionTypeError  a codec number without a codec
      InvalidTimestampError            a batch that claims LogAppendTime
    """
    view = memoryview(buffer)
    batches = list(iter_batches(view))
    if not batches:
        if len(view):
            raise CorruptRecordError(f"{len(view)} bytes hold no whole batch: {_expectation(view, 0)}")
        raise InvalidRecordError("no record batch at all, expected at least one")
    last = batches[-1]
    end = last.start + last.size
    if end != len(view):
        raise CorruptRecordError(
            f"{len(view) - end} bytes at position {end} after the last whole batch: {_expectation(view, end)}"
        )
    if single_batch and len(batches) > 1:
        raise InvalidRecordError(f"{len(batches)} record batches for one partition, expected exactly one")
    for batch in batches:
        _validate_batch(batch, max_message_bytes)
    return batches


def _validate_batch(batch: RecordBatch, max_message_bytes: int) -> None:
    if batch.magic != fmt.MAGIC:
        raise InvalidRecordError(
            f"message at position {batch.start}: message format {batch.magic}, clients may only write format {fmt.MAGIC}"
        )
    if batch.base_offset != 0:
        raise InvalidRecordError(f"{_name(batch)}: a client's batch begins at offset 0")
    if batch.size > max_message_bytes:
        raise MessageTooLargeError(
            f"{_name(batch)}: {batch.size} bytes, but max.message.bytes allows {max_message_bytes}"
        )
    batch.ensure_valid()
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta != count - 1:
        raise InvalidRecordError(
            f"{_name(batch)}: last offset delta {batch.last_offset_delta} and record count {count} do not agree,"
            " expected a positive count and one offset for each record"
        )
    attributes = batch.attributes
    if attributes & fmt.CODEC_MASK > Codec.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"{_name(batch)}: compression type {attributes & fmt.CODEC_MASK}, expected 0 to {Codec.ZSTD.value}"
        )
    if attributes & _REFUSED_BITS:
        if attributes & fmt.CONTROL_BIT:
            raise InvalidRecordError(f"{_name(batch)}: clients may not write control records")
        raise InvalidTimestampError(
            f"{_name(batch)}: a producer may not set the timestamp type LogAppendTime"
        )
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidRecordError(
            f"{_name(batch)}: base sequence {batch.base_sequence} with producer id {batch.producer_id},"
            " expected 0 or more"
        )


def _name(batch: RecordBatch) -> str:
    return f"batch at position {batch.start} (base offset {batch.base_offset})"


def _expectation(view: memoryview, position: int) -> str:
    if len(view) - position < fmt.HEADER_SIZE_UP_TO_MAGIC:
        return f"a batch takes at least {fmt.HEADER_SIZE} bytes"
    (length,) = fmt.INT32.unpack_from(view, position + fmt.LENGTH_AT)
    return f"the batch there needs {length + fmt.LOG_OVERHEAD}"
