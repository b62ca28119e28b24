"""Optional parts of a storage plugin beyond `RemoteStorageManager`, and the one way to fetch its records.

They are looked up on the plugin by name:

    position_max     int: the largest position that the plugin supports, such as 2^31 - 1 for 32-bit positions. Without
                     it, or None, there is no limit. A larger segment is not copied, and no larger position is ever
                     requested (KIP-1333: bounds are checked, never cut).
    ensure_owner, is_read_only, release_owner    see `OwnsItsStore`: one cluster at a time writes to a store.
    stored_segment   a method (metadata) -> StoredSegment: what the plugin recorded of a segment besides its metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError, UsageError
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata, RemoteStorageManager


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Properties of the broker that every plugin gets with its own options, as in Kafka."""

    node_id: int
    cluster_id: str
    log_dir: Path

    #: Names of these properties.
    KEYS: ClassVar[tuple[str, ...]] = ("broker.id", "node.id", "cluster.id", "log.dir")

    def as_properties(self) -> dict[str, str]:
        node_id = str(self.node_id)
        return dict(zip(self.KEYS, (node_id, node_id, self.cluster_id, str(self.log_dir)), strict=True))


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """The stored size of a segment's records, and the entry size of its offset index if known."""

    size_bytes: int
    offset_index_entry_size: int | None


@runtime_checkable
class DescribesStoredSegments(Protocol):
    """A storage plugin that knows more about a segment than its metadata."""

    def stored_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """Return how the segment is stored. Raises RemoteStorageError."""
        ...


class StoreOwnership(Protocol):
    """A broker's claim to a store; `broker_ownership` implements it for buckets."""

    @property
    def is_read_only(self) -> bool: ...

    def ensure(self) -> None:
        """Ensure that this cluster owns the bucket.

        Raises NotOwnerError, or RemoteStorageError if the store does not answer.
        """
        ...

    def release(self) -> None: ...


@runtime_checkable
class OwnsItsStore(Protocol):
    """A storage plugin that checks its ownership of the store before each publication and deletion."""

    @property
    def is_read_only(self) -> bool:
        """Whether the plugin only reads: it deletes nothing, and nothing is to be copied with it."""
        ...

    def ensure_owner(self) -> None:
        """Ensure that this cluster owns the bucket.

        Raises NotOwnerError when nothing may be copied or deleted, another RemoteStorageError when the owner is
        unknown.
        """
        ...

    def release_owner(self) -> None:
        """Record that this broker stops. Store errors are not raised."""
        ...


def is_read_only(rsm: RemoteStorageManager) -> bool:
    """Return whether nothing may be copied with this plugin."""
    return isinstance(rsm, OwnsItsStore) and rsm.is_read_only


def ensure_owner(rsm: RemoteStorageManager) -> None:
    """Raise NotOwnerError when the plugin's store belongs to another cluster.

    A read-only plugin is not asked.
    """
    if isinstance(rsm, OwnsItsStore) and not rsm.is_read_only:
        rsm.ensure_owner()


def name_of(rsm: RemoteStorageManager) -> str:
    """Return the plugin's name in the configuration."""
    return f"{type(rsm).__module__}:{type(rsm).__qualname__}"


def position_max(rsm: RemoteStorageManager) -> int | None:
    """Return the plugin's largest position, or None without a limit.

    Raises UsageError for a value that is no positive number.
    """
    found: object = getattr(rsm, "position_max", None)
    if found is None:
        return None
    if not isinstance(found, int) or found < 1:
        raise UsageError(f"the storage plugin {name_of(rsm)} has position_max={found!r}, expected a positive number")
    return found


def ensure_reachable(rsm: RemoteStorageManager, segment: object, position: int) -> None:
    """Raise RemoteStorageError when `position` of `segment` (any named object) exceeds the plugin's limit."""
    limit = position_max(rsm)
    if limit is not None and position > limit:
        raise RemoteStorageError(
            f"{segment}: position {position} is out of reach of the storage plugin {name_of(rsm)}, which takes "
            f"positions up to {limit}; keep segment.bytes of tiered topics at {limit} or less, or use a plugin without "
            "this limit"
        )


def fetch_records(rsm: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
    """Return the bytes [start, end) of a segment's records, which must exist. Raises RemoteStorageError."""
    ensure_reachable(rsm, metadata.segment_id, end)
    view = memoryview(rsm.fetch_log_segment(metadata, start, end)).cast("B")
    if len(view) != end - start:
        raise RetriableRemoteStorageError(
            f"{metadata.segment_id}: {len(view)} bytes were returned for positions {start} to {end} of the records"
        )
    return view
