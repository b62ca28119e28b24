"""Detect the format of an offset index file on disk.

By its size if that is enough, by its log if there is one, else by content.
"""

from __future__ import annotations

import logging
from pathlib import Path

from stratalog.log.format.offset_index_format import (
    FORMATS,
    LEGACY,
    Detection,
    Evidence,
    OffsetIndexFormat,
    detect_from_entries,
)
from stratalog.log.format.offset_index_proof import FIRST_ENTRIES_SIZE, detect_from_first_entry, detect_from_log
from stratalog.util import File, FileSystem

logger = logging.getLogger(__name__)


def detect_in_file(
    path: Path,
    base_offset: int,
    *,
    fs: FileSystem,
    log_path: Path | None = None,
    expected: OffsetIndexFormat = LEGACY,
    always_prove: bool = False,
) -> Detection:
    """Detect the format of an index file; one that is not there has the expected format.

    Only a size that both entry sizes divide needs a look at the log, or at the content where there is none; tools that
    take nothing for granted ask for the proof of every file (`always_prove`). A guess is logged as a warning.
    """
    try:
        size = fs.size(path)
    except FileNotFoundError:
        return Detection(expected, Evidence.EMPTY, "no file")
    if size == 0:
        return Detection(expected, Evidence.EMPTY, "the file is empty")
    fits = [form for form in FORMATS if size % form.entry_size == 0]
    if len(fits) == 1 and not always_prove:
        return Detection(fits[0], Evidence.SIZE, f"{fits[0].entry_size} alone divides {size} bytes")
    with fs.open(path) as file:
        if log_path is None or not fs.exists(log_path):
            found = detect_from_entries(file.pread(size, 0), expected)
        else:
            with fs.open(log_path) as log:
                found = _prove(file, size, base_offset, log, expected)
    if found.is_guess:
        logger.warning(
            "%s: %d bytes are a multiple of 8 and of 12, and the entries ascend read either way; "
            "reading them as %s, the format in force",
            path,
            size,
            found.format,
        )
    return found


def _prove(file: File, size: int, base_offset: int, log: File, expected: OffsetIndexFormat) -> Detection:
    """`detect_from_log`, which mostly needs the first entry of a file that may have many megabytes."""
    log_size = log.size()
    first = file.pread(min(size, FIRST_ENTRIES_SIZE), 0)
    found = detect_from_first_entry(first, size, base_offset, log, log_size)
    return found or detect_from_log(file.pread(size, 0), base_offset, log, log_size, expected)
