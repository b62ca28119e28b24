"""The checks of a leader on records before they get their offsets.

Also what it makes of those that cannot stay as they came.

Every record of a client's batch is looked at; of what the broker itself writes those for which a rule of the topic
asks. A batch then is

    refused      its records are not what its header says, or none; or with the numbers of the records at fault: a key
                 is missing, a timestamp is out of range
    corrected    in its header: the largest timestamp is that of its records, the timestamp type that of the topic
    rewritten with another codec
    converted    to format 2, from the messages of formats 0 and 1

Source: Kafka's `LogValidator`. With `stratalog.produce.validation=header` the header of a client's batch is trusted
with record count and largest timestamp (the CRC covers it), unless something else requires reading its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordError,
    UndecodableRecordsError,
)
from stratalog.records import (
    Codec,
    Record,
    RecordBatch,
    RecordFacts,
    batch_format as fmt,
    batches_at_most,
    build_batch,
    compress,
    ensure_quick,
    iter_batches,
    scan_records,
    set_max_timestamp,
    validate_client_batches,
)
from stratalog.records.legacy import LegacyBatch
from stratalog.util import crc32c

if TYPE_CHECKING:
    from stratalog.log.append.preparation import AppendRules

_ERRORS_SHOWN = 3
#: The number of faulty records named; a client fails the batch as a whole in any case.
_ERRORS_MAX = 10_000
#: Records of a batch that are made objects to be written with another codec.
_REWRITTEN_MAX = 100_000
#: To pack takes so many times longer than to unpack, at the least.
_PACKING_FACTOR = 16


def validated(view: memoryview, rules: AppendRules, *, is_client: bool, now_ms: int) -> list[RecordBatch]:
    """Return the batches of `view` as they are to be stored, but for offset, leader epoch and append time.

    Of a client exactly one batch; what the broker itself writes may be several. Errors: those of
    `validate_client_batches`, or for own batches CorruptRecordError, MessageTooLargeError and InvalidRecordError;
    InvalidTimestampError and InvalidRecordError with `record_errors` for records that the topic does not take;
    MessageTooLargeError for what is larger than max.message.bytes after it was rewritten.
    """
    if is_client:
        batches = validate_client_batches(view, max_message_bytes=rules.max_message_bytes)
    else:
        batches = _own_batches(view, rules.max_message_bytes)
        with batches_at_most(None):  # what the broker writes cannot come back later
            return _all_as_stored(batches, rules, is_client, now_ms)
    return _all_as_stored(batches, rules, is_client, now_ms)


def _all_as_stored(
    batches: Sequence[RecordBatch], rules: AppendRules, is_client: bool, now_ms: int
) -> list[RecordBatch]:
    old = [batch for batch in batches if isinstance(batch, LegacyBatch)]
    if old:
        return [_converted(old, rules, is_client, now_ms)]
    return [_as_stored(batch, rules, is_client, now_ms) for batch in batches]


def _own_batches(view: memoryview, max_message_bytes: int) -> list[RecordBatch]:
    """Return what is checked of batches that the broker itself made: size and CRC."""
    batches = list(iter_batches(view))
    if not batches or batches[-1].start + batches[-1].size != len(view):
        raise InvalidRecordError(f"{len(view)} bytes are not a row of whole record batches")
    for batch in batches:
        _check_size(batch.size, max_message_bytes, f"batch at position {batch.start}")
        batch.ensure_valid()
    return batches


def _as_stored(batch: RecordBatch, rules: AppendRules, is_client: bool, now_ms: int) -> RecordBatch:
    """Return a batch of format 2, or what it becomes."""
    codec = _target_codec(rules, batch.codec, is_plain_marker=batch.is_control and not batch.codec)
    must_read = rules.limits_age or (is_client and (rules.read_records or rules.validate_records))
    has_own_append_time = batch.timestamp_type == fmt.LOG_APPEND_TIME
    is_late = not rules.stamp_append_time and batch.max_timestamp - now_ms > rules.timestamp_after_max_ms
    if codec == batch.codec and not (must_read or has_own_append_time or is_late):
        return batch
    facts = _facts(batch)
    if _may_be_refused(batch, facts, rules, is_client, now_ms):
        _check_records(batch, batch.records(), rules, is_client, now_ms)
    if codec != batch.codec:
        ensure_quick(batch, _PACKING_FACTOR * batch.size)
        return _with_codec(batch, codec, facts, rules)
    if batch.codec and not facts.in_order:
        # Kafka means to rewrite such a batch, and fails with an unknown server error.
        raise InvalidRecordError(
            f"batch at position {batch.start} (base offset {batch.base_offset}): the offsets of its compressed records "
            "do"
            " not ascend one by one"
        )
    return batch if rules.stamp_append_time else _corrected(batch, facts.largest_timestamp)


def _facts(batch: RecordBatch) -> RecordFacts:
    try:
        facts = scan_records(batch)
    except CorruptRecordError as error:
        raise UndecodableRecordsError(
            f"batch at position {batch.start} (base offset {batch.base_offset}): {error}"
        ) from error
    if batch.timestamp_type == fmt.LOG_APPEND_TIME:  # that of the header is every record's
        return replace(facts, largest_timestamp=batch.max_timestamp, smallest_timestamp=batch.max_timestamp)
    return facts


def _may_be_refused(batch: RecordBatch, facts: RecordFacts, rules: AppendRules, is_client: bool, now_ms: int) -> bool:
    if (rules.keys_required and is_client and facts.null_keys) or batch.timestamp_type == fmt.LOG_APPEND_TIME:
        return True
    return not rules.stamp_append_time and (
        facts.largest_timestamp > now_ms + rules.timestamp_after_max_ms
        or facts.smallest_timestamp < now_ms - rules.timestamp_before_max_ms
    )


def _target_codec(rules: AppendRules, source: Codec, *, is_plain_marker: bool = False) -> Codec:
    return source if rules.codec is None or is_plain_marker else rules.codec


def _corrected(batch: RecordBatch, max_timestamp: int) -> RecordBatch:
    """Return the batch with CreateTime and the largest timestamp of its records."""
    if batch.max_timestamp == max_timestamp and batch.timestamp_type == fmt.CREATE_TIME:
        return batch
    copy = bytearray(batch.as_memoryview())
    set_max_timestamp(copy, 0, fmt.CREATE_TIME, max_timestamp)
    return RecordBatch(copy)


def _with_codec(batch: RecordBatch, codec: Codec, facts: RecordFacts, rules: AppendRules) -> RecordBatch:
    """Return the batch with its records packed by another codec, and numbered one by one if they were not."""
    if batch.record_count > _REWRITTEN_MAX:
        return _repacked(batch, codec, facts, rules)
    numbered = (
        Record(number, record.timestamp_ms, record.key, record.value, record.headers)
        for number, record in enumerate(batch.records())
    )
    return _rewritten(batch, numbered, codec, rules)


def _repacked(batch: RecordBatch, codec: Codec, facts: RecordFacts, rules: AppendRules) -> RecordBatch:
    """Return the same for very many records, whose bytes stay as they are.

    As objects they would take far more memory.
    """
    if not facts.in_order:
        raise InvalidRecordError(
            f"batch at position {batch.start} (base offset {batch.base_offset}): {batch.record_count} records whose"
            " offsets do not ascend one by one"
        )
    payload = compress(codec, batch.decompressed_payload(), _level(codec, rules))
    size = fmt.HEADER_SIZE + len(payload)
    _check_size(size, rules.max_message_bytes, f"the batch after compression with {codec.name.lower()}")
    copy = bytearray(batch.as_memoryview()[: fmt.HEADER_SIZE])
    copy += payload
    attributes = batch.attributes & fmt.TRANSACTIONAL_BIT | codec
    fmt.INT32.pack_into(copy, fmt.LENGTH_AT, size - fmt.LOG_OVERHEAD)
    fmt.INT16.pack_into(copy, fmt.ATTRIBUTES_AT, attributes)
    fmt.INT64.pack_into(copy, fmt.MAX_TIMESTAMP_AT, facts.largest_timestamp)
    fmt.UINT32.pack_into(copy, fmt.CRC_AT, crc32c(memoryview(copy)[fmt.ATTRIBUTES_AT :]))
    return RecordBatch(copy)


def _level(codec: Codec, rules: AppendRules) -> int | None:
    return rules.codec_level if codec == rules.codec else None


def _rewritten(batch: RecordBatch, records: Iterable[Record], codec: Codec, rules: AppendRules) -> RecordBatch:
    rebuilt = build_batch(
        records,
        codec=codec,
        level=_level(codec, rules),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )
    _check_size(len(rebuilt), rules.max_message_bytes, f"the batch after compression with {codec.name.lower()}")
    return RecordBatch(rebuilt)


def _converted(messages: Sequence[LegacyBatch], rules: AppendRules, is_client: bool, now_ms: int) -> RecordBatch:
    """One batch of format 2 with the records of messages of formats 0 and 1; timestamps of format 0 are -1."""
    source = Codec.NONE
    records: list[Record] = []
    for message in messages:
        source = message.codec or source
        inner = list(message.records())
        _check_records(message, inner, rules, is_client, now_ms, magics=message.inner_magics())
        records += inner
    numbered = [Record(n, r.timestamp_ms, r.key, r.value) for n, r in enumerate(records)]
    return _rewritten(messages[0], numbered, _target_codec(rules, source), rules)


def _check_records(
    batch: RecordBatch,
    records: Iterable[Record],
    rules: AppendRules,
    is_client: bool,
    now_ms: int,
    magics: Sequence[int] = (),
) -> None:
    """Raise for the records that the topic does not take, all of them named."""
    needs_keys = rules.keys_required and is_client
    claims_append_time = batch.timestamp_type == fmt.LOG_APPEND_TIME
    errors: list[RecordError] = []
    has_bad_timestamp = False
    for number, record in enumerate(records):
        if magics and magics[number] != batch.magic:
            message = f"message format {magics[number]} in a wrapper of format {batch.magic}"
        elif needs_keys and record.key is None:
            message = "no key, but the topic is compacted"
        elif timestamp_error := _timestamp_error(record.timestamp_ms, claims_append_time, rules, now_ms):
            message = timestamp_error
            has_bad_timestamp = True
        else:
            continue
        errors.append(RecordError(number, f"record {number} (offset {record.offset} in its batch): {message}"))
        if len(errors) == _ERRORS_MAX:
            break
    if errors:
        shown = "; ".join(str(error.message) for error in errors[:_ERRORS_SHOWN])
        kind = InvalidTimestampError if has_bad_timestamp else InvalidRecordError
        raise kind(
            f"{len(errors)} of {max(batch.record_count, len(errors))} records are refused: {shown}"
        ).about_records(errors)


def _timestamp_error(timestamp_ms: int, claims_append_time: bool, rules: AppendRules, now_ms: int) -> str | None:
    if not rules.stamp_append_time and timestamp_ms != fmt.NO_TIMESTAMP:
        earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
        if earliest <= timestamp_ms <= latest:
            return None
        return (
            f"timestamp {timestamp_ms} is not within {earliest} to {latest}, which message.timestamp.before.max.ms and"
            " message.timestamp.after.max.ms allow"
        )
    return "a producer may not set the timestamp type LogAppendTime" if claims_append_time else None


def _check_size(size: int, max_message_bytes: int, what: str) -> None:
    if size > max_message_bytes:
        raise MessageTooLargeError(f"{what}: {size} bytes, but max.message.bytes allows {max_message_bytes}")
