"""Indexes of remote segments, kept as files on the local disk.

`<directory>/<start offset>_<segment id>.index`, `.timeindex`, `.txnindex`, as Kafka's `RemoteIndexCache` names them; a
segment without aborted transactions has an empty `.txnindex`. `index_loader` gets them there. What is in the directory
at start is used again if it is complete and passes its checks. Entries weigh their bytes; W-TinyLFU (moka) decides
which go when the limit is passed, and idle ones go after a time. The files of an entry that goes get another name at
once (`.deleted`, with a number), and are removed `DELETE_DELAY_MS` later by `purge`; whoever uses the entry at that
moment has them open, and goes on. What a crash leaves under such names is removed at the next start.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.errors import CorruptIndexError, DataDirError
from stratalog.remote.api.interfaces import IndexType, RemoteLogSegmentMetadata, RemoteStorageManager
from stratalog.remote.reading.index_loader import IndexLoader
from stratalog.remote.reading.remote_indexes import SUFFIXES, RemoteIndexes, detect_entry_size, index_path
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem
from stratalog.util.uuids import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    from moka_py import Moka


def _moka() -> type[Moka[UUID, RemoteIndexes]]:
    """The cache's class, loaded by a thread that never ends.

    Its native library has an allocator of its own, which takes the thread that loads it for the process's main one and
    crashes the process some time after that thread has ended; a broker in process runs on a thread that ends.
    """
    if "moka_py" not in sys.modules and threading.current_thread() is not threading.main_thread():
        loaded = threading.Event()

        def load() -> None:
            try:
                import moka_py  # noqa: F401
            finally:
                loaded.set()
            threading.Event().wait()

        threading.Thread(target=load, name="remote-index-cache-library", daemon=True).start()
        loaded.wait()
    from moka_py import Moka

    return Moka


#: How long files stay under their last name: Kafka's `fileDeleteDelayMs`.
DELETE_DELAY_MS = 10_000

DELETED_SUFFIX = ".deleted"


class RemoteIndexCache:
    """See the module. Thread-safe; one download for a segment at a time."""

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
        """`ttl_ms`: entries that nobody used for so long go; -1 keeps them. The directory is made when it is missing.

        Raises DataDirError.
        """
        self._directory = directory
        self._ttl_s = None if ttl_ms < 0 else ttl_ms / 1000
        self._clock = clock
        self._loader = IndexLoader(rsm, fs)
        self._fs = fs
        #: Held around every call of the cache: it runs `_evicted.append` on the thread that calls it.
        self._lock = threading.RLock()
        self._loading: dict[UUID, threading.Lock] = {}
        #: Whose files lie under a key's names: an entry that is replaced must not take its successor's.
        self._owners: dict[UUID, RemoteIndexes | None] = {}
        self._evicted: list[RemoteIndexes] = []
        #: Whose stored indexes are known to be wrong.
        self._distrusted: set[UUID] = set()
        #: When each entry was last asked for, the longest idle one first.
        self._used: OrderedDict[UUID, float] = OrderedDict()
        #: Files that wait for their removal, and when that is due.
        self._condemned: deque[tuple[float, Path]] = deque()
        self._numbers = itertools.count(1)
        self.capacity_bytes = capacity_bytes
        self._cache = self._new_cache(capacity_bytes)
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
        """The indexes of a segment, downloaded if they are not here; they stay open until the block ends.

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
        """Forget the indexes of a segment: it was deleted, or they turned out to be wrong."""
        with self._lock:
            self._distrusted.discard(segment_id)
            self._cache.remove(segment_id)
            self._settle()

    def distrust(self, segment_id: UUID) -> None:
        """The same, and those in the store are wrong too: build them from the records when they are next asked for."""
        with self._lock:
            self.invalidate(segment_id)
            self._distrusted.add(segment_id)

    def are_from_records(self, segment_id: UUID) -> bool:
        """Whether the indexes here were built from the records: then no other ones are better."""
        with self._lock:
            found = self._cache.get(segment_id)
            return found is not None and found.are_from_records

    def resize(self, capacity_bytes: int) -> None:
        """Have room for so many bytes from now on; what does not fit goes, the longest idle first."""
        with self._lock:
            if capacity_bytes == self.capacity_bytes:
                return
            kept = [(key, found) for key in reversed(self._used) if (found := self._cache.get(key)) is not None]
            self.capacity_bytes = capacity_bytes
            self._cache = self._new_cache(capacity_bytes)
            for key, indexes in kept:
                self._cache.set(key, indexes)
            self._settle()

    def purge(self) -> None:
        """Let idle entries go, and remove the files whose time has come."""
        with self._lock:
            now = self._clock.monotonic()
            while self._ttl_s is not None and self._used:
                key, used = next(iter(self._used.items()))
                if now - used < self._ttl_s:
                    break
                self._cache.remove(key)
                self._used.pop(key, None)
            self._settle()
            while self._condemned and self._condemned[0][0] <= now:
                self._fs.remove(self._condemned.popleft()[1])

    @property
    def size_bytes(self) -> int:
        with self._lock:
            self._settle()
            return self._cache.weighted_size()

    def __len__(self) -> int:
        with self._lock:
            self._settle()
            return self._cache.count()

    def close(self) -> None:
        """Close what is open; the files stay for the next start."""
        with self._lock:
            self._owners.clear()
            self._cache.clear()
            self._settle()
            while self._condemned:
                self._fs.remove(self._condemned.popleft()[1])

    # --- entries ----------------------------------------------------------------------------------------------------

    def _acquire(self, metadata: RemoteLogSegmentMetadata) -> RemoteIndexes:
        key = metadata.segment_id.id
        while True:
            with self._lock:
                found = self._cache.get(key)
                if found is not None and not found.evicted:
                    found.users += 1
                    self._touch(key)
                    return found
                self._settle()
                loading = self._loading.setdefault(key, threading.Lock())
            with loading:
                with self._lock:
                    if self._loading.get(key) is not loading:
                        continue  # somebody else has loaded it meanwhile
                    self._owners[key] = None
                loaded: RemoteIndexes | None = None
                try:
                    loaded = self._load(metadata)
                finally:
                    with self._lock:  # both at once: nobody may begin to load between the two
                        del self._loading[key]
                        if loaded is not None:
                            loaded.users += 1
                            self._owners[key] = loaded
                            self._put(key, loaded)
                            self._settle()
                return loaded

    def _settle(self) -> None:
        """Let go of what the cache has evicted; the caller holds the lock."""
        self._cache.run_pending_tasks()
        evicted, self._evicted[:] = list(self._evicted), []
        for indexes in evicted:
            indexes.evicted = True
            if self._owners.get(indexes.key) is indexes:
                del self._owners[indexes.key]
                self._used.pop(indexes.key, None)
                self._condemn(indexes)
            if indexes.users == 0:
                indexes.close()

    def _condemn(self, indexes: RemoteIndexes) -> None:
        """The first of two steps: from here on the names of the entry are free for another one."""
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

    def _put(self, key: UUID, indexes: RemoteIndexes) -> None:
        self._touch(key)
        self._cache.set(key, indexes)

    def _touch(self, key: UUID) -> None:
        self._used[key] = self._clock.monotonic()
        self._used.move_to_end(key)

    def _new_cache(self, capacity_bytes: int) -> Moka[UUID, RemoteIndexes]:
        """An empty one. What an earlier one still says of its entries when it goes counts for nothing."""
        cache: Moka[UUID, RemoteIndexes]

        def evicted(_key: UUID, indexes: RemoteIndexes, _cause: str) -> None:
            if self._cache is cache:
                self._evicted.append(indexes)

        cache = _moka()(
            capacity_bytes,
            eviction_listener=evicted,
            weigher=lambda _key, indexes: indexes.size_bytes,
        )
        return cache

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
        """Take over complete entries of an earlier process, and remove everything else."""
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
                self._owners[indexes.key] = indexes
                self._put(indexes.key, indexes)
        self._settle()

    def _open(self, key: UUID, stem: Path, start_offset: int) -> RemoteIndexes:
        entry_size = detect_entry_size(index_path(stem, IndexType.OFFSET), start_offset, self._fs)
        return RemoteIndexes(key, stem, start_offset, entry_size, self._fs)
