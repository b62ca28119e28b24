"""Prove the format of an offset index by the `.log` that it points into.

An entry (offset, position) is true if a batch begins at that position and ends with that offset. Read in the wrong
format, an entry gives a position at which no such batch stands: no offset stands at two positions. So one true entry
decides, whatever the size and the content of the file; if the first is none, several are looked at, so that damage does
not decide.

For all code that has both files: a segment that is opened, `stratalog index`, `stratalog fsck`, the check before a
segment is copied, and an index that was fetched from the remote tier, whose `.log` can be read by ranges. What is
needed of the log is `LogReader`, `pread(size, position)` as `util.filesystem.File` has it, and its size in bytes:

    found = detect_from_log(index_bytes, base_offset, log, log_size, expected=LEGACY)
    found.format, found.is_corrupt, found.evidence, str(found)

Where the `.log` is out of reach, `offset_index_format.detect_from_entries(index_bytes, expected)` is what is left, with
the same answer.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

from stratalog.log.format.offset_index_format import (
    FORMATS,
    LEGACY,
    Detection,
    Evidence,
    OffsetIndexFormat,
    detect_from_entries,
    used_entries,
    used_size,
)
from stratalog.log.segment import LogReader, span_at

#: The size of an index's first entry in the larger format.
FIRST_ENTRIES_SIZE: Final = max(form.entry_size for form in FORMATS)

#: Entries that are held against the log; of a longer index, some from its whole length.
_ENTRIES_PROVED: Final = 8


def detect_from_log(
    data: Buffer, base_offset: int, log: LogReader, log_size: int, expected: OffsetIndexFormat = LEGACY
) -> Detection:
    """Return the format of an index file whose log is available.

    `LOG` where the entries looked at point at batches in one format only. Where there are no entries, `expected`. Where
    no entry is true in either format, the file is corrupt, whatever `detect_from_entries` would say of it.
    """
    view = memoryview(data).cast("B")
    found = detect_from_first_entry(view, len(view), base_offset, log, log_size)
    if found is not None:
        return found
    if not used_size(view):
        return detect_from_entries(data, expected)
    shares = [_share_proved(view, base_offset, form, log, log_size, _ENTRIES_PROVED) for form in FORMATS]
    if not any(shares):
        return Detection(expected, Evidence.NONE, "none of its entries points at a batch with its offset")
    if shares[0] == shares[1]:
        return detect_from_entries(data, expected)
    return _proved(FORMATS[shares.index(max(shares))], len(view))


def detect_from_first_entry(
    data: Buffer, size: int, base_offset: int, log: LogReader, log_size: int
) -> Detection | None:
    """Return the answer of `detect_from_log` for an index of `size` bytes that begins with `data`.

    None if its first entry does not decide.

    `FIRST_ENTRIES_SIZE` bytes are enough.
    """
    view = memoryview(data).cast("B")
    true = [form for form in FORMATS if _share_proved(view, base_offset, form, log, log_size, 1) == 1.0]
    return _proved(true[0], size) if len(true) == 1 else None


def _proved(form: OffsetIndexFormat, size: int) -> Detection:
    entry_size = form.entry_size
    if size % entry_size:
        reason = f"entries of {entry_size} bytes point at batches, but {size} bytes are no multiple of that"
        return Detection(form, Evidence.NONE, reason)
    return Detection(form, Evidence.LOG, f"read with {entry_size} bytes an entry, they point at batches")


def _share_proved(
    view: memoryview, base_offset: int, form: OffsetIndexFormat, log: LogReader, log_size: int, count: int
) -> float:
    """Return the fraction of `count` sampled entries that is correct in this format."""
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
        # No writer makes an entry for position 0, where everything that begins with zeros would seem to point.
        true += position > 0 and is_true_entry(base_offset + relative, position, base_offset, log, log_size)
    return true / len(slots)


def is_true_entry(offset: int, position: int, base_offset: int, log: LogReader, log_size: int) -> bool:
    """Return whether the batch that begins at `position` ends with `offset`.

    Older brokers indexed several batches that were appended together as one, by the last offset of the last of them and
    the position of the first: so the batches behind it may get there too. Reading on from such an entry is right.
    """
    if position < 0 or offset < base_offset:
        return False
    batch = span_at(log, log_size, position)
    if batch is None or batch.base_offset < base_offset:
        return False
    for _ in range(_BATCHES_TOGETHER_MAX):
        if batch.last_offset >= offset:
            return batch.last_offset == offset
        position += batch.size
        batch = span_at(log, log_size, position)
        if batch is None:
            return False
    return False


_BATCHES_TOGETHER_MAX: Final = 64
