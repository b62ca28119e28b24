"""What a storage plugin may say of itself beyond `RemoteStorageManager`, and the one way its records are fetched.

Both are optional, and looked for on the plugin by name:

    position_max     int: the largest position that the plugin can be asked for, when it hands positions on to something of
                     32 bits (2^31 - 1). Without it, or None, there is no limit. A segment that is larger is not copied,
                     and no position behind the limit is ever asked for (KIP-1333: bounds are checked, never cut).
    stored_segment   a method (metadata) -> StoredSegment: what the plugin has noted of a segment besides its metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError, UsageError
from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteStorageManager


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What every plugin is told of the broker beside its own options, as Kafka tells it."""

    node_id: int
    cluster_id: str
    log_dir: Path

    #: The names under which it is told.
    KEYS: ClassVar[tuple[str, ...]] = ("broker.id", "node.id", "cluster.id", "log.dir")

    def told(self) -> dict[str, str]:
        """The values of `KEYS`."""
        node_id = str(self.node_id)
        return dict(zip(self.KEYS, (node_id, node_id, self.cluster_id, str(self.log_dir)), strict=True))


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """The size of a segment's records as they are stored, and the entry size of its offset index where that is known."""

    size_bytes: int
    offset_index_entry_size: int | None


@runtime_checkable
class DescribesStoredSegments(Protocol):
    """A storage plugin that can tell more of a segment than its metadata do."""

    def stored_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """Raises RemoteStorageError."""
        ...


def name_of(rsm: RemoteStorageManager) -> str:
    """The plugin as configuration names it."""
    return f"{type(rsm).__module__}:{type(rsm).__qualname__}"


def position_max(rsm: RemoteStorageManager) -> int | None:
    """The plugin's largest position, None for one without a limit. UsageError when what it says is no number."""
    found: object = getattr(rsm, "position_max", None)
    if found is None:
        return None
    if not isinstance(found, int) or found < 1:
        raise UsageError(
            f"the storage plugin {name_of(rsm)} has position_max={found!r}, expected a positive number"
        )
    return found


def ensure_reachable(rsm: RemoteStorageManager, segment: object, position: int) -> None:
    """Raise RemoteStorageError when the plugin cannot be asked for `position` of `segment` (anything with a name)."""
    limit = position_max(rsm)
    if limit is not None and position > limit:
        raise RemoteStorageError(
            f"{segment}: position {position} is out of reach of the storage plugin {name_of(rsm)}, which takes positions "
            f"up to {limit}; keep segment.bytes of tiered topics at {limit} or less, or use a plugin without this limit"
        )


def fetch_records(
    rsm: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, start: int, end: int
) -> memoryview:
    """The bytes [start, end) of a segment's records, which has them. Raises RemoteStorageError."""
    ensure_reachable(rsm, metadata.segment_id, end)
    view = memoryview(rsm.fetch_log_segment(metadata, start, end)).cast("B")
    if len(view) != end - start:
        raise RetriableRemoteStorageError(
            f"{metadata.segment_id}: {len(view)} bytes came for positions {start} to {end} of the records"
        )
    return view
