"""Read the indexes of segments, in either tier, once for each query."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from stratalog.errors import RemoteStorageError
from stratalog.inspect import ByteSources, Place, PlaceMissingError, PlaceTier, proves_timestamp
from stratalog.remote.storage import ObjectKind
from stratalog.spark.model import Segment
from stratalog.spark.planning.indexes import OffsetEntries, TimeEntries, offset_entries, time_entries

logger = logging.getLogger("stratalog.spark")

_READERS: Final = 16

T = TypeVar("T")


class IndexAccess:
    """Reads indexes, each once. Thread-safe.

    A missing or damaged index, or that of another `.log`, has no entries, which makes the plan coarser.
    """

    def __init__(self, byte_sources: ByteSources) -> None:
        self._byte_sources = byte_sources
        self._offsets: dict[Place, OffsetEntries] = {}
        self._times: dict[Place, TimeEntries] = {}

    def offset_entries(self, segment: Segment) -> OffsetEntries:
        found = self._offsets.get(segment.log)
        if found is None:
            data = self._read(segment, segment.index, ObjectKind.OFFSET_INDEX)
            noted = None if segment.manifest is None else segment.manifest.offset_index_entry_size
            found = self._offsets[segment.log] = offset_entries(data, segment.base_offset, segment.size, noted)
        return found

    def time_entries(self, segment: Segment) -> TimeEntries:
        found = self._times.get(segment.log)
        if found is None:
            data = self._read(segment, segment.time_index, ObjectKind.TIME_INDEX)
            found = self._times[segment.log] = time_entries(data, segment.base_offset)
        return found

    def proves(self, segment: Segment, timestamp_ms: int, offset: int) -> bool:
        """Return whether an entry of a time index is right. A checksum proves a remote one, the log a local one."""
        if segment.tier is PlaceTier.REMOTE:
            return True
        position = self.offset_entries(segment).position_before(offset)
        try:
            with self._byte_sources.open_local(segment.log) as log:
                return proves_timestamp(log, position, timestamp_ms, offset)
        except PlaceMissingError:
            return False

    def for_all(self, segments: list[Segment], read: Callable[[Segment], T]) -> list[T]:
        """Return `read(segment)` for each segment. Several run at once, as requests to a bucket take time to answer."""
        if len(segments) < 2:
            return [read(each) for each in segments]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="stratalog-index") as pool:
            return list(pool.map(read, segments))

    def _read(self, segment: Segment, place: Place | None, kind: ObjectKind) -> bytes:
        if place is None:
            return b""
        try:
            data = self._byte_sources.read(place)
            if segment.manifest is not None:
                segment.manifest.check_object(kind, data)
        except PlaceMissingError:
            return b""
        except RemoteStorageError as error:
            logger.warning("%s; the segment is read without this index", error)
            return b""
        if segment.tier is PlaceTier.LOCAL and not self._byte_sources.is_in_place(segment.log):
            return b""
        return data
