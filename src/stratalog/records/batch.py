"""A view on the bytes of one RecordBatch (message format 2), and changes to them in place.

Positions are plain ints and may pass 2^32 (a map of a large segment). Views are immutable and thread-safe; a caller
that stamps a buffer owns it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError
from stratalog.records import batch_format as fmt
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX, Codec, codec_of, decompress
from stratalog.records.record import Record
from stratalog.records.record_format import parse_records
from stratalog.util import crc32c


class RecordBatch:
    """One batch at `start` of `buffer` (bytes, bytearray, memoryview, mmap, ...).

    The header is read once, so a later `stamp_batch` does not show in this view. Only the 61 header bytes are required
    and nothing in them is checked: see `iter_batches` and `ensure_valid`. Properties that need more bytes than there
    are raise CorruptRecordError.
    """

    __slots__ = ("buffer", "header", "start")

    def __init__(self, buffer: Buffer, start: int = 0) -> None:
        self.buffer = buffer
        self.start = start
        try:
            #: The fields of `batch_format.HEADER`, for loops; of old formats as `legacy.format.read_header` has them.
            self.header: tuple[int, ...] = fmt.HEADER.unpack_from(buffer, start)
        except Exception as error:  # struct.error: fewer than 61 bytes at start  # noqa: BLE001
            raise CorruptRecordError(
                f"the {fmt.HEADER_SIZE} header bytes are not all there: {error}", where=f"batch at position {start}"
            ) from None

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.record_count} records,"
            f" {self.size} bytes at {self.start}, {self.codec_name}, leader epoch {self.partition_leader_epoch})"
        )

    @property
    def base_offset(self) -> int:
        return self.header[0]

    @property
    def size(self) -> int:
        """Bytes of the whole batch, the 12 bytes of offset and length included."""
        return self.header[1] + fmt.LOG_OVERHEAD

    @property
    def partition_leader_epoch(self) -> int:
        return self.header[2]

    @property
    def magic(self) -> int:
        return self.header[3]

    @property
    def crc(self) -> int:
        """The stored CRC-32C, unsigned."""
        return self.header[4]

    @property
    def attributes(self) -> int:
        return self.header[5]

    @property
    def last_offset_delta(self) -> int:
        return self.header[6]

    @property
    def last_offset(self) -> int:
        return self.header[0] + self.header[6]

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.last_offset + 1

    @property
    def base_timestamp(self) -> int:
        return self.header[7]

    @property
    def max_timestamp(self) -> int:
        return self.header[8]

    @property
    def producer_id(self) -> int:
        return self.header[9]

    @property
    def producer_epoch(self) -> int:
        return self.header[10]

    @property
    def base_sequence(self) -> int:
        return self.header[11]

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without sequences; continues at 0 after 2^31-1."""
        base = self.base_sequence
        return base if base == fmt.NO_SEQUENCE else fmt.increment_sequence(base, self.last_offset_delta)

    @property
    def record_count(self) -> int:
        return self.header[12]

    @property
    def has_producer_id(self) -> bool:
        return self.header[9] > fmt.NO_PRODUCER_ID

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCompressionTypeError for one of the three unused codec numbers."""
        return codec_of(self.attributes)

    @property
    def codec_name(self) -> str:
        """For messages: never raises."""
        number = self.attributes & fmt.CODEC_MASK
        return Codec(number).name.lower() if number <= Codec.ZSTD else f"codec {number}"

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return fmt.LOG_APPEND_TIME if self.header[5] & fmt.LOG_APPEND_TIME_BIT else fmt.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.header[5] & fmt.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.header[5] & fmt.CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.header[5] & fmt.DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may be removed; kept in the base timestamp. None: not set."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def name(self) -> str:
        """For messages: where the batch is."""
        return f"batch at position {self.start} (base offset {self.base_offset})"

    def as_memoryview(self) -> memoryview:
        """Return the bytes of the batch, not copied.

        Raises CorruptRecordError if the buffer ends before the batch does.
        """
        end = self.start + self.size
        view = memoryview(self.buffer)
        if self.size < fmt.HEADER_SIZE or end > len(view):
            raise CorruptRecordError(
                f"size {self.size} does not fit"
                f" between the {fmt.HEADER_SIZE} header bytes and the {len(view) - self.start} bytes that are there",
                where=self.name,
            )
        return view[self.start : end]

    @property
    def records_payload(self) -> memoryview:
        """The bytes after the header, compressed or not, not copied."""
        return self.as_memoryview()[fmt.HEADER_SIZE :]

    @property
    def computed_crc(self) -> int:
        return crc32c(self.as_memoryview()[fmt.ATTRIBUTES_AT :])

    @property
    def is_crc_valid(self) -> bool:
        """Return whether size and CRC are valid; never raises."""
        try:
            return self.computed_crc == self.crc
        except CorruptRecordError:
            return False

    def ensure_valid(self) -> None:
        """Raise CorruptRecordError unless magic, size and CRC hold (Kafka's `RecordBatch.ensureValid`)."""
        if self.magic != fmt.MAGIC:
            raise CorruptRecordError(f"magic {self.magic}, expected {fmt.MAGIC}", where=self.name)
        computed = self.computed_crc
        if computed != self.crc:
            raise CorruptRecordError(
                f"stored CRC-32C {self.crc:#010x}, computed {computed:#010x}, of {self.size} bytes", where=self.name
            )

    def decompressed_payload(self, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> memoryview:
        """Return the bytes of the records; a view on the buffer for an uncompressed batch.

        Raises CorruptRecordError for damage or more than `size_max` bytes, UnsupportedCompressionTypeError.
        """
        codec = self.codec
        payload = self.records_payload
        if codec is Codec.NONE:
            return payload
        try:
            return decompress(codec, payload, size_max=size_max)
        except CorruptRecordError as error:
            raise CorruptRecordError(str(error), where=self.name) from error.__cause__

    def records(self, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> Iterator[Record]:
        """Decode every record, in order; the plain twin of `columns.decode_columns`. Does not check the CRC.

        Raises CorruptRecordError (size, decompression), InvalidRecordError (lengths or a record count that do not fit),
        naming position and expectation.
        """
        return parse_records(self, self.decompressed_payload(size_max=size_max))


def batch_at(buffer: Buffer, start: int = 0) -> RecordBatch:
    """Return the batch at `start`: a `LegacyBatch` for formats 0 and 1, else a `RecordBatch`.

    Errors as `RecordBatch`; an old format needs the bytes before the key (18 or 26).
    """
    view = memoryview(buffer)
    if start + fmt.MAGIC_AT < view.nbytes and view[start + fmt.MAGIC_AT] < fmt.MAGIC:
        return _legacy_batch()(buffer, start)
    return RecordBatch(buffer, start)


@cache
def _legacy_batch() -> type[RecordBatch]:
    from stratalog.records.legacy import LegacyBatch  # it is made of this module

    return LegacyBatch


def iter_batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
    """Yield the complete batches of any format between `start` and `end` (default: all of the buffer), in order.

    An incomplete batch ends the iteration; the caller sees that from the last batch's `start + size`. Only what leads
    to the next batch is checked, not CRCs and records. Raises CorruptRecordError, naming the position, for a length or
    magic that no batch can have.
    """
    position = start
    limit = _limit(buffer, end)
    while limit - position >= fmt.HEADER_SIZE_UP_TO_MAGIC:
        size = checked_batch_size(buffer, position)
        if position + size > limit:
            return
        yield batch_at(buffer, position)
        position += size


def checked_batch_size(buffer: Buffer, position: int) -> int:
    """Size in bytes of the batch, of any format, whose first 17 bytes stand at `position`; errors as `iter_batches`."""
    (length,) = fmt.INT32.unpack_from(buffer, position + fmt.LENGTH_AT)
    magic = memoryview(buffer)[position + fmt.MAGIC_AT]
    if magic > fmt.MAGIC or length < fmt.LENGTHS_MIN[magic]:
        raise CorruptRecordError(why_no_batch(buffer, position) or "", where=f"position {position}")
    return int(length) + fmt.LOG_OVERHEAD


def why_no_batch(buffer: Buffer, position: int) -> str | None:
    """Return why the 17 bytes at `position` are not the beginning of a batch, of any format; None if they may be."""
    (length,) = fmt.INT32.unpack_from(buffer, position + fmt.LENGTH_AT)
    magic = memoryview(buffer)[position + fmt.MAGIC_AT]
    least = fmt.LENGTHS_MIN[magic] if magic <= fmt.MAGIC else fmt.LENGTH_MIN
    if magic > fmt.MAGIC and length >= fmt.LEGACY_LENGTH_MIN:
        return f"magic {magic} is unknown, expected {fmt.MAGIC}"
    return None if length >= least else f"batch length {length} is less than the smallest possible, {least}"


def stamp_batch(
    buffer: bytearray | memoryview,
    start: int,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    log_append_time_ms: int | None = None,
) -> None:
    """Assign offset and leader epoch in place, and the append time if one is given. The caller has validated the batch.

    Offset and epoch are outside the CRC. An append time sets timestamp type and max timestamp, and the CRC if that
    changes anything (Kafka's `DefaultRecordBatch.setMaxTimestamp`).
    """
    fmt.INT64.pack_into(buffer, start, base_offset)
    fmt.INT32.pack_into(buffer, start + fmt.PARTITION_LEADER_EPOCH_AT, partition_leader_epoch)
    if log_append_time_ms is not None:
        set_max_timestamp(buffer, start, fmt.LOG_APPEND_TIME, log_append_time_ms)


def set_max_timestamp(buffer: bytearray | memoryview, start: int, timestamp_type: int, max_timestamp: int) -> None:
    """Set timestamp type and max timestamp of the batch at `start`, and the CRC if that changes anything.

    Attribute bits without a meaning are cleared then, as in Kafka's `DefaultRecordBatch.setMaxTimestamp`.
    """
    (attributes,) = fmt.INT16.unpack_from(buffer, start + fmt.ATTRIBUTES_AT)
    (current,) = fmt.INT64.unpack_from(buffer, start + fmt.MAX_TIMESTAMP_AT)
    type_bit = fmt.LOG_APPEND_TIME_BIT if timestamp_type == fmt.LOG_APPEND_TIME else 0
    if attributes & fmt.LOG_APPEND_TIME_BIT == type_bit and current == max_timestamp:
        return
    attributes = attributes & fmt.KNOWN_BITS & ~fmt.LOG_APPEND_TIME_BIT | type_bit
    fmt.INT16.pack_into(buffer, start + fmt.ATTRIBUTES_AT, attributes)
    fmt.INT64.pack_into(buffer, start + fmt.MAX_TIMESTAMP_AT, max_timestamp)
    (length,) = fmt.INT32.unpack_from(buffer, start + fmt.LENGTH_AT)
    covered = memoryview(buffer)[start + fmt.ATTRIBUTES_AT : start + fmt.LOG_OVERHEAD + length]
    fmt.UINT32.pack_into(buffer, start + fmt.CRC_AT, crc32c(covered))


def _limit(buffer: Buffer, end: int | None) -> int:
    size = memoryview(buffer).nbytes
    return size if end is None else min(end, size)
