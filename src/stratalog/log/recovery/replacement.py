"""Replace segments so that a crash at any point leaves either the old or the new ones.

    1  the new segments are complete and flushed, with the suffix `.cleaned`
    2  they are renamed to `.swap`, the highest base offset first: while a `.cleaned` is left, the replacement has not
       happened
    3  the directory is synced: this commits the replacement
    4  readers get the new segments at once; the old files are renamed to `.deleted` and removed later
    5  `.swap` is removed from the names, the lowest base offset first and the `.log` of each segment first, and the
       directory is synced again

`interrupted_swaps` finishes or undoes an interrupted replacement. Source: Kafka's `LocalLog.replaceSegments`, which
leaves out the sync in 3 and relies on the order of renames.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.errors import is_shortage
from stratalog.log.format import CLEANED_SUFFIX, SWAP_SUFFIX, log_file
from stratalog.log.segment import LogSegment
from stratalog.util import FileSystem

if TYPE_CHECKING:
    from stratalog.log.local_log import LocalLog

logger = logging.getLogger(__name__)


def replace_segments(local: LocalLog, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
    """Replace segments as `PartitionLog.replace_segments` describes. Hold the partition's lock."""
    if local.closed:
        _discard(local.directory, new, local.fs)
        raise local.unusable()
    here = set(local.segments)
    replaced = [segment for segment in old if segment in here]
    if local.active in replaced:
        raise ValueError(f"{local.name}: the active segment cannot be replaced")
    if old and not replaced:
        logger.info("%s: the segments to replace from offset %d on are gone", local.name, old[0].base_offset)
        _discard(local.directory, new, local.fs)
        return
    try:
        make_certain(local.directory, new, local.fs)
    except OSError as error:
        raise local.storage_error("replacing segments", error) from error
    with local.whole_or_unusable("replacing segments"):
        local.replace(replaced, new)
        name_plainly(local.directory, new, local.fs)


def make_certain(directory: Path, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Carry out steps 2 and 3: from `.cleaned` to `.swap`.

    An OSError removes all of `new` and changes nothing else.
    """
    try:
        for segment in sorted(new, key=lambda segment: segment.base_offset, reverse=True):
            segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        fs.sync_dir(directory)
    except OSError:
        _discard(directory, new, fs)
        raise


def name_plainly(directory: Path, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Carry out step 5: from `.swap` to the final names."""
    for segment in sorted(new, key=lambda segment: segment.base_offset):
        segment.change_suffix(SWAP_SUFFIX, "")
    try:
        fs.sync_dir(directory)
    except OSError as error:
        if not is_shortage(error):
            raise
        # Step 3 committed: a `.swap` that reappears after a power failure gets its name when the log is opened.
        logger.warning("%s: the names of new segments are not synced: %s", directory, error.strerror)


def _discard(directory: Path, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Remove the files of new segments after a failure, however far their renaming came.

    The lowest `.log` is renamed to `.cleaned` first and removed last: a process that opens the directory after a crash
    then ignores all of them.
    """
    bases = sorted((segment.base_offset for segment in new), reverse=True)
    try:
        for segment in new:
            segment.close()
        if bases:
            lowest = directory / log_file(bases[-1])
            if fs.exists(f"{lowest}{SWAP_SUFFIX}"):
                fs.rename(f"{lowest}{SWAP_SUFFIX}", f"{lowest}{CLEANED_SUFFIX}")
        names = fs.list_dir(directory)
        for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
            for base_offset in bases:
                for name in names:
                    if name.startswith(f"{base_offset:020d}.") and name.endswith(suffix):
                        fs.remove(directory / name)
    except OSError as error:
        logger.warning("%s: the next opening removes what is left of a replacement: %s", directory, error)
