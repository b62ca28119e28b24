"""Finish or undo a segment replacement that a crash interrupted.

The order of renames in `replacement` shows the state:

    any `.cleaned`      some new segments are not yet `.swap`: everything at or above the lowest `.cleaned` is
                        undone; the old segments are complete
    `.swap` alone       all new segments are complete: what is left of the segments they replace is removed, and they
                        get their final names
    `.deleted`          no longer part of the log
    `.snapshot.tmp`     incompletely written

A finished replacement may leave an old segment that ends after the last record of the new ones. All its records are
superseded, and the next cleaning removes it. Source: Kafka's `LogLoader.load` and `removeTempFilesAndCollectSwapFiles`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from stratalog.log.format import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    UNFINISHED_SUFFIX,
    parse_file_name,
)
from stratalog.records import LOG_OVERHEAD
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)

#: Base offset, length, (epoch or CRC), magic: at the same position in every message format.
_ANY_HEADER: Final = struct.Struct(">qiib")
#: Last offset delta of format 2, after magic, CRC and attributes.
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_HEADER_READ_SIZE: Final = _LAST_OFFSET_DELTA_AT + _LAST_OFFSET_DELTA.size

_NO_END: Final = 0x7FFF_FFFF_FFFF_FFFF


class _SegmentFile(NamedTuple):
    base_offset: int
    suffix: str
    name: str


@dataclass(slots=True)
class _Found:
    """The segment files of a directory, by suffix."""

    deleted: list[str] = field(default_factory=list)
    cleaned: list[_SegmentFile] = field(default_factory=list)
    swaps: list[_SegmentFile] = field(default_factory=list)
    plain: list[_SegmentFile] = field(default_factory=list)


def finish_swaps(directory: Path, fs: FileSystem) -> None:
    """Remove files that were being deleted or written, and finish interrupted swaps. Raises OSError.

    If this is interrupted too, the next call finishes it.
    """
    found = _find(directory, fs)
    for name in found.deleted:
        fs.remove(directory / name)
    whole_below = min((file.base_offset for file in found.cleaned), default=_NO_END)
    undone = [file for file in found.swaps if file.base_offset >= whole_below]
    for file in (
        *undone,
        *found.cleaned,
    ):  # in this order: a `.cleaned` shows that the others are incomplete
        logger.info("%s: removed, the replacement was not complete", directory / file.name)
        fs.remove(directory / file.name)
    whole = [file for file in found.swaps if file.base_offset < whole_below]
    if whole:
        _remove_replaced(directory, whole, found.plain, fs)
        _name_plainly(directory, whole, fs)
        fs.sync_dir(directory)


def _find(directory: Path, fs: FileSystem) -> _Found:
    found = _Found()
    for name in fs.list_dir(directory):
        if name.endswith((DELETED_SUFFIX, SNAPSHOT_SUFFIX + UNFINISHED_SUFFIX)):
            found.deleted.append(name)
            continue
        parsed = parse_file_name(name)
        if parsed is None:
            continue
        base_offset, suffix, state = parsed
        files = {CLEANED_SUFFIX: found.cleaned, SWAP_SUFFIX: found.swaps}.get(state, found.plain)
        files.append(_SegmentFile(base_offset, suffix, name))
    return found


def _remove_replaced(
    directory: Path, swaps: Iterable[_SegmentFile], plain: Iterable[_SegmentFile], fs: FileSystem
) -> None:
    """Remove the files of the segments that the `.swap` files replace.

    A segment whose `.log` has its final name replaces nothing more: its files are below the first `.log.swap`.
    """
    logs = [file for file in swaps if file.suffix == LOG_SUFFIX]
    if not logs:
        return
    first = min(file.base_offset for file in logs)
    end = max(next_offset(directory / file.name, file.base_offset, fs) for file in logs)
    for file in plain:
        if file.suffix != SNAPSHOT_SUFFIX and (first <= file.base_offset < end or file.base_offset == first):
            logger.info("%s: removed, finishing an interrupted replacement", directory / file.name)
            fs.remove(directory / file.name)


def _name_plainly(directory: Path, swaps: Iterable[_SegmentFile], fs: FileSystem) -> None:
    """Remove `.swap` from the names, in the order of `replacement`: by segment, and the `.log` of each first."""
    for file in sorted(swaps, key=lambda file: (file.base_offset, file.suffix != LOG_SUFFIX, file.suffix)):
        fs.rename(directory / file.name, directory / file.name.removesuffix(SWAP_SUFFIX))


def next_offset(log_path: Path, base_offset: int, fs: FileSystem) -> int:
    """Return the offset after the last batch of a `.log` of any message format, from headers alone."""
    next_offset = base_offset
    with fs.open(log_path) as file:
        position, size = 0, file.size()
        while position + _ANY_HEADER.size <= size:
            header = file.pread(_HEADER_READ_SIZE, position)
            offset, length, _, magic = _ANY_HEADER.unpack_from(header)
            if length <= 0:
                break
            if magic >= 2 and len(header) == _HEADER_READ_SIZE:
                offset += _LAST_OFFSET_DELTA.unpack_from(header, _LAST_OFFSET_DELTA_AT)[0]
            next_offset = max(next_offset, offset + 1)
            position += length + LOG_OVERHEAD
    return next_offset
