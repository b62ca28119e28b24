"""The `.snapshot` files of a partition directory: which there are, and which must go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from stratalog.log.format import DELETED_SUFFIX, SNAPSHOT_SUFFIX, parse_file_name, snapshot_file
from stratalog.util import FileSystem, StrPath


class SnapshotFile(NamedTuple):
    """A snapshot on disk, and the log end offset that it stands for."""

    offset: int
    path: Path


class SnapshotDirectory:
    """By the log end offset in their names."""

    def __init__(self, directory: StrPath, fs: FileSystem) -> None:
        self.directory = Path(directory)
        self._fs = fs
        self._paths = self._find()
        #: Offsets of the snapshots that were taken without a sync.
        self._unsynced: set[int] = set()

    def __iter__(self) -> Iterator[SnapshotFile]:
        """Ascending by offset."""
        return iter([SnapshotFile(offset, self._paths[offset]) for offset in sorted(self._paths)])

    @property
    def latest_offset(self) -> int | None:
        return max(self._paths, default=None)

    def get(self, offset: int) -> Path | None:
        return self._paths.get(offset)

    def path_for(self, offset: int) -> Path:
        """Return where a snapshot at this offset belongs; `add` it once it is written."""
        return self.directory / snapshot_file(offset)

    def add(self, offset: int, *, synced: bool = True) -> None:
        self._paths[offset] = self.path_for(offset)
        if not synced:
            self._unsynced.add(offset)

    def unsynced(self, up_to: int) -> list[SnapshotFile]:
        """Return those up to an offset that were taken without a sync, as far as they are still there."""
        paths = ((offset, self._paths.get(offset)) for offset in sorted(self._unsynced) if offset <= up_to)
        return [SnapshotFile(offset, path) for offset, path in paths if path is not None]

    def forget_unsynced(self, synced: Iterable[SnapshotFile]) -> None:
        """Take note that snapshots that `unsynced` gave are durable, or gone."""
        self._unsynced.difference_update(snapshot.offset for snapshot in synced)

    def delete(self, offset: int) -> None:
        path = self._paths.pop(offset, None)
        if path is not None:
            self._fs.remove(path)

    def delete_all(self) -> None:
        for offset in list(self._paths):
            self.delete(offset)

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Delete those that stand for nothing in a log of these offsets."""
        for offset in list(self._paths):
            if offset > log_end_offset or offset <= log_start_offset:
                self.delete(offset)

    def mark_deleted(self, offset: int) -> Path | None:
        """Rename a snapshot to `.deleted`, with its segment; its new path, for the removal later."""
        path = self._paths.pop(offset, None)
        if path is None or not self._fs.exists(path):
            return None
        marked = path.with_name(path.name + DELETED_SUFFIX)
        self._fs.rename(path, marked)
        return marked

    def delete_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Delete those that stand at no segment's base offset; one above all of them (clean shutdown) stays."""
        self._paths = self._find()
        largest_base = max(segment_base_offsets, default=None)
        strays = sorted(set(self._paths) - set(segment_base_offsets))
        keep = strays[-1:] if strays and (largest_base is None or strays[-1] >= largest_base) else []
        for offset in strays:
            if offset not in keep:
                self.delete(offset)

    def _find(self) -> dict[int, Path]:
        if not self._fs.is_dir(self.directory):
            return {}
        found: dict[int, Path] = {}
        for name in self._fs.list_dir(self.directory):
            parsed = parse_file_name(name)
            if parsed is not None and parsed[1:] == (SNAPSHOT_SUFFIX, ""):
                found[parsed[0]] = self.directory / name
        return found
