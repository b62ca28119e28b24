"""Keep bytes that recovery cuts from a log unless a torn write explains them.

A killed process leaves a partial batch at the end of the file; a power failure may also leave zeros. Such a batch was
not acknowledged. Anything else that is cut, such as a batch with a wrong CRC or whole segments, may be records. It
stays in the partition directory under a name that neither Kafka nor this package reads as part of the log:

    00000000000000001007.log.4096.cut    the bytes from position 4096 on
    00000000000000002014.log.cut         a whole segment after a cut

Trailing zeros of a preallocated file are not kept. Users inspect these files (`stratalog dump` reads them) and delete
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stratalog.log.recovery.segment_recovery import SoundBatches, is_torn_write
from stratalog.log.resumption import content_end
from stratalog.log.segment import LogBytes, LogSegment
from stratalog.records import LOG_OVERHEAD
from stratalog.util import FileSystem

CUT_SUFFIX: Final = ".cut"
_CHUNK_SIZE: Final = 1024 * 1024
_ZEROS_KEPT: Final = 4096


def keep_tail(log_path: Path, log: LogBytes, sound: SoundBatches, fs: FileSystem, *, is_last: bool) -> Path | None:
    """Keep the part of a `.log` after the sound batches unless a torn write left it. Return the new file, if any.

    `is_last`: nothing was written after this file.
    """
    position = sound.size_bytes
    if is_last and is_torn_write(log, position, sound.next_offset):
        return None
    path = log_path.with_name(f"{log_path.name}.{position}{CUT_SUFFIX}")
    end = _end_of_remains(log, position)
    with fs.open(path, create=True) as file:
        file.truncate(0)
        for start in range(position, end, _CHUNK_SIZE):
            file.write_at(log.at(start, min(_CHUNK_SIZE, end - start)), start - position)
        file.sync()
    fs.sync_dir(path.parent)
    return path


def _end_of_remains(log: LogBytes, position: int) -> int:
    """Return the end of the bytes worth keeping: batches may end in a few zeros, only preallocated files in many."""
    limit = log.size
    header = log.header(position)
    own_end = 0 if header is None else position + header[1] + LOG_OVERHEAD
    end = max(content_end(log, position), own_end if own_end <= limit else 0)
    return min(end + _ZEROS_KEPT, limit)


def has_content(segment: LogSegment) -> bool:
    """Return whether a `.log` holds anything but zeros."""
    file = segment.file
    starts = range(0, file.size(), _CHUNK_SIZE)
    return any(file.pread(_CHUNK_SIZE, start).strip(b"\0") for start in starts)


def keep_log(log_path: Path, fs: FileSystem) -> Path:
    """Keep a whole `.log`, under its new name."""
    path = log_path.with_name(log_path.name + CUT_SUFFIX)
    fs.rename(log_path, path)
    fs.sync_dir(path.parent)
    return path
