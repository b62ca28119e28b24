"""Read partition directories from outside, without locks, changes or a broker.

For Spark, `stratalog dump` and other offline tools. A live partition may roll, grow and delete concurrently: a listing
is a snapshot, and a reader stops at the first incomplete batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from stratalog.log.format import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    log_file,
    offset_index_file,
    parse_file_name,
    parse_partition_dir,
    time_index_file,
)
from stratalog.log.recovery import next_offset
from stratalog.records import WINDOW_SIZE, RecordBatch, walk
from stratalog.util import REAL_FILESYSTEM, File, FileSystem, StrPath

#: How often a directory is listed again because segments were being replaced in it.
_LOOKS_MAX: Final = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment. `index` and `timeindex` may not exist; the others are None if missing.

    `size` is that of the `.log` at the time of the listing. `snapshot` is the producer state at the base offset. Names
    end in `.swap` while a segment is swapped in (`log.recovery.replacement`).
    """

    base_offset: int
    log: Path
    index: Path
    timeindex: Path
    txnindex: Path | None
    snapshot: Path | None
    size: int


class PartitionDirectory(NamedTuple):
    topic: str
    partition: int
    path: Path


def list_partitions(data_dir: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> list[PartitionDirectory]:
    """Return the live partition directories in a data directory, by topic and partition."""
    found = []
    for name in fs.list_dir(data_dir):
        parsed = parse_partition_dir(name)
        path = Path(data_dir) / name
        if parsed is not None and fs.is_dir(path):
            found.append(PartitionDirectory(*parsed, path))
    return sorted(found)


def list_segments(directory: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> list[SegmentFiles]:
    """Return the segments of a partition directory, by base offset.

    Leaves out files that are being deleted or replaced. A replacement that only lacks its final names counts as done,
    as when a process opens the directory (`interrupted_swaps`).
    """
    root = Path(directory)
    return undisturbed(root, lambda: list_segments_once(root, fs), fs)


def undisturbed(directory: Path, look: Callable[[], T], fs: FileSystem = REAL_FILESYSTEM) -> T:
    """Return the result of `look` on a partition directory in which no segments are replaced concurrently.

    Repeats `look` until then. Concurrent rolls and deletions do no harm: they change only the ends. After many tries
    the last result counts. A FileNotFoundError of `look` means that a name changed since it was listed; it is raised if
    every try fails so.
    """
    before = _row(directory, fs)
    for tries in range(_LOOKS_MAX):
        try:
            found = look()
        except FileNotFoundError:
            if tries == _LOOKS_MAX - 1:
                raise
            before = _row(directory, fs)
            continue
        after = _row(directory, fs)
        if _is_same_row(before, after):
            break
        before = after
    return found


def _row(directory: Path, fs: FileSystem) -> list[tuple[int, str, int]]:
    """Return base offset, second suffix and inode of each `.log` that counts or is about to.

    A segment replaced by one with the same base offset keeps its name, but has another inode.
    """
    parsed = ((parse_file_name(name), inode) for name, inode in fs.list_inodes(directory).items())
    return sorted(
        (found[0], found[2], inode)
        for found, inode in parsed
        if found is not None and found[1] == LOG_SUFFIX and found[2] in ("", SWAP_SUFFIX)
    )


def _is_same_row(before: list[tuple[int, str, int]], after: list[tuple[int, str, int]]) -> bool:
    """Return whether the segments changed at the ends at most."""
    if not before or not after:
        return before == after
    first, last = after[0][0], before[-1][0]
    return [each for each in before if each[0] >= first] == [each for each in after if each[0] <= last]


def list_segments_once(root: Path, fs: FileSystem) -> list[SegmentFiles]:
    """List the segments once, for callers that exclude concurrent replacements (`undisturbed`).

    Raises FileNotFoundError when a segment was deleted or renamed since its name was listed.
    """
    names = _names(root, fs)
    segments = []
    for base in sorted(base for base, suffix in names if suffix == LOG_SUFFIX):
        log = root / names[base, LOG_SUFFIX]
        txnindex, snapshot = names.get((base, TXN_INDEX_SUFFIX)), names.get((base, SNAPSHOT_SUFFIX))
        segments.append(
            SegmentFiles(
                base_offset=base,
                log=log,
                index=root / names.get((base, OFFSET_INDEX_SUFFIX), offset_index_file(base)),
                timeindex=root / names.get((base, TIME_INDEX_SUFFIX), time_index_file(base)),
                txnindex=None if txnindex is None else root / txnindex,
                snapshot=None if snapshot is None else root / snapshot,
                size=fs.size(log),
            )
        )
    return segments


def _names(root: Path, fs: FileSystem) -> dict[tuple[int, str], str]:
    """Return the files that count, by base offset and suffix.

    Replacements that only lack their final names are applied.
    """
    plain: dict[tuple[int, str], str] = {}
    swaps: dict[tuple[int, str], str] = {}
    whole_below: int | None = None
    for name in fs.list_dir(root):
        parsed = parse_file_name(name)
        if parsed is None:
            continue
        base, suffix, state = parsed
        if state == CLEANED_SUFFIX:
            whole_below = base if whole_below is None else min(base, whole_below)
        elif state == SWAP_SUFFIX:
            swaps[base, suffix] = name
        elif not state:
            plain[base, suffix] = name
    swaps = {key: name for key, name in swaps.items() if whole_below is None or key[0] < whole_below}
    logs = [base for base, suffix in swaps if suffix == LOG_SUFFIX]
    if logs and (first := min(logs)) < max((base for base, _ in plain), default=first):
        end = max(_end_of_swap(root, base, fs) for base in logs)
        plain = {
            (base, suffix): name
            for (base, suffix), name in plain.items()
            if suffix == SNAPSHOT_SUFFIX or not first <= base < end
        }
    return plain | swaps


def _end_of_swap(root: Path, base: int, fs: FileSystem) -> int:
    """Return the offset after the last batch of a `.log` that is being swapped in, under either name."""
    for name in (log_file(base) + SWAP_SUFFIX, log_file(base)):
        try:
            return next_offset(root / name, base, fs)
        except FileNotFoundError:
            continue
    return base


def scan_headers(
    file: File, start: int = 0, end: int | None = None, *, window_size: int = WINDOW_SIZE
) -> Iterator[tuple[int, RecordBatch]]:
    """Yield position and header of each batch between two positions of a `.log`; see `walk`, without records.

    Ends before the first incomplete batch, which shows in the last one's position and size. Raises CorruptRecordError,
    with file and position, for bytes that cannot be a batch.
    """
    limit = file.size() if end is None else min(end, file.size())
    return walk(file.pread, limit, start=start, with_records=False, window_size=window_size, name=file.path)
