"""What a stream remembers from one snapshot, taken before every batch, to the next.

Sealed segments only change by compaction, which changes their size; manifests never change. So each snapshot only lists
a directory and reads the end of its active segment. It lists the topics of a bucket at most once in
`remote_interval_ms`, and reads new manifests. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from stratalog.inspect import ManifestCache
from stratalog.remote.storage import SegmentManifest
from stratalog.spark.planning.local_segments import SealedSegment


def _never_again() -> int:
    """Return 0: a clock that stands still, for a single snapshot."""
    return 0


@dataclass(slots=True)
class SnapshotMemory:
    """The memory of a stream; empty before its first snapshot."""

    remote_interval_ms: int = 0
    now_ms: Callable[[], int] = _never_again
    manifests: ManifestCache = field(default_factory=ManifestCache)
    _sealed: dict[tuple[Path, UUID | None], dict[int, SealedSegment]] = field(default_factory=dict)
    _remote: list[SegmentManifest] | None = None
    _remote_looked_ms: int = 0

    def sealed(self, directory: Path, topic_id: UUID | None) -> dict[int, SealedSegment]:
        """Return the sealed segments of a partition directory by base offset; the caller updates them.

        Another topic with the same name begins with none.
        """
        return self._sealed.setdefault((directory, topic_id), {})

    def remote(self, look: Callable[[], list[SegmentManifest]]) -> list[SegmentManifest]:
        """Return the result of `look`, or its last one if that is recent enough."""
        now_ms = self.now_ms()
        if self._remote is None or now_ms - self._remote_looked_ms >= self.remote_interval_ms:
            self._remote, self._remote_looked_ms = look(), now_ms
        return self._remote

    def forget_remote(self) -> None:
        """Let the next snapshot list the bucket."""
        self._remote = None

    def forget_sealed(self) -> None:
        """Forget all sealed segments: directories may hold other partitions now."""
        self._sealed.clear()
