"""Manifests that have been read, kept for the next look at the same bucket.

A manifest is known by its key and by what the listing says of its object, so one that was written again is read again.
The least recently used entry is evicted when the bytes are used up.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from stratalog.remote.storage import ObjectInfo, SegmentManifest

#: What a manifest takes besides its checksums and timestamps, about.
_FIXED_BYTES = 4096


class ManifestCache:
    """Manifests of any number of stores, within `bytes_max` (about; None: all of them). Thread-safe."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str], tuple[ObjectInfo, SegmentManifest]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, url: str, info: ObjectInfo) -> SegmentManifest | None:
        """Return the manifest of the very object that a listing of the store at `url` shows, if it is known."""
        with self._lock:
            found = self._known.get((url, info.key))
            if found is None or found[0] != info:
                return None
            self._known.move_to_end((url, info.key))
            return found[1]

    def put(self, url: str, info: ObjectInfo, manifest: SegmentManifest) -> None:
        """Keep the manifest that was read from an object as the listing showed it."""
        with self._lock:
            self._remove(url, info.key)
            self._known[url, info.key] = info, manifest
            self._bytes += _weight(manifest)
            while self._bytes_max is not None and self._bytes > self._bytes_max and self._known:
                self._remove(*next(iter(self._known)))

    def _remove(self, url: str, key: str) -> None:
        gone = self._known.pop((url, key), None)
        if gone is not None:
            self._bytes -= _weight(gone[1])


def _weight(manifest: SegmentManifest) -> int:
    crcs, times = manifest.block_crc32c, manifest.block_timestamps
    return _FIXED_BYTES + (0 if crcs is None else 4 * len(crcs)) + (0 if times is None else len(times.packed))
