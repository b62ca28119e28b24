"""From a producer's bytes to the bytes of the log: checks, offsets, leader epoch, append time, compression.

Base offset and leader epoch lie outside a batch's CRC, so they are put before the producer's bytes as a new 16-byte
prefix, and nothing is copied. Every record of a client's batch is looked at (`record_scan`;
`stratalog.produce.validation` switches that off). A batch about which nothing is out of the ordinary is stored as it
came; these go on (`validation`):

    a largest timestamp that is not right     a new header, with a new CRC (one pass over the bytes)
    message.timestamp.type=LogAppendTime      the same
    compression.type other than the batch's   every record is read and written with that codec
    message formats 0 and 1                   every record is read and written in format 2
    anything wrong                            an error that names it, and the records at fault

Source: Kafka's `UnifiedLog.append`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.config import LogConfig
from stratalog.errors import InvalidRecordError, KafkaError, StillLoadingError
from stratalog.log.append.roll import segment_ms_max
from stratalog.log.append.validation import validated
from stratalog.records import (
    Codec,
    RecordBatch,
    are_regular,
    batch_format as fmt,
    iter_batches,
    load_native,
    scan_records,
)
from stratalog.util import crc32c

CLIENT: Final = "client"

#: Base offset, length and leader epoch: what a leader assigns, before magic and CRC.
_PREFIX: Final = Struct(">qii")
_PREFIX_SIZE: Final = _PREFIX.size
#: The same with magic and CRC.
_CHECKED: Final = Struct(">qiibI")
#: Smaller batches are put together in memory: cheaper than a vectored write.
_JOIN_SIZE_MAX: Final = 16 * 1024
_JOIN_GROUP_SIZE_MAX: Final = 256 * 1024
_NO_LIMIT: Final = 0x7FFF_FFFF_FFFF_FFFF
#: Attributes that a client's batch may have: a codec of the five, and the transactional bit.
_CLIENT_ATTRIBUTES: Final = frozenset(c | t for c in range(Codec.ZSTD + 1) for t in (0, fmt.TRANSACTIONAL_BIT))

_unpack_header = fmt.HEADER.unpack_from
_pack_prefix = _PREFIX.pack


class BatchFacts(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CheckedRecords:
    """Records of a client that have been checked already, to be appended in their place."""

    #: Those by which they were checked: under others they have to be checked again.
    rules: AppendRules
    records: Buffer
    #: The batches as they will be stored, but for offsets and epoch.
    batches: Sequence[RecordBatch] = ()
    #: Why they are not appended.
    error: KafkaError | None = None

    @classmethod
    def of(cls, records: Buffer, rules: AppendRules, now_ms: int) -> CheckedRecords:
        """Check records by all rules, without a time limit."""
        view = memoryview(records).cast("B")
        try:
            return cls(rules, records, validated(view, rules, is_client=True, now_ms=now_ms))
        except StillLoadingError:
            load_native()
            return cls.of(records, rules, now_ms)
        except KafkaError as error:
            return cls(rules, records, error=error)


class PreparedAppend(NamedTuple):
    """Batches as they will stand in the log, not yet written."""

    #: The bytes, in one piece or several.
    parts: Sequence[Buffer]
    size: int
    batches: Sequence[BatchFacts]
    #: The batches of producers with an id, stamped. A large one consists of its header only.
    producer_batches: Sequence[RecordBatch]
    max_timestamp: int
    #: -1 unless the topic has LogAppendTime.
    log_append_time: int
    #: How many of the batches come until the last one of an old format is past; 0 without any.
    old_formats_until: int = 0
    #: Whether the first one is of an old format: its first record may be inside a wrapper.
    begins_with_old_format: bool = False


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The requirements of a topic's configuration for an append."""

    max_message_bytes: int
    stamp_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    #: None: whatever the producer chose.
    codec: Codec | None
    codec_level: int | None
    keys_required: bool
    #: Whether records, not only headers, are looked at: all of clients, or those for which a rule of the topic asks.
    validate_records: bool
    read_records: bool
    #: Whether a record may be too old, also one that the broker itself writes.
    limits_age: bool
    #: The age at which a segment rolls.
    segment_ms_max: int

    @classmethod
    def of(cls, config: LogConfig) -> AppendRules:
        stamp = config.message_timestamp_type == "LogAppendTime"
        codec = None if config.compression_type == "producer" else Codec.from_name(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        level = None if codec is None else levels.get(codec)
        if codec is Codec.GZIP and level == -1:
            level = None
        limits_age = not stamp and config.message_timestamp_before_max_ms < _NO_LIMIT
        return cls(
            max_message_bytes=config.max_message_bytes,
            stamp_append_time=stamp,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            codec=codec,
            codec_level=level,
            keys_required=config.compacted,
            validate_records=config.validate_records,
            read_records=config.compacted or limits_age,
            limits_age=limits_age,
            segment_ms_max=segment_ms_max(config),
        )


def prepare_leader_append(
    records: Buffer | CheckedRecords,
    rules: AppendRules,
    *,
    origin: str,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> PreparedAppend:
    """Check `records` and give each batch its offsets from `next_offset` on.

    `records` is neither kept nor changed. Errors are those of `validation.validated`; those of records that were
    checked before are raised here.
    """
    if isinstance(records, CheckedRecords):
        if records.error is not None:
            raise records.error
        if records.rules is rules:
            return _prepare_batches(records.batches, rules, next_offset, leader_epoch, now_ms)
        records = records.records
    view = memoryview(records)
    size = view.nbytes
    if origin == CLIENT and size >= fmt.HEADER_SIZE:
        header = _unpack_header(view)
        # The usual case in one look; anything else takes the plain path, which names the fault.
        if _is_usual(header, view, size, rules, now_ms):
            prefix = _pack_prefix(next_offset, header[1], leader_epoch)
            facts = BatchFacts(next_offset, next_offset + header[6], header[8], size, leader_epoch)
            rest = view[_PREFIX_SIZE:]
            parts = (prefix + rest,) if size <= _JOIN_SIZE_MAX else (prefix, rest)
            producers = (RecordBatch(prefix + rest[: fmt.HEADER_SIZE]),) if header[9] >= 0 else ()
            return PreparedAppend(parts, size, (facts,), producers, header[8], -1)
    return _prepare_plainly(view.cast("B"), rules, origin, next_offset, leader_epoch, now_ms)


def prepare_leader_group(
    group: Sequence[memoryview], rules: AppendRules, *, next_offset: int, leader_epoch: int, now_ms: int
) -> PreparedAppend | None:
    """Several appends of a client in one, if each is a single batch about which nothing is out of the ordinary.

    The batches of the result are those of `group`, in order. None: let `prepare_leader_append` look at each.
    """
    parts: list[Buffer] = []
    batches: list[BatchFacts] = []
    producers: list[RecordBatch] = []
    total, max_timestamp = 0, fmt.NO_TIMESTAMP
    for view in group:
        size = len(view)
        if size < fmt.HEADER_SIZE:
            return None
        header = _unpack_header(view)
        if not _is_header_usual(header, size, rules, now_ms):
            return None
        if header[5] & fmt.CODEC_MASK and not _are_packed_records_usual(header, view, rules, now_ms):
            return None
        prefix = _pack_prefix(next_offset, header[1], leader_epoch)
        last_offset = next_offset + header[6]
        timestamp = header[8]
        batches.append(BatchFacts(next_offset, last_offset, timestamp, size, leader_epoch))
        parts.append(prefix)
        parts.append(view[_PREFIX_SIZE:])
        if header[9] >= 0:
            producers.append(RecordBatch(prefix + view[_PREFIX_SIZE : fmt.HEADER_SIZE]))
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        total += size
        next_offset = last_offset + 1
    if total <= _JOIN_GROUP_SIZE_MAX:
        joined = bytearray().join(parts)
        parts = [joined]
        if not _are_bytes_usual(joined, rules, now_ms):
            return None
    elif not all(_are_bytes_usual(view, rules, now_ms) for view in group):
        return None
    return PreparedAppend(parts, total, batches, producers, max_timestamp, -1)


def _is_usual(header: tuple[int, ...], view: memoryview, size: int, rules: AppendRules, now_ms: int) -> bool:
    """Return whether `view` is one sound batch of a client that is stored as it came, offsets and epoch aside."""
    return (
        _is_header_usual(header, size, rules, now_ms)
        and _are_bytes_usual(view, rules, now_ms)
        and (
            not header[5] & fmt.CODEC_MASK
            or (size <= _JOIN_SIZE_MAX and _are_packed_records_usual(header, view, rules, now_ms))
        )
    )


def _is_header_usual(header: tuple[int, ...], size: int, rules: AppendRules, now_ms: int) -> bool:
    return (
        header[1] == size - fmt.LOG_OVERHEAD
        and header[0] == 0
        and header[3] == fmt.MAGIC
        and header[5] in _CLIENT_ATTRIBUTES
        and header[12] > 0
        and header[6] == header[12] - 1
        and (header[9] < 0 or header[11] >= 0)
        and size <= rules.max_message_bytes
        and not rules.stamp_append_time
        and (rules.codec is None or rules.codec == header[5] & fmt.CODEC_MASK)
        and header[8] - now_ms <= rules.timestamp_after_max_ms
    )


def _are_bytes_usual(batches: memoryview | bytearray, rules: AppendRules, now_ms: int) -> bool:
    """Return whether the CRCs are right, and the records of what is not compressed are as they should be."""
    if rules.validate_records or rules.read_records:
        return are_regular(batches, now_ms - rules.timestamp_before_max_ms, rules.keys_required)
    view = memoryview(batches)
    position = 0
    while position < len(view):
        _, length, _, _, crc = _CHECKED.unpack_from(view, position)
        end = position + fmt.LOG_OVERHEAD + length
        if crc32c(view[position + fmt.ATTRIBUTES_AT : end]) != crc:
            return False
        position = end
    return True


def _are_packed_records_usual(header: tuple[int, ...], view: memoryview, rules: AppendRules, now_ms: int) -> bool:
    """Return whether the records of a compressed batch are as they should be."""
    if not (rules.validate_records or rules.read_records):
        return True
    try:
        facts = scan_records(RecordBatch(view))
    except KafkaError:
        return False  # what it is comes with the plain way
    return (
        facts.largest_timestamp == header[8]
        and facts.smallest_timestamp >= now_ms - rules.timestamp_before_max_ms
        and facts.in_order
        and not (rules.keys_required and facts.null_keys)
    )


def _prepare_plainly(
    view: memoryview, rules: AppendRules, origin: str, next_offset: int, leader_epoch: int, now_ms: int
) -> PreparedAppend:
    """Return the same, for any number of batches, with every rule."""
    batches = validated(view, rules, is_client=origin == CLIENT, now_ms=now_ms)
    return _prepare_batches(batches, rules, next_offset, leader_epoch, now_ms)


def _prepare_batches(
    batches: Iterable[RecordBatch], rules: AppendRules, next_offset: int, leader_epoch: int, now_ms: int
) -> PreparedAppend:
    parts: list[Buffer] = []
    facts: list[BatchFacts] = []
    producers: list[RecordBatch] = []
    total = 0
    for batch in batches:
        append_time = now_ms if rules.stamp_append_time else None
        header = _stamped_header(batch, next_offset, leader_epoch, append_time)
        parts += (header, batch.records_payload)
        stamped = RecordBatch(header + batch.records_payload if batch.is_control else header)
        facts.append(BatchFacts(next_offset, stamped.last_offset, stamped.max_timestamp, stamped.size, leader_epoch))
        if stamped.has_producer_id:
            producers.append(stamped)
        next_offset = stamped.next_offset
        total += stamped.size
    return PreparedAppend(
        parts,
        total,
        facts,
        producers,
        max(f.max_timestamp for f in facts),
        now_ms if rules.stamp_append_time else -1,
    )


def prepare_follower_append(records: Buffer, *, log_end_offset: int, leader_epoch: int | None = None) -> PreparedAppend:
    """Check batches that a leader has stamped, to be written as they are.

    An incomplete batch at the end is left out, as a fetch may end in one; `size` is 0 if there is no whole batch. From
    a batch of a later epoch than `leader_epoch` on all are left out: the leader that was asked cannot have them
    (KAFKA-18723). Raises CorruptRecordError for a damaged batch, InvalidRecordError for offsets that do not ascend from
    `log_end_offset` (a gap is allowed: compaction leaves them).
    """
    view = memoryview(records).cast("B")
    facts: list[BatchFacts] = []
    producers: list[RecordBatch] = []
    size, largest, old_formats_until = 0, fmt.NO_TIMESTAMP, 0
    expected = log_end_offset
    for batch in iter_batches(view):
        batch.ensure_valid()
        if leader_epoch is not None and batch.partition_leader_epoch > leader_epoch:
            break
        if batch.base_offset < expected or batch.last_offset < batch.base_offset:
            raise InvalidRecordError(
                f"batch at position {batch.start}: offsets {batch.base_offset} to {batch.last_offset}, expected at "
                "least"
                f" {expected}"
            )
        facts.append(
            BatchFacts(
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.size,
                batch.partition_leader_epoch,
            )
        )
        if batch.magic != fmt.MAGIC:
            old_formats_until = len(facts)
        if batch.has_producer_id:
            producers.append(batch)
        largest = max(largest, batch.max_timestamp)
        size += batch.size
        expected = batch.next_offset
    is_old = bool(old_formats_until) and view[fmt.MAGIC_AT] != fmt.MAGIC
    return PreparedAppend(
        parts=(view[:size],),
        size=size,
        batches=facts,
        producer_batches=producers,
        max_timestamp=largest,
        log_append_time=-1,
        old_formats_until=old_formats_until,
        begins_with_old_format=is_old,
    )


def _stamped_header(batch: RecordBatch, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> bytes:
    view = batch.as_memoryview()
    prefix = _pack_prefix(base_offset, batch.size - fmt.LOG_OVERHEAD, leader_epoch)
    if append_time_ms is None:
        return prefix + view[_PREFIX_SIZE : fmt.HEADER_SIZE]
    header = bytearray(prefix + view[_PREFIX_SIZE : fmt.HEADER_SIZE])
    fmt.INT16.pack_into(header, fmt.ATTRIBUTES_AT, batch.attributes & fmt.KNOWN_BITS | fmt.LOG_APPEND_TIME_BIT)
    fmt.INT64.pack_into(header, fmt.MAX_TIMESTAMP_AT, append_time_ms)
    crc = crc32c(view[fmt.HEADER_SIZE :], crc32c(memoryview(header)[fmt.ATTRIBUTES_AT :]))
    fmt.UINT32.pack_into(header, fmt.CRC_AT, crc)
    return bytes(header)
