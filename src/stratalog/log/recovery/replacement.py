"""New segments in the place of old ones, so that a crash at any point leaves the log with either.

    1  the new segments lie beside the log, whole and flushed, as `.cleaned`
    2  they are renamed to `.swap`, the one with the highest base offset first: as long as a `.cleaned` is left, the
       replacement did not happen
    3  the directory is synced: from here on it did happen
    4  readers get the new row of segments, at once; the old files are renamed to `.deleted` and wait for their removal
    5  `.swap` is taken from the names, the lowest base offset first and of each segment the `.log` first, and the
       directory is synced again

`interrupted_swaps` finishes or undoes what was cut short. Source: Kafka's `LocalLog.replaceSegments`, which leaves out
the sync in 3 and relies on the order of renames.
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
    """Replace segments as `PartitionLog.replace_segments` says. The partition's lock is held."""
    if local.closed:
        _discard(local.directory, new, local.fs)
        raise local.unusable()
    here = set(local.segments)
    replaced = [segment for segment in old if segment in here]
    if local.active in replaced:
        raise ValueError(f"{local.name}: the active segment cannot be replaced")
    if old and not replaced:
        logger.info("%s: what was to be replaced from offset %d on is gone", local.name, old[0].base_offset)
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

    After an OSError nothing of `new` is left, and nothing happened.
    """
    try:
        for segment in sorted(new, key=lambda segment: segment.base_offset, reverse=True):
            segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        fs.sync_dir(directory)
    except OSError:
        _discard(directory, new, fs)
        raise


def name_plainly(directory: Path, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Step 5: from `.swap` to the names of segments of the log."""
    for segment in sorted(new, key=lambda segment: segment.base_offset):
        segment.change_suffix(SWAP_SUFFIX, "")
    try:
        fs.sync_dir(directory)
    except OSError as error:
        if not is_shortage(error):
            raise
        # Step 3 decided: a `.swap` that comes back after a power failure gets its name when the log is opened.
        logger.warning("%s: the names of new segments are not synced: %s", directory, error.strerror)


def _discard(directory: Path, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Remove the files of new segments that are not to come in, however far their renaming came.

    The lowest `.log` is made `.cleaned` first and goes last: until then it says to a process that opens the directory
    after a crash that none of them counts.
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
        logger.warning("%s: what is left of a replacement goes at the next opening: %s", directory, error)
