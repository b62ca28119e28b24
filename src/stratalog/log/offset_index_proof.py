"""What format an offset index has, proved by the `.log` that it points into.

An entry (offset, position) is true if a batch begins at that position and holds that offset. Read in the wrong format, an
entry gives a position at which no batch with that offset stands: no offset stands at two positions. So one true entry
decides, whatever the size and the content of the file; several are looked at, so that a damaged one does not.

For everybody who has both files: a segment that is opened, `stratalog index`, `stratalog fsck`, the check before a segment
is copied, and an index that was fetched from the remote tier, whose `.log` can be read by ranges. What is needed of the
log is `LogReader`, `pread(size, position)` as `util.filesystem.File` has it, and its size in bytes:

    found = prove(index_bytes, base_offset, log, log_size, expected=LEGACY)
    found.format, found.is_corrupt, found.evidence, str(found)

Where the `.log` is out of reach, `offset_index_format.detect(index_bytes, expected)` is what is left, with the same answer.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from typing_extensions import Buffer

from stratalog.log.offset_index_format import (
    FORMATS,
    LEGACY,
    Detection,
    Evidence,
    OffsetIndexFormat,
    detect,
    used_entries,
    used_size,
)
from stratalog.records.batch_format import HEADER, HEADER_SIZE, LENGTH_MIN, LOG_OVERHEAD, MAGIC

#: Entries that are held against the log; of a longer index, some from its whole length.
_ENTRIES_PROVED: Final = 8
#: Size of the header of a message in formats 0 and 1: offset, length, CRC, magic, attributes, key and value lengths.
_MESSAGE_LENGTH_MIN: Final = 14


class LogReader(Protocol):
    """Bytes of a `.log` by position; fewer than asked for only at its end."""

    def pread(self, size: int, position: int, /) -> Buffer: ...


class BatchSpan(NamedTuple):
    """The offsets of a batch and its size in bytes. Of a message in format 0 or 1 only the last offset is known."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int


def span_at(log: LogReader, log_size: int, position: int) -> BatchSpan | None:
    """The batch whose header stands at `position`; None if there is none, or it does not end within `log_size`."""
    if not 0 <= position <= log_size - LOG_OVERHEAD - _MESSAGE_LENGTH_MIN:
        return None
    header = bytes(log.pread(min(HEADER_SIZE, log_size - position), position))
    if len(header) <= _MAGIC_AT:
        return None
    length, magic = int.from_bytes(header[8:12], "big", signed=True), header[_MAGIC_AT]
    if position + length + LOG_OVERHEAD > log_size:
        return None
    if magic == MAGIC and length >= LENGTH_MIN and len(header) == HEADER_SIZE:
        fields = HEADER.unpack(header)
        if fields[0] < 0 or fields[6] < 0:
            return None
        return BatchSpan(fields[0], fields[0] + fields[6], length + LOG_OVERHEAD, fields[8])
    if magic in (0, 1) and length >= _MESSAGE_LENGTH_MIN:
        offset = int.from_bytes(header[:8], "big", signed=True)
        timestamp = int.from_bytes(header[18:26], "big", signed=True) if magic else -1
        return BatchSpan(offset, offset, length + LOG_OVERHEAD, timestamp) if offset >= 0 else None
    return None


def prove(
    data: Buffer, base_offset: int, log: LogReader, log_size: int, expected: OffsetIndexFormat = LEGACY
) -> Detection:
    """The format of an index file of which the log is at hand.

    `LOG` where the entries looked at point at batches in one format only. Where there are no entries, `expected`. Where
    no entry is true in either format, the file is corrupt, whatever `detect` would say of it.
    """
    view = memoryview(data).cast("B")
    first = [form for form in FORMATS if _share_proved(view, base_offset, form, log, log_size, 1) == 1.0]
    if len(first) == 1:
        return _proved(first[0], len(view))
    if not used_size(view):
        return detect(data, expected)
    shares = [_share_proved(view, base_offset, form, log, log_size, _ENTRIES_PROVED) for form in FORMATS]
    if not any(shares):
        return Detection(expected, Evidence.NONE, "none of its entries points at a batch with its offset")
    if shares[0] == shares[1]:
        return detect(data, expected)
    return _proved(FORMATS[shares.index(max(shares))], len(view))


def _proved(form: OffsetIndexFormat, size: int) -> Detection:
    entry_size = form.entry_size
    if size % entry_size:
        reason = f"entries of {entry_size} bytes point at batches, but {size} bytes are no multiple of that"
        return Detection(form, Evidence.NONE, reason)
    return Detection(form, Evidence.LOG, f"read with {entry_size} bytes an entry, they point at batches")


def _share_proved(
    view: memoryview, base_offset: int, form: OffsetIndexFormat, log: LogReader, log_size: int, count: int
) -> float:
    """Which part of `count` entries from the whole length is true, read in this format; of one, the first."""
    size = form.entry_size
    entries = len(view) // size
    if count > 1:
        entries = min(entries, used_entries(view, form))
    if not entries:
        return 0.0
    slots = {slot * (entries - 1) // max(count - 1, 1) for slot in range(count)}
    true = 0
    for slot in slots:
        relative, position = form.entry.unpack_from(view, slot * size)
        true += is_true_entry(base_offset + relative, position, base_offset, log, log_size)
    return true / len(slots)


def is_true_entry(offset: int, position: int, base_offset: int, log: LogReader, log_size: int) -> bool:
    """Whether a batch that holds `offset` begins at `position`.

    Older brokers indexed several batches that were appended together as one, by the last offset of the last of them
    and the position of the first: a batch that ends before `offset` is right too, if it or the ones behind it get there.
    """
    if position < 0 or offset < base_offset:
        return False
    batch = span_at(log, log_size, position)
    if batch is None or not base_offset <= batch.base_offset <= offset:
        return False
    steps = 0
    while batch is not None and batch.last_offset < offset and steps < _BATCHES_TOGETHER_MAX:
        position += batch.size
        batch = span_at(log, log_size, position)
        steps += 1
    return batch is not None and batch.base_offset <= offset <= batch.last_offset


_MAGIC_AT: Final = 16
_BATCHES_TOGETHER_MAX: Final = 64
