"""Split segments whose offsets are too far from the base offset for their indexes.

Old cleaners merged segments whatever their offsets (KAFKA-6264). Such segments are split when the directory is opened,
before anything else reads them, with the protocol of `replacement`: a crash leaves the one segment or all of the new
ones, with the same bytes. The last offset of a segment is known from the next one's base offset, and of the last one
from the recovery point. That may be too low: `recovery` then raises `OverflowedSegmentError` when it reads the segment,
and starts again. Source: Kafka's `LocalLog.splitOverflowedSegment`, `LogLoader`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from stratalog.config import LogConfig
from stratalog.errors import CorruptRecordError
from stratalog.log.append import RELATIVE_OFFSET_MAX, BatchFacts
from stratalog.log.format import CLEANED_SUFFIX, LOG_SUFFIX, parse_file_name
from stratalog.log.recovery.interrupted_swaps import finish_swaps
from stratalog.log.recovery.replacement import make_certain
from stratalog.log.segment import LogSegment
from stratalog.records import LOG_OVERHEAD
from stratalog.util import Clock, FileSystem

logger = logging.getLogger(__name__)

#: Bytes copied at once.
_COPY_SIZE = 1024 * 1024

#: Batches of one new segment, each with its position in the old one.
Part = list[tuple[int, BatchFacts]]


def split_overflowed(directory: Path, config: LogConfig, *, clock: Clock, fs: FileSystem, log_end_offset: int) -> None:
    """Split the segments of a directory that no process has open. Raises OSError.

    `log_end_offset` is the end as far as it is known. Only a segment that ends more than 2^31 offsets after its start
    is read.
    """
    bases = [
        parsed[0]
        for name in fs.list_dir(directory)
        if (parsed := parse_file_name(name)) is not None and parsed[1:] == (LOG_SUFFIX, "")
    ]
    for base_offset, end_offset in zip(bases, [*bases[1:], log_end_offset], strict=False):
        if end_offset - 1 - base_offset > RELATIVE_OFFSET_MAX:
            split_segment(directory, base_offset, config, clock=clock, fs=fs)


def split_segment(directory: Path, base_offset: int, config: LogConfig, *, clock: Clock, fs: FileSystem) -> None:
    """Split one segment if needed. One with damage at the place of a split is left unchanged."""
    segment = LogSegment(directory, base_offset, config, clock=clock, fs=fs)
    try:
        parts = list(_parts(segment))
        if len(parts) < 2:
            return
        logger.info(
            "%s: its offsets are too far apart for an index; splitting it into %d segments",
            segment.log_path,
            len(parts),
        )
        new = _copy_parts(segment, parts, config, clock, fs)
    except CorruptRecordError as error:
        logger.warning("%s is left to recovery: %s", segment.log_path, error)
        return
    finally:
        segment.close()
    make_certain(directory, new, fs)
    for part in new:
        part.close()
    finish_swaps(directory, fs)


def _parts(segment: LogSegment) -> Iterator[Part]:
    """Yield the batches of a segment with their positions, grouped by new segment.

    Raises CorruptRecordError if the first batch of a group is unsound.
    """
    run: Part = []
    first_offset = segment.base_offset
    for position, header in segment.headers():
        last_offset, size = header[0] + header[6], header[1] + LOG_OVERHEAD
        if last_offset - first_offset > RELATIVE_OFFSET_MAX:
            segment.read_batch(position, size).ensure_valid()
            yield run
            run, first_offset = [], header[0]
        run.append((position, BatchFacts(header[0], last_offset, header[8], size, header[2])))
    yield run


def _copy_parts(
    segment: LogSegment, parts: list[Part], config: LogConfig, clock: Clock, fs: FileSystem
) -> list[LogSegment]:
    """Return a sealed and flushed `.cleaned` segment for each part."""
    new: list[LogSegment] = []
    ends = [part[0][1].base_offset for part in parts[1:]]
    for part, end_offset in zip(parts, [*ends, None], strict=True):
        base_offset = part[0][1].base_offset if new else segment.base_offset
        made = LogSegment.create(
            segment.log_path.parent, base_offset, config, clock=clock, fs=fs, suffix=CLEANED_SUFFIX
        )
        new.append(made)
        for position, batch in part:
            made.append([segment.file.pread(batch.size, position)], batch.size, [batch])
        for transaction in segment.txn_index.all:
            if transaction.last_offset >= base_offset and (end_offset is None or transaction.last_offset < end_offset):
                made.txn_index.append(transaction)
        made.become_inactive()
        if end_offset is None:
            _copy_tail(segment, part, made)
        made.flush()
        for path in (made.log_path, made.offset_index_path, made.time_index_path):
            fs.set_mtime_ms(path, segment.last_modified_ms)
    return new


def _copy_tail(segment: LogSegment, last_part: Part, made: LogSegment) -> None:
    """Copy what follows the last whole batch: recovery decides about it."""
    position, batch = last_part[-1]
    source, target = position + batch.size, made.size_bytes
    while piece := segment.file.pread(_COPY_SIZE, source):
        made.file.write_at(piece, target)
        source, target = source + len(piece), target + len(piece)
