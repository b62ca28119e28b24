"""Indexes of remote segments, cached as files on the local disk.

`<directory>/<start offset>_<segment id>.index`, `.timeindex`, `.txnindex`, named as by Kafka's `RemoteIndexCache`; a
segment without aborted transactions has an empty `.txnindex`. `index_loader` downloads them. Complete entries of an
earlier process are reused if they pass their checks. Entries are weighed by their bytes: the least recently used are
evicted above the limit, and idle ones after a time. Files of evicted entries are renamed at once (`.deleted`, with a
number), and `purge` removes them `DELETE_DELAY_MS` later; readers have them open and are not disturbed. Renamed files
left by a crash are removed at startup.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from stratalog.errors import CorruptIndexError, DataDirError
from stratalog.remote.api import IndexType, RemoteLogSegmentMetadata, RemoteStorageManager
from stratalog.remote.reading.index_loader import IndexLoader
from stratalog.remote.reading.remote_indexes import SUFFIXES, RemoteIndexes, detect_entry_size, index_path
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, uuid_from_base64, uuid_to_base64

#: How long renamed files are kept: Kafka's `fileDeleteDelayMs`.
DELETE_DELAY_MS = 10_000

DELETED_SUFFIX = ".deleted"


class RemoteIndexCache:
    """A cache of remote indexes. Thread-safe; one download for a segment at a time."""

    def __init__(
        self,
        directory: Path,
        rsm: RemoteStorageManager,
        *,
        capacity_bytes: int,
        ttl_ms: int = -1,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        """`ttl_ms`: entries idle for longer are evicted; -1 keeps them. The directory is created if missing.

        Raises DataDirError.
        """
        self._directory = directory
        self._ttl_s = None if ttl_ms < 0 else ttl_ms / 1000
        self._clock = clock
        self._loader = IndexLoader(rsm, fs)
        self._fs = fs
        #: Reentrant: `distrust` holds it when it calls `invalidate`.
        self._lock = threading.RLock()
        self._loading: dict[UUID, threading.Lock] = {}
        #: Least recently used first. An entry owns its files until it is evicted.
        self._entries: OrderedDict[UUID, RemoteIndexes] = OrderedDict()
        self._size_bytes = 0
        #: Segments whose stored indexes are known to be wrong.
        self._distrusted: set[UUID] = set()
        #: Files to remove, and when.
        self._condemned: deque[tuple[float, Path]] = deque()
        self._numbers = itertools.count(1)
        self.capacity_bytes = capacity_bytes
        try:
            fs.make_dirs(directory)
            self._load_from_disk()
        except OSError as error:
            raise DataDirError(
                f"the remote index cache {directory} cannot be used: {error.strerror or error}"
            ) from error

    # --- lookups ----------------------------------------------------------------------------------------------------

    @contextmanager
    def indexes(self, metadata: RemoteLogSegmentMetadata) -> Iterator[RemoteIndexes]:
        """Yield the indexes of a segment, downloaded if needed. They stay open until the block ends.

        Raises RemoteStorageError.
        """
        found = self._acquire(metadata)
        try:
            yield found
        finally:
            with self._lock:
                found.users -= 1
                if found.evicted and found.users == 0:
                    found.close()

    def invalidate(self, segment_id: UUID) -> None:
        """Drop the indexes of a segment that was deleted or has wrong indexes."""
        with self._lock:
            self._distrusted.discard(segment_id)
            self._evict(segment_id)

    def distrust(self, segment_id: UUID) -> None:
        """Drop the indexes, and rebuild them from the records next time: the stored ones are wrong too."""
        with self._lock:
            self.invalidate(segment_id)
            self._distrusted.add(segment_id)

    def are_from_records(self, segment_id: UUID) -> bool:
        """Return whether the cached indexes were built from the records: there are no better ones."""
        with self._lock:
            found = self._entries.get(segment_id)
            return found is not None and found.are_from_records

    def resize(self, capacity_bytes: int) -> None:
        """Set the capacity. Evict what does not fit, the longest idle first."""
        with self._lock:
            self.capacity_bytes = capacity_bytes
            self._make_room()

    def purge(self) -> None:
        """Evict idle entries, and remove the files that are due."""
        with self._lock:
            now = self._clock.monotonic()
            while self._ttl_s is not None and self._entries:
                key, longest_idle = next(iter(self._entries.items()))
                if now - longest_idle.used_at < self._ttl_s:
                    break
                self._evict(key)
            while self._condemned and self._condemned[0][0] <= now:
                self._fs.remove(self._condemned.popleft()[1])

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Close open files. They stay on disk for the next start."""
        with self._lock:
            for indexes in self._entries.values():
                _release(indexes)
            self._entries.clear()
            self._size_bytes = 0
            while self._condemned:
                self._fs.remove(self._condemned.popleft()[1])

    # --- entries ----------------------------------------------------------------------------------------------------

    def _acquire(self, metadata: RemoteLogSegmentMetadata) -> RemoteIndexes:
        key = metadata.segment_id.id
        while True:
            with self._lock:
                found = self._entries.get(key)
                if found is not None:
                    found.users += 1
                    found.used_at = self._clock.monotonic()
                    self._entries.move_to_end(key)
                    return found
                loading = self._loading.setdefault(key, threading.Lock())
            with loading:
                with self._lock:
                    if self._loading.get(key) is not loading:
                        continue  # another thread has loaded it
                loaded: RemoteIndexes | None = None
                try:
                    loaded = self._load(metadata)
                finally:
                    with self._lock:  # both at once: no load may begin between the two
                        del self._loading[key]
                        if loaded is not None:
                            loaded.users += 1
                            self._put(key, loaded)
                return loaded

    def _put(self, key: UUID, indexes: RemoteIndexes) -> None:
        """Add an entry. One larger than the whole capacity is evicted at once, without evicting others."""
        indexes.used_at = self._clock.monotonic()
        self._entries[key] = indexes
        self._size_bytes += indexes.size_bytes
        if indexes.size_bytes > self.capacity_bytes:
            self._evict(key)
        self._make_room()

    def _make_room(self) -> None:
        while self._size_bytes > self.capacity_bytes:
            self._evict(next(iter(self._entries)))

    def _evict(self, key: UUID) -> None:
        indexes = self._entries.pop(key, None)
        if indexes is not None:
            self._size_bytes -= indexes.size_bytes
            try:
                self._condemn(indexes)
            finally:
                _release(indexes)

    def _condemn(self, indexes: RemoteIndexes) -> None:
        """Rename the files of an entry: from now on their names are free."""
        due = self._clock.monotonic() + DELETE_DELAY_MS / 1000
        if indexes.users:
            indexes.hold_open()
        for path in indexes.paths():
            condemned = path.with_name(f"{path.name}.{next(self._numbers)}{DELETED_SUFFIX}")
            try:
                self._fs.rename(path, condemned)
            except FileNotFoundError:
                continue  # a damaged transaction index has no file
            self._condemned.append((due, condemned))

    def _load(self, metadata: RemoteLogSegmentMetadata) -> RemoteIndexes:
        key = metadata.segment_id.id
        stem = self._directory / f"{metadata.start_offset}_{uuid_to_base64(key)}"
        loaded = self._loader.load(metadata, stem, distrusted=key in self._distrusted)
        try:
            loaded.check()
        except CorruptIndexError:
            loaded.close()
            loaded.remove_files()
            raise
        return loaded

    def _load_from_disk(self) -> None:
        """Load complete entries of an earlier process, and remove all other files."""
        stems: dict[str, set[str]] = {}
        for name in self._fs.list_dir(self._directory):
            stem, dot, suffix = name.rpartition(".")
            if dot and dot + suffix in SUFFIXES.values():
                stems.setdefault(stem, set()).add(dot + suffix)
            else:
                self._fs.remove(self._directory / name)
        for stem, suffixes in stems.items():
            try:
                start, separator, segment_id = stem.partition("_")
                if not separator or len(suffixes) < len(SUFFIXES):
                    raise ValueError(stem)
                indexes = self._open(uuid_from_base64(segment_id), self._directory / stem, int(start))
                indexes.check()
            except (ValueError, CorruptIndexError):
                for suffix in suffixes:
                    self._fs.remove(self._directory / (stem + suffix))
            else:
                self._put(indexes.key, indexes)

    def _open(self, key: UUID, stem: Path, start_offset: int) -> RemoteIndexes:
        entry_size = detect_entry_size(index_path(stem, IndexType.OFFSET), start_offset, self._fs)
        return RemoteIndexes(key, stem, start_offset, entry_size, self._fs)


def _release(indexes: RemoteIndexes) -> None:
    """Close an evicted entry once its last user is done with it."""
    indexes.evicted = True
    if indexes.users == 0:
        indexes.close()
